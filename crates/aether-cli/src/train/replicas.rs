//! The devices: weights replicated over them, batches partitioned over them, gradients summed
//! between them.

use std::sync::{Mutex, PoisonError};

use aether::{
    Chunk, Device, GroupSet, Host, PartitionSpec, ReduceOp, ReplicaSet, View, partition_view,
};

use super::batch::{Batch, features};
use crate::failure::{Failure, Result};
use crate::group::own_group;
use crate::model::{Perceptron, Samples, Scratch, momentum_step};

/// One set of weights on every device: everything that training asks of the devices.
pub(crate) trait Replicas {
    /// The names of the devices, by replica.
    fn devices(&self) -> Vec<String>;

    /// Whether this process tells how it goes: of several, one does.
    fn tells(&self) -> bool {
        true
    }

    /// Splits the batch over the devices, sums their gradients, takes one step on every replica,
    /// and returns the loss, summed over the samples.
    fn train(&mut self, batch: &Batch, rate: f32) -> Result<f64>;

    /// The weights, as the first device has them.
    fn weights(&self) -> Result<Vec<f32>>;

    /// The replicas that are not the same bits as the others; none is what should be.
    fn differing(&mut self) -> Result<Vec<usize>>;
}

/// Replicas on devices that the host can address.
pub(crate) struct OnDevices {
    model: Perceptron,
    group: GroupSet<Host>,
    pub(super) weights: ReplicaSet,
    ranks: Vec<Rank>,
    /// How many threads compute gradients: no more than there are processors.
    threads: usize,
}

/// What a rank has beside its replica.
pub(super) struct Rank {
    pub(super) gradient: Chunk,
    pub(super) velocities: Chunk,
    scratch: Scratch,
    pub(super) loss: f64,
}

impl Rank {
    pub(super) fn new(device: &Device, bytes: usize) -> Result<Self> {
        let gradient = Chunk::allocate(device, bytes)?;
        let velocities = Chunk::allocate(device, bytes)?;
        Ok(Self { gradient, velocities, scratch: Scratch::default(), loss: 0.0 })
    }
}

impl OnDevices {
    /// Joins the devices as one group and puts the initial weights on each of them.
    pub(crate) fn start(devices: &[Device], model: Perceptron, initial: &[f32]) -> Result<Self> {
        let group = GroupSet::join_with(devices, &own_group("train"))?;
        // The group sorts its devices; replica r belongs to rank r.
        let devices = group.devices();
        let bytes = size_of_val(initial);
        let mut weights = ReplicaSet::new(devices, bytes)?;
        weights.broadcast(initial)?;
        let rank = |device| Rank::new(device, bytes);
        let ranks = devices.iter().map(rank).collect::<Result<Vec<_>>>()?;
        let processors = std::thread::available_parallelism().map_or(1, |it| it.get());
        let threads = processors.min(ranks.len());
        Ok(Self { model, group, weights, ranks, threads })
    }

    /// Has every rank compute the gradient of its block, and returns the loss of all blocks.
    fn gradients(&mut self, batch: &Batch) -> Result<f64> {
        let share = Share::new(self.model, batch, self.ranks.len())?;
        // Some blocks are shorter than others, so a thread takes the next rank when it is free.
        let queue = Mutex::new(self.ranks.iter_mut().zip(self.weights.chunks()).enumerate());
        let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = || -> Result<()> {
            while let Some((index, (rank, weights))) = next() {
                share.gradient(index, rank, weights)?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            // Where the system has no thread to spare, the others do the work.
            let spawn = |_| std::thread::Builder::new().spawn_scoped(scope, work).ok();
            let others: Vec<_> = (1..self.threads).filter_map(spawn).collect();
            let panicked = |_| Err(Failure::new("train: the thread of a rank panicked"));
            let joined = others.into_iter().map(|it| it.join().unwrap_or_else(panicked));
            // All of them are waited for, whatever came of one.
            std::iter::once_with(work).chain(joined).fold(Ok(()), Result::and)
        })?;
        Ok(self.ranks.iter().map(|it| it.loss).sum())
    }
}

impl Replicas for OnDevices {
    fn devices(&self) -> Vec<String> {
        self.group.devices().iter().map(Device::to_string).collect()
    }

    fn train(&mut self, batch: &Batch, rate: f32) -> Result<f64> {
        let loss = self.gradients(batch)?;
        let count = self.model.parameters();
        let mut gradients = Vec::with_capacity(self.ranks.len());
        for rank in &mut self.ranks {
            gradients.push(rank.gradient.view_mut::<f32, 1>([count])?);
        }
        self.group.all_reduce_in_place(&mut gradients, ReduceOp::Sum)?;
        for (rank, weights) in self.ranks.iter_mut().zip(self.weights.chunks_mut()) {
            let velocities = rank.velocities.slice_mut()?;
            momentum_step(weights.slice_mut()?, velocities, rank.gradient.slice()?, rate);
        }
        Ok(loss)
    }

    fn weights(&self) -> Result<Vec<f32>> {
        Ok(self.weights.chunk(0)?.to_vec()?)
    }

    fn differing(&mut self) -> Result<Vec<usize>> {
        Ok(self.weights.verify()?)
    }
}

/// What all ranks see of a batch.
pub(super) struct Share<'a> {
    model: Perceptron,
    values: View<'a, f32, 2>,
    labels: View<'a, u32, 1>,
    spec: PartitionSpec,
}

impl<'a> Share<'a> {
    pub(super) fn new(model: Perceptron, batch: &'a Batch, ranks: usize) -> Result<Self> {
        Ok(Self {
            model,
            values: batch.values()?,
            labels: View::new(batch.labels(), [batch.labels().len()])?,
            spec: PartitionSpec::new(ranks),
        })
    }

    /// Computes what block `index` adds to the gradient of the mean loss over the whole batch: the
    /// block's sum over the size of the batch, so that short and empty blocks weigh right.
    pub(super) fn gradient(&self, index: usize, rank: &mut Rank, weights: &Chunk) -> Result<()> {
        let scale = 1.0 / self.labels.len() as f32;
        let values = features(&partition_view(&self.values, self.spec, index)?)?;
        let labels = partition_view(&self.labels, self.spec, index)?.as_slice()?;
        let samples = Samples { features: &values, labels };
        let gradient = rank.gradient.slice_mut()?;
        let weights = weights.slice()?;
        rank.loss = self.model.gradient(weights, samples, scale, &mut rank.scratch, gradient);
        Ok(())
    }
}
