use super::*;

const MODEL: Perceptron = Perceptron { features: 3, classes: 4 };

/// Values that depend on feature and sample, at a stride that is larger than the count; what lies
/// between is NaN, which nobody may read.
fn values(count: usize, stride: usize) -> Vec<f32> {
    let mut values = vec![f32::NAN; MODEL.features * stride];
    for feature in 0..MODEL.features {
        for sample in 0..count {
            values[feature * stride + sample] =
                ((feature * 7 + sample * 3) % 11) as f32 / 5.0 - 1.0;
        }
    }
    values
}

/// Samples `start` to `end` of every feature.
fn block(values: &[f32], stride: usize, start: usize, end: usize) -> Vec<&[f32]> {
    (0..MODEL.features).map(|it| &values[it * stride..][start..end]).collect()
}

fn labels(count: usize) -> Vec<u32> {
    (0..count).map(|it| (it * 3 % 4) as u32).collect()
}

fn gradient(parameters: &[f32], samples: Samples<'_>, scale: f32) -> (f64, Vec<f32>) {
    let mut out = vec![f32::NAN; MODEL.parameters()];
    let loss = MODEL.gradient(parameters, samples, scale, &mut Scratch::default(), &mut out);
    (loss, out)
}

/// The loss in f64, straight from the definition.
fn loss(parameters: &[f64], samples: Samples<'_>) -> f64 {
    let Perceptron { features, classes } = MODEL;
    let output_weights = HIDDEN * (features + 1);
    let mut sum = 0.0;
    for (sample, label) in samples.labels.iter().enumerate() {
        let value = |feature: usize| f64::from(samples.features[feature][sample]);
        let hidden = |unit: usize| {
            let weights = &parameters[unit * features..];
            let bias = parameters[HIDDEN * features + unit];
            (0..features).map(|it| weights[it] * value(it)).sum::<f64>() + bias
        };
        let output = |class: usize| {
            let weights = &parameters[output_weights + class * HIDDEN..];
            let bias = parameters[output_weights + classes * HIDDEN + class];
            (0..HIDDEN).map(|it| weights[it] * hidden(it).max(0.0)).sum::<f64>() + bias
        };
        let total: f64 = (0..classes).map(|it| output(it).exp()).sum();
        sum += total.ln() - output(*label as usize);
    }
    sum
}

#[test]
fn the_gradient_is_that_of_finite_differences() {
    let (values, labels) = (values(20, 32), labels(20));
    let samples = Samples { features: &block(&values, 32, 0, 20), labels: &labels };
    let parameters = MODEL.initial(&mut Rng::with_seed(5));
    let (sum, gradient) = gradient(&parameters, samples, 0.5);
    let exact: Vec<f64> = parameters.iter().map(|it| f64::from(*it)).collect();
    assert!((sum - loss(&exact, samples)).abs() < 1e-4);
    for (at, gradient) in gradient.iter().enumerate() {
        let step = 1e-6;
        let shifted = |by: f64| {
            let mut shifted = exact.clone();
            shifted[at] += by;
            loss(&shifted, samples)
        };
        let expected = 0.5 * (shifted(step) - shifted(-step)) / (2.0 * step);
        assert!((f64::from(*gradient) - expected).abs() < 1e-5, "{at}: {gradient} {expected}");
    }
}

#[test]
fn uneven_blocks_sum_to_the_gradient_of_the_batch() {
    let (values, labels) = (values(20, 20), labels(20));
    let parameters = MODEL.initial(&mut Rng::with_seed(6));
    let of_block = |start: usize, end: usize| {
        let features = &block(&values, 20, start, end);
        gradient(&parameters, Samples { features, labels: &labels[start..end] }, 0.05)
    };
    let (whole_loss, whole) = of_block(0, 20);
    let mut sum = vec![0.0; MODEL.parameters()];
    let mut sum_loss = 0.0;
    for (start, end) in [(0, 13), (13, 19), (19, 20), (20, 20)] {
        let (loss, part) = of_block(start, end);
        sum_loss += loss;
        sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
    }
    assert!((whole_loss - sum_loss).abs() < 1e-5);
    assert!(whole.iter().zip(&sum).all(|(a, b)| (a - b).abs() < 1e-6));
    assert!(whole.iter().any(|it| it.abs() > 1e-2));
}

#[test]
fn no_samples_have_a_gradient_of_0_and_no_loss() {
    let parameters = MODEL.initial(&mut Rng::with_seed(7));
    let samples = Samples { features: &block(&[], 0, 0, 0), labels: &[] };
    let (loss, gradient) = gradient(&parameters, samples, 1.0);
    assert_eq!(loss, 0.0);
    assert!(gradient.iter().all(|it| it.to_bits() == 0));
}

#[test]
fn outputs_of_any_size_give_a_finite_loss() {
    let (values, labels) = (values(20, 20), labels(20));
    let samples = Samples { features: &block(&values, 20, 0, 20), labels: &labels };
    let mut parameters = MODEL.initial(&mut Rng::with_seed(8));
    parameters.iter_mut().for_each(|it| *it *= 1e3);
    let (loss, gradient) = gradient(&parameters, samples, 0.05);
    assert!(loss.is_finite() && loss > 1e3);
    assert!(gradient.iter().all(|it| it.is_finite()));
}

#[test]
fn correct_counts_the_samples_whose_class_has_the_largest_output() {
    // All weights are 0, so the bias decides: class 2, which labels are in a known number.
    let mut parameters = vec![0.0; MODEL.parameters()];
    let last = parameters.len();
    parameters[last - 2] = 1.0;
    let (values, labels) = (values(21, 32), labels(21));
    let samples = Samples { features: &block(&values, 32, 0, 21), labels: &labels };
    let expected = labels.iter().filter(|it| **it == 2).count();
    assert_eq!(MODEL.correct(&parameters, samples, &mut Scratch::default()), expected);
    assert!(expected > 0 && expected < 21);
}
