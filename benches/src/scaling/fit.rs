//! Least squares on the relative error, as the logarithm of predicted over measured, with weights that are never
//! negative.
//!
//! Half and double are equally wrong. In terms of what was measured, no prediction could be more than 100 % too
//! low, and laws would come out too low.

use crate::statistics::median;

/// What was fitted: a time is the sum of terms, each a weight times what is known of the case.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit<const N: usize> {
    /// The weights, of which none is negative.
    pub weights: [f64; N],
    /// The error of each case in terms of what was measured: 0.1 is a prediction 10 % too high.
    pub errors: Vec<f64>,
}

impl<const N: usize> Fit<N> {
    /// What the law says of a case.
    pub fn predict(&self, terms: &[f64; N]) -> f64 {
        predict(&self.weights, terms)
    }

    /// The size of the error that half of the cases stay within.
    pub fn typical(&self) -> f64 {
        let sizes: Vec<f64> = self.errors.iter().map(|it| it.abs()).collect();
        median(&sizes).unwrap_or(0.0)
    }

    /// The size of the largest error.
    pub fn worst(&self) -> f64 {
        self.errors.iter().fold(0.0, |worst, it| it.abs().max(worst))
    }
}

/// The weights that make the sum of the squares of `ln(predicted / measured)` least, so that a time of 1 µs counts
/// as much as one of 1 s. Cases are terms and the time measured. Absent if there are fewer cases than weights.
///
/// It is found by steps of plain least squares: in each, the difference of a case counts in terms of a scale that
/// the predictions of the step before give, and that makes both sums least at the same weights once they come to
/// rest. A weight that would be negative is none: every choice of terms is solved, at most 2^N, and the best
/// without a negative weight is taken.
pub fn fit<const N: usize>(cases: &[([f64; N], f64)]) -> Option<Fit<N>> {
    if cases.len() < N || cases.iter().any(|(_, measured)| *measured <= 0.0) {
        return None;
    }
    let mut scales: Vec<f64> = cases.iter().map(|(_, measured)| *measured).collect();
    let mut weights = step(cases, &scales)?;
    for _ in 0..STEPS {
        for (scale, (terms, measured)) in scales.iter_mut().zip(cases) {
            // A law that says nothing of a case says at least a little.
            let predicted = predict(&weights, terms).max(measured * 1e-3);
            *scale = (predicted * logarithmic_mean(predicted, *measured)).sqrt();
        }
        weights = step(cases, &scales)?;
    }
    let errors = cases.iter().map(|(terms, measured)| predict(&weights, terms) / measured - 1.0);
    Some(Fit { weights, errors: errors.collect() })
}

/// `(a - b) / ln(a / b)`, which lies between the two.
fn logarithmic_mean(a: f64, b: f64) -> f64 {
    let ratio = a / b;
    // Where they are as good as equal, the quotient has no digits left.
    if (ratio - 1.0).abs() < 1e-6 { b } else { (a - b) / ratio.ln() }
}

/// More than are needed to come to rest.
const STEPS: usize = 50;

/// The best weights where the error of each case counts in terms of its scale.
fn step<const N: usize>(cases: &[([f64; N], f64)], scales: &[f64]) -> Option<[f64; N]> {
    let squares = |weights: &[f64; N]| -> f64 {
        let error = |((terms, measured), scale): (&([f64; N], f64), &f64)| {
            ((predict(weights, terms) - measured) / scale).powi(2)
        };
        cases.iter().zip(scales).map(error).sum()
    };
    let choices = (1..1usize << N).filter_map(|choice| solve(cases, scales, choice));
    let found = choices.filter(|weights| weights.iter().all(|it| *it >= 0.0));
    found.min_by(|a, b| squares(a).total_cmp(&squares(b)))
}

fn predict<const N: usize>(weights: &[f64; N], terms: &[f64; N]) -> f64 {
    weights.iter().zip(terms).map(|(weight, term)| weight * term).sum()
}

/// The weights of the terms whose bits are in `choice`, the others 0, by the normal equations. Absent if
/// these terms don't tell each other apart.
fn solve<const N: usize>(
    cases: &[([f64; N], f64)],
    scales: &[f64],
    choice: usize,
) -> Option<[f64; N]> {
    let chosen = |term: usize| choice >> term & 1 == 1;
    // Terms have very different sizes, so each is counted in units of its largest.
    let mut units = [0.0; N];
    for ((terms, _), scale) in cases.iter().zip(scales) {
        for (unit, term) in units.iter_mut().zip(terms) {
            *unit = (term / scale).abs().max(*unit);
        }
    }
    let mut rows = [[0.0; N]; N];
    let mut right = [0.0; N];
    for ((terms, measured), scale) in cases.iter().zip(scales) {
        let scaled = |term: usize| terms[term] / scale / units[term];
        for row in (0..N).filter(|it| chosen(*it)) {
            right[row] += scaled(row) * measured / scale;
            for column in (0..N).filter(|it| chosen(*it)) {
                rows[row][column] += scaled(row) * scaled(column);
            }
        }
    }
    for term in (0..N).filter(|it| !chosen(*it)) {
        rows[term][term] = 1.0;
    }
    let mut weights = eliminate(rows, right)?;
    for term in 0..N {
        weights[term] = if chosen(term) { weights[term] / units[term] } else { 0.0 };
    }
    Some(weights)
}

/// Solves `rows` times x is `right`, by Gauss with the largest pivot.
fn eliminate<const N: usize>(mut rows: [[f64; N]; N], mut right: [f64; N]) -> Option<[f64; N]> {
    for step in 0..N {
        let pivot =
            (step..N).max_by(|a, b| rows[*a][step].abs().total_cmp(&rows[*b][step].abs()))?;
        rows.swap(step, pivot);
        right.swap(step, pivot);
        if !rows[step][step].is_finite() || rows[step][step].abs() < 1e-12 {
            return None;
        }
        for row in step + 1..N {
            let factor = rows[row][step] / rows[step][step];
            let above = rows[step];
            rows[row].iter_mut().zip(above).for_each(|(it, above)| *it -= factor * above);
            right[row] -= factor * right[step];
        }
    }
    let mut out = [0.0; N];
    for row in (0..N).rev() {
        let known: f64 = (row + 1..N).map(|column| rows[row][column] * out[column]).sum();
        out[row] = (right[row] - known) / rows[row][row];
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_law_without_errors_is_found_whatever_the_size_of_its_terms() {
        let law = |bytes: f64| ([1.0, bytes], 0.5 + bytes / 8000.0);
        let fit = fit(&[16.0, 128.0, 8192.0, 1e6, 3e7].map(law)).unwrap();
        assert!((fit.weights[0] - 0.5).abs() < 1e-9, "{fit:?}");
        assert!((fit.weights[1] * 8000.0 - 1.0).abs() < 1e-9, "{fit:?}");
        assert!(fit.worst() < 1e-9 && fit.typical() < 1e-9);
        assert!((fit.predict(&[1.0, 4000.0]) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn half_and_double_are_equally_wrong_whatever_the_size() {
        // One weight for two cases, one of which is four times the other's.
        let fit = fit(&[([1.0], 1.0), ([1000.0], 4000.0)]).unwrap();
        assert!((fit.weights[0] - 2.0).abs() < 1e-9, "{fit:?}");
        assert!((fit.errors[0] - 1.0).abs() < 1e-9 && (fit.errors[1] + 0.5).abs() < 1e-9);
        assert!((fit.worst() - 1.0).abs() < 1e-9 && (fit.typical() - 0.75).abs() < 1e-9);
    }

    #[test]
    fn a_weight_that_would_be_negative_is_none() {
        // Through (1, 1) and (2, 4), a line would begin below nothing.
        let fit = fit(&[([1.0, 1.0], 1.0), ([1.0, 2.0], 4.0)]).unwrap();
        assert_eq!(fit.weights[0], 0.0);
        assert!(fit.weights[1] > 0.0);
    }

    #[test]
    fn terms_that_say_the_same_and_too_few_cases_are_no_trouble() {
        assert!(fit::<2>(&[([1.0, 1.0], 1.0)]).is_none());
        assert!(fit(&[([1.0, 1.0], 0.0), ([1.0, 2.0], 1.0)]).is_none());
        let same = fit(&[([1.0, 2.0], 3.0), ([2.0, 4.0], 6.0)]).unwrap();
        assert!(same.worst() < 1e-9, "{same:?}");
    }
}
