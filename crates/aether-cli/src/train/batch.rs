//! Batches: rows of the table, turned so that the sample is the last dimension.

use aether::View;

use crate::failure::Result;
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

    /// Features by samples; the strides leave out what earlier, larger batches left.
    pub(crate) fn values(&self) -> Result<View<'_, f32, 2>> {
        let features = self.values.len().checked_div(self.stride).unwrap_or(0);
        Ok(View::strided(&self.values, [features, self.labels.len()], [self.stride, 1])?)
    }

    /// The class of every sample, which also says how many samples there are.
    pub(crate) fn labels(&self) -> &[u32] {
        &self.labels
    }
}

/// The samples of every feature in a view of a batch, or of a block of it.
pub(crate) fn features<'a>(values: &View<'a, f32, 2>) -> Result<Vec<&'a [f32]>> {
    let [features, _] = values.shape();
    Ok((0..features).map(|it| values.lane([it, 0])).collect::<aether::Result<_>>()?)
}
