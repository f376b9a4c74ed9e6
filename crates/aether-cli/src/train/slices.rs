//! Replicas in plain memory, one rank after the other: the arithmetic without the devices, which
//! tests compare the devices with.

use super::batch::{Batch, features};
use super::replicas::Replicas;
use crate::failure::Result;
use crate::model::{Perceptron, Samples, Scratch, momentum_step};

/// The granularity of a block, in samples.
const PAD_TO: usize = 32;

/// Replicas that a loop over ranks keeps in step.
pub(crate) struct SliceReplicas {
    model: Perceptron,
    ranks: Vec<Rank>,
    scratch: Scratch,
    sum: Vec<f32>,
}

struct Rank {
    weights: Vec<f32>,
    velocities: Vec<f32>,
    gradient: Vec<f32>,
}

impl SliceReplicas {
    pub(crate) fn new(ranks: usize, model: Perceptron, initial: &[f32]) -> Self {
        let rank = || Rank {
            weights: initial.to_vec(),
            velocities: vec![0.0; initial.len()],
            gradient: vec![0.0; initial.len()],
        };
        Self {
            model,
            ranks: std::iter::repeat_with(rank).take(ranks).collect(),
            scratch: Scratch::default(),
            sum: vec![0.0; initial.len()],
        }
    }
}

impl Replicas for SliceReplicas {
    fn devices(&self) -> Vec<String> {
        (0..self.ranks.len()).map(|it| format!("cpu:{it}")).collect()
    }

    fn train(&mut self, batch: &Batch, rate: f32) -> Result<f64> {
        let count = batch.labels().len();
        let scale = 1.0 / count as f32;
        let pitch = count.div_ceil(self.ranks.len()).next_multiple_of(PAD_TO);
        let mut loss = 0.0;
        self.sum.fill(0.0);
        for (index, rank) in self.ranks.iter_mut().enumerate() {
            let start = (index * pitch).min(count);
            let end = (start + pitch).min(count);
            let whole = features(&batch.values()?)?;
            let block: Vec<&[f32]> = whole.iter().map(|it| &it[start..end]).collect();
            let samples = Samples { features: &block, labels: &batch.labels()[start..end] };
            let scratch = &mut self.scratch;
            loss += self.model.gradient(&rank.weights, samples, scale, scratch, &mut rank.gradient);
            for (sum, it) in self.sum.iter_mut().zip(&rank.gradient) {
                *sum += it;
            }
        }
        for rank in &mut self.ranks {
            momentum_step(&mut rank.weights, &mut rank.velocities, &self.sum, rate);
        }
        Ok(loss)
    }

    fn weights(&self) -> Result<Vec<f32>> {
        Ok(self.ranks.first().map(|it| it.weights.clone()).unwrap_or_default())
    }

    fn differing(&mut self) -> Result<Vec<usize>> {
        let bits = |rank: &Rank| rank.weights.iter().map(|it| it.to_bits()).collect::<Vec<_>>();
        let first = self.ranks.first().map(bits);
        let differs = |it: &usize| Some(bits(&self.ranks[*it])) != first;
        Ok((0..self.ranks.len()).filter(differs).collect())
    }
}
