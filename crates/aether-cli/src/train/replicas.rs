//! What training asks of the devices: everything that it doesn't do itself.

use super::batch::Batch;
use super::slices::SliceReplicas;
use crate::cli::{DeviceChoice, DeviceKind};
use crate::failure::{Failure, Result};
use crate::model::Perceptron;

/// One set of weights on every device.
pub(crate) trait Replicas {
    /// The names of the devices, by replica.
    fn devices(&self) -> Vec<String>;

    /// Splits the batch over the devices, sums their gradients, takes one step on every replica,
    /// and returns the loss, summed over the samples.
    fn train(&mut self, batch: &Batch, rate: f32) -> Result<f64>;

    /// The weights, as the first device has them.
    fn weights(&self) -> Result<Vec<f32>>;

    /// The replicas that are not the same bits as the others; none is what should be.
    fn differing(&self) -> Result<Vec<usize>>;
}

/// Puts the initial weights on all devices of the choice.
pub(crate) fn start(
    choice: DeviceChoice,
    model: Perceptron,
    initial: &[f32],
) -> Result<Box<dyn Replicas>> {
    match choice.kind {
        DeviceKind::Cpu => {
            let all = || std::thread::available_parallelism().map_or(1, |it| it.get());
            let count = choice.count.map_or_else(all, |it| it.get());
            Ok(Box::new(SliceReplicas::new(count, model, initial)))
        }
        DeviceKind::Cuda => {
            Err(Failure::new(format!("train on {choice}: this build has no CUDA backend")))
        }
    }
}
