//! A perceptron of one hidden layer, its gradient, and what it gets right.

use fastrand::Rng;

use super::lanes::{add_scaled, dot, sum};

/// Units of the hidden layer.
const HIDDEN: usize = 64;

/// The shape of the network: features, then 64 rectified units, then one output a class.
///
/// All parameters are one slice, so that they fit one chunk on a device, and one all_reduce sums
/// all gradients: the weights of the hidden layer (a row of features for every unit), its biases,
/// the weights of the outputs (a row of units for every class), their biases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Perceptron {
    pub(crate) features: usize,
    pub(crate) classes: usize,
}

/// Samples as a block of a partitioned batch holds them: the sample is the last dimension, so
/// feature `f` of sample `s` is `features[f][s]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Samples<'a> {
    pub(crate) features: &'a [&'a [f32]],
    /// The class of every sample: there are as many samples as labels.
    pub(crate) labels: &'a [u32],
}

/// Memory for the layers of a block, kept from one call to the next.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    hidden: Vec<f32>,
    hidden_errors: Vec<f32>,
    outputs: Vec<f32>,
}

struct Layers<'a> {
    hidden_weights: &'a [f32],
    hidden_biases: &'a [f32],
    output_weights: &'a [f32],
    output_biases: &'a [f32],
}

impl Perceptron {
    /// How many parameters there are.
    pub(crate) fn parameters(&self) -> usize {
        HIDDEN * (self.features + 1) + self.classes * (HIDDEN + 1)
    }

    /// The parameters to start from: uniform with the variance that keeps the scale of the signal
    /// through rectified units (two over the number of inputs); biases are 0.
    pub(crate) fn initial(&self, rng: &mut Rng) -> Vec<f32> {
        let mut parameters = Vec::with_capacity(self.parameters());
        for (inputs, outputs) in [(self.features, HIDDEN), (HIDDEN, self.classes)] {
            let limit = (6.0 / inputs as f32).sqrt();
            parameters.extend((0..inputs * outputs).map(|_| limit * (2.0 * rng.f32() - 1.0)));
            parameters.extend((0..outputs).map(|_| 0.0));
        }
        parameters
    }

    /// Writes the gradient of the loss, summed over the samples and times `scale`, and returns the
    /// loss, summed and not scaled. No samples give a gradient of 0.
    ///
    /// With a scale of one over the size of the whole batch, the sum over all ranks is the gradient
    /// of the mean loss, however uneven their blocks are.
    pub(crate) fn gradient(
        &self,
        parameters: &[f32],
        samples: Samples<'_>,
        scale: f32,
        scratch: &mut Scratch,
        gradient: &mut [f32],
    ) -> f64 {
        let count = samples.labels.len();
        if count == 0 {
            gradient.fill(0.0);
            return 0.0;
        }
        let layers = self.layers(parameters);
        self.forward(&layers, samples, scratch);
        let loss = self.softmax(samples.labels, scale, &mut scratch.outputs);

        // Now `outputs` holds the scaled derivative of the loss by each output.
        let (hidden_gradient, output_gradient) =
            gradient.split_at_mut(HIDDEN * (self.features + 1));
        let (weights, biases) = output_gradient.split_at_mut(self.classes * HIDDEN);
        let errors = scratch.outputs.chunks_exact(count);
        for ((errors, weights), bias) in
            errors.zip(weights.chunks_exact_mut(HIDDEN)).zip(biases.iter_mut())
        {
            *bias = sum(errors);
            for (weight, hidden) in weights.iter_mut().zip(scratch.hidden.chunks_exact(count)) {
                *weight = dot(errors, hidden);
            }
        }

        scratch.hidden_errors.clear();
        scratch.hidden_errors.resize(HIDDEN * count, 0.0);
        let (weights, biases) = hidden_gradient.split_at_mut(HIDDEN * self.features);
        for (unit, bias) in biases.iter_mut().enumerate() {
            let errors = &mut scratch.hidden_errors[unit * count..][..count];
            for (class, outputs) in scratch.outputs.chunks_exact(count).enumerate() {
                add_scaled(errors, layers.output_weights[class * HIDDEN + unit], outputs);
            }
            for (error, hidden) in errors.iter_mut().zip(&scratch.hidden[unit * count..]) {
                *error = if *hidden > 0.0 { *error } else { 0.0 };
            }
            *bias = sum(errors);
            let weights = &mut weights[unit * self.features..][..self.features];
            for (weight, values) in weights.iter_mut().zip(samples.features) {
                *weight = dot(errors, values);
            }
        }
        loss
    }

    /// How many samples are of the class whose output is largest.
    pub(crate) fn correct(
        &self,
        parameters: &[f32],
        samples: Samples<'_>,
        scratch: &mut Scratch,
    ) -> usize {
        let count = samples.labels.len();
        self.forward(&self.layers(parameters), samples, scratch);
        let largest = |sample: usize| {
            let output = |class: usize| scratch.outputs[class * count + sample];
            (0..self.classes).max_by(|&a, &b| output(a).total_cmp(&output(b)))
        };
        let right = |(sample, label): &(usize, &u32)| largest(*sample) == Some(**label as usize);
        samples.labels.iter().enumerate().filter(right).count()
    }

    fn layers<'a>(&self, parameters: &'a [f32]) -> Layers<'a> {
        let (hidden_weights, rest) = parameters.split_at(HIDDEN * self.features);
        let (hidden_biases, rest) = rest.split_at(HIDDEN);
        let (output_weights, output_biases) = rest.split_at(self.classes * HIDDEN);
        Layers { hidden_weights, hidden_biases, output_weights, output_biases }
    }

    fn forward(&self, layers: &Layers<'_>, samples: Samples<'_>, scratch: &mut Scratch) {
        let count = samples.labels.len();
        scratch.hidden.clear();
        for (unit, bias) in layers.hidden_biases.iter().enumerate() {
            let start = scratch.hidden.len();
            scratch.hidden.resize(start + count, *bias);
            let hidden = &mut scratch.hidden[start..];
            let weights = &layers.hidden_weights[unit * self.features..][..self.features];
            for (weight, values) in weights.iter().zip(samples.features) {
                add_scaled(hidden, *weight, values);
            }
            for it in hidden {
                *it = it.max(0.0);
            }
        }
        scratch.outputs.clear();
        for (weights, bias) in layers.output_weights.chunks_exact(HIDDEN).zip(layers.output_biases)
        {
            let start = scratch.outputs.len();
            scratch.outputs.resize(start + count, *bias);
            for (unit, weight) in weights.iter().enumerate() {
                let hidden = &scratch.hidden[unit * count..][..count];
                add_scaled(&mut scratch.outputs[start..], *weight, hidden);
            }
        }
    }

    /// Turns outputs into the scaled derivatives of the loss, and returns the loss.
    fn softmax(&self, labels: &[u32], scale: f32, outputs: &mut [f32]) -> f64 {
        let count = labels.len();
        let mut loss = 0.0;
        for (sample, label) in labels.iter().enumerate() {
            let places = || (0..self.classes).map(|class| class * count + sample);
            let largest = places().map(|it| outputs[it]).fold(f32::NEG_INFINITY, f32::max);
            let mut total = 0.0;
            let label = *label as usize * count + sample;
            let wanted = outputs[label] - largest;
            for place in places() {
                // No exponent is above 0, and one is 0: nothing overflows, nothing divides by 0.
                let it = (outputs[place] - largest).exp();
                outputs[place] = it;
                total += it;
            }
            loss += f64::from(total.ln() - wanted);
            for place in places() {
                outputs[place] *= scale / total;
            }
            outputs[label] -= scale;
        }
        loss
    }
}

#[cfg(test)]
#[path = "perceptron_tests.rs"]
mod tests;
