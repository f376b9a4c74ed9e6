//! Classes: from labels to their places in a sorted list.

use std::cmp::Ordering;

/// The classes in order, and for every label the place of its class.
///
/// Where every label is a finite number, numbers are ordered and compared as such: `2` comes before
/// `10`, and `1` and `1.0` are one class, under the spelling that comes first. Otherwise labels are
/// text.
pub(super) fn classify(labels: &[String]) -> (Vec<String>, Vec<u32>) {
    let numbers: Option<Vec<f64>> =
        labels.iter().map(|it| it.parse().ok().filter(|it: &f64| it.is_finite())).collect();
    // `total_cmp` tells -0 from 0, which are one number; adding 0 makes them one.
    let compare = |a: usize, b: usize| match &numbers {
        Some(numbers) => (numbers[a] + 0.0).total_cmp(&(numbers[b] + 0.0)),
        None => labels[a].cmp(&labels[b]),
    };
    let mut order: Vec<usize> = (0..labels.len()).collect();
    // The sort is stable, so the spelling that comes first stays first.
    order.sort_by(|&a, &b| compare(a, b));
    let mut classes = Vec::new();
    let mut places = vec![0; labels.len()];
    let mut last = None;
    for row in order {
        if last.is_none_or(|last| compare(last, row) != Ordering::Equal) {
            classes.push(labels[row].clone());
        }
        last = Some(row);
        places[row] = (classes.len() - 1) as u32;
    }
    (classes, places)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classified(labels: &[&str]) -> (Vec<String>, Vec<u32>) {
        classify(&labels.iter().map(|&it| it.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn numbers_are_in_the_order_of_numbers() {
        let (classes, places) = classified(&["10", "2", "-1", "2", "0.5"]);
        assert_eq!(classes, ["-1", "0.5", "2", "10"]);
        assert_eq!(places, [3, 2, 0, 2, 1]);
    }

    #[test]
    fn two_spellings_of_a_number_are_one_class() {
        let (classes, places) = classified(&["1.0", "0", "1", "-0", "01"]);
        assert_eq!(classes, ["0", "1.0"]);
        assert_eq!(places, [1, 0, 1, 0, 1]);
    }

    #[test]
    fn one_label_that_is_text_makes_all_of_them_text() {
        let (classes, places) = classified(&["10", "2", "b", "1.0", "1", "nan"]);
        assert_eq!(classes, ["1", "1.0", "10", "2", "b", "nan"]);
        assert_eq!(places, [2, 3, 4, 1, 0, 5]);
    }
}
