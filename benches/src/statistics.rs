//! Medians, and medians of ratios.

/// The middle value: of an even number, the mean of the two in the middle. Absent if there is none.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => sorted.get(middle).copied(),
        _ => Some(f64::midpoint(*sorted.get(middle - 1)?, *sorted.get(middle)?)),
    }
}

/// The median of the ratios of the same turns, which is not the ratio of the medians: what slowed one
/// turn slowed both sides of its ratio.
pub fn median_ratio(of: &[f64], to: &[f64]) -> Option<f64> {
    let ratios: Vec<f64> = of.iter().zip(to).map(|(of, to)| of / to).collect();
    median(&ratios)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_value_in_whatever_order_they_come() {
        assert_eq!(median(&[9.0, 1.0, 4.0]), Some(4.0));
        assert_eq!(median(&[4.0, 9.0, 1.0, 6.0]), Some(5.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn ratios_are_taken_turn_by_turn() {
        // The machine was ten times slower in the second turn, and the ratio does not see it.
        assert_eq!(median_ratio(&[2.0, 20.0, 2.0], &[1.0, 10.0, 1.0]), Some(2.0));
        // The ratio of the medians would be 1.
        assert_eq!(median_ratio(&[1.0, 2.0, 9.0], &[2.0, 1.0, 3.0]), Some(2.0));
    }
}
