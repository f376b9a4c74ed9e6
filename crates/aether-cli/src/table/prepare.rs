//! From a table to what is trained on: the split, and the scale of every feature.

use fastrand::Rng;

use super::Table;

/// After scaling, a value counts as at most this many standard deviations, so that a single
/// outlier, or a column that hardly varies among the training rows, can't drive the weights.
const LIMIT: f64 = 10.0;

/// Rows of scaled features with their classes.
#[derive(Debug)]
pub(crate) struct Dataset {
    pub(crate) features: usize,
    /// Row by row.
    pub(crate) values: Vec<f32>,
    pub(crate) labels: Vec<u32>,
}

impl Dataset {
    /// How many rows there are.
    pub(crate) fn len(&self) -> usize {
        self.labels.len()
    }
}

/// A table in two parts.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) training: Dataset,
    pub(crate) held_out: Dataset,
}

impl Prepared {
    /// Holds out a fifth of the rows (rounded, at least one), drawn by a shuffle from `seed`, and
    /// scales every feature by what it is among the other rows alone: to mean 0 and variance 1, a
    /// constant to 0, and nothing past ten standard deviations.
    pub(crate) fn new(table: &Table, seed: u64) -> Self {
        let mut rows: Vec<usize> = (0..table.labels.len()).collect();
        Rng::with_seed(seed).shuffle(&mut rows);
        let held_out = ((rows.len() + 2) / 5).max(1).min(rows.len());
        let (held_out, training) = rows.split_at(held_out);
        let scales: Vec<Scale> =
            (0..table.features).map(|it| Scale::measure(table, training, it)).collect();
        Self {
            training: scaled(table, training, &scales),
            held_out: scaled(table, held_out, &scales),
        }
    }
}

struct Scale {
    mean: f64,
    /// One over the standard deviation; 0 for a constant.
    factor: f64,
}

impl Scale {
    fn measure(table: &Table, rows: &[usize], feature: usize) -> Self {
        let values = || rows.iter().map(|row| table.values[row * table.features + feature]);
        let count = rows.len().max(1) as f64;
        let mean = values().sum::<f64>() / count;
        // A constant is told by its values, for their mean is rounded.
        let first = values().next();
        if values().all(|it| Some(it) == first) {
            return Self { mean, factor: 0.0 };
        }
        let variance = values().map(|it| (it - mean) * (it - mean)).sum::<f64>() / count;
        // Values so small that their squares vanish are as good as a constant.
        Self { mean, factor: if variance > 0.0 { variance.sqrt().recip() } else { 0.0 } }
    }

    fn apply(&self, value: f64) -> f32 {
        ((value - self.mean) * self.factor).clamp(-LIMIT, LIMIT) as f32
    }
}

fn scaled(table: &Table, rows: &[usize], scales: &[Scale]) -> Dataset {
    let features = table.features;
    let mut values = Vec::with_capacity(rows.len() * features);
    for row in rows {
        let row = &table.values[row * features..][..features];
        values.extend(row.iter().zip(scales).map(|(value, scale)| scale.apply(*value)));
    }
    Dataset { features, values, labels: rows.iter().map(|row| table.labels[*row]).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feature 0 is the row, feature 1 a constant with a rounded mean, feature 2 its square.
    fn table(rows: usize) -> Table {
        let values = (0..rows).flat_map(|it| [it as f64, 0.1, (it * it) as f64]).collect();
        let labels = (0..rows).map(|it| (it % 2) as u32).collect();
        Table { features: 3, values, labels, classes: vec!["a".to_owned(), "b".to_owned()] }
    }

    fn column(data: &Dataset, feature: usize) -> impl Iterator<Item = f64> {
        data.values.iter().skip(feature).step_by(data.features).map(|it| f64::from(*it))
    }

    #[test]
    fn a_fifth_is_held_out_and_no_row_is_lost_or_doubled() {
        for (rows, held_out) in [(2, 1), (3, 1), (7, 1), (8, 2), (10, 2), (100, 20), (1797, 359)] {
            let prepared = Prepared::new(&table(rows), 1);
            assert_eq!(prepared.held_out.len(), held_out, "of {rows}");
            // Feature 0 keeps the order of the rows, whatever its scale.
            let mut all: Vec<f64> =
                column(&prepared.training, 0).chain(column(&prepared.held_out, 0)).collect();
            all.sort_by(f64::total_cmp);
            all.dedup();
            assert!(all.len() == rows || rows < 8, "{} of {rows}", all.len());
            assert_eq!(prepared.training.len() + held_out, rows);
        }
    }

    #[test]
    fn the_split_depends_on_the_seed_and_on_nothing_else() {
        let split = |seed| Prepared::new(&table(100), seed).held_out.values;
        assert_eq!(split(7), split(7));
        assert_ne!(split(7), split(8));
    }

    #[test]
    fn training_rows_have_mean_0_and_variance_1() {
        let training = Prepared::new(&table(100), 3).training;
        for feature in [0, 2] {
            let mean = column(&training, feature).sum::<f64>() / 80.0;
            let variance = column(&training, feature).map(|it| it * it).sum::<f64>() / 80.0;
            assert!(mean.abs() < 1e-6 && (variance - 1.0).abs() < 1e-6, "{mean} {variance}");
        }
    }

    #[test]
    fn held_out_rows_are_scaled_by_the_training_rows() {
        let held_out = Prepared::new(&table(100), 3).held_out;
        let mean = column(&held_out, 0).sum::<f64>() / 20.0;
        assert!(mean.abs() > 1e-3, "their own mean would be 0, and is {mean}");
    }

    #[test]
    fn a_constant_becomes_0() {
        let prepared = Prepared::new(&table(100), 3);
        assert!(column(&prepared.training, 1).all(|it| it == 0.0));
        assert!(column(&prepared.held_out, 1).all(|it| it == 0.0));
    }

    #[test]
    fn an_outlier_counts_as_ten_standard_deviations() {
        let mut table = table(1000);
        table.values[3 * 500] = 1e38;
        let prepared = Prepared::new(&table, 3);
        let all = [&prepared.training, &prepared.held_out];
        let most = all.iter().flat_map(|it| column(it, 0)).fold(0.0, f64::max);
        assert_eq!(most, 10.0);
    }

    #[test]
    fn numbers_at_the_ends_of_the_range_stay_finite() {
        for value in [3.4e38, 1e-300] {
            let mut table = table(10);
            for (row, it) in table.values.iter_mut().enumerate() {
                *it = if row % 2 == 0 { value } else { -value };
            }
            let prepared = Prepared::new(&table, 1);
            assert!(prepared.training.values.iter().all(|it| it.is_finite()));
        }
    }
}
