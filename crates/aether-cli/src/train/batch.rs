//! Batches: rows of the table, turned so that the sample is the last dimension.

use crate::table::Dataset;

/// Up to a fixed number of samples: feature `f` of sample `s` is `values[f * stride + s]`.
#[derive(Debug)]
pub(crate) struct Batch {
    values: Vec<f32>,
    stride: usize,
    labels: Vec<u32>,
}

impl Batch {
    /// Room for `most` samples.
    pub(crate) fn new(features: usize, most: usize) -> Self {
        Self { values: vec![0.0; features * most], stride: most, labels: Vec::with_capacity(most) }
    }

    /// Takes these rows in place of what it held; at most as many as there is room for.
    pub(crate) fn fill(&mut self, data: &Dataset, rows: &[usize]) {
        self.labels.clear();
        for (sample, row) in rows.iter().enumerate() {
            let values = &data.values[row * data.features..][..data.features];
            for (feature, value) in values.iter().enumerate() {
                self.values[feature * self.stride + sample] = *value;
            }
            self.labels.push(data.labels[*row]);
        }
    }

    /// All features; beyond the samples of each lies what earlier samples left.
    pub(crate) fn values(&self) -> &[f32] {
        &self.values
    }

    /// The distance of two features of a sample, in elements.
    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    /// The class of every sample, which also says how many samples there are.
    pub(crate) fn labels(&self) -> &[u32] {
        &self.labels
    }
}
