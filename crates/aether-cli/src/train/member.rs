//! One replica, of a process that is one rank of several: each computes the gradient of its own block of
//! every batch.

use aether::{Chunk, Device, Group, GroupConfig, Host, ReduceOp, Rendezvous, View, ViewMut};

use super::batch::Batch;
use super::replicas::{Rank, Replicas, Share};
use crate::failure::Result;
use crate::model::{Perceptron, momentum_step};

/// The replica of this process.
pub(crate) struct Member {
    model: Perceptron,
    group: Group<Host>,
    weights: Chunk,
    rank: Rank,
}

impl Member {
    /// Joins the others, and puts the initial weights on the device of this rank: the one of its number.
    /// Every process draws the same ones.
    pub(crate) fn join(at: &dyn Rendezvous, model: Perceptron, initial: &[f32]) -> Result<Self> {
        let device = Device::cpu(u32::try_from(at.rank()).unwrap_or(u32::MAX));
        let group = Group::join_at(at, &device, &GroupConfig::default())?;
        let weights = Chunk::from_vec(&device, initial.to_vec())?;
        Ok(Self { model, group, weights, rank: Rank::new(&device, size_of_val(initial))? })
    }

    /// Everybody's value, by rank.
    fn gathered<T: aether::Element>(&mut self, own: &[T], blank: T) -> Result<Vec<T>> {
        let mut all = vec![blank; own.len() * self.group.ranks()];
        let count = all.len();
        let own = View::new(own, [own.len()])?;
        self.group.all_gather(&own, &mut ViewMut::new(&mut all, [count])?)?;
        Ok(all)
    }
}

impl Replicas for Member {
    fn devices(&self) -> Vec<String> {
        self.group.id().devices().iter().map(ToString::to_string).collect()
    }

    fn tells(&self) -> bool {
        self.group.rank() == 0
    }

    fn train(&mut self, batch: &Batch, rate: f32) -> Result<f64> {
        let share = Share::new(self.model, batch, self.group.ranks())?;
        share.gradient(self.group.rank(), &mut self.rank, &self.weights)?;
        let count = self.model.parameters();
        let mut gradient = self.rank.gradient.view_mut::<f32, 1>([count])?;
        self.group.all_reduce_in_place(&mut gradient, ReduceOp::Sum)?;
        let gradient = self.rank.gradient.slice()?;
        let velocities = self.rank.velocities.slice_mut()?;
        momentum_step(self.weights.slice_mut()?, velocities, gradient, rate);
        // Added up in the order of the ranks, as everywhere, so that the sum has the same bits.
        Ok(self.gathered(&[self.rank.loss], 0.0)?.iter().sum())
    }

    fn weights(&self) -> Result<Vec<f32>> {
        Ok(self.weights.to_vec()?)
    }

    fn differing(&mut self) -> Result<Vec<usize>> {
        let bits: Vec<u32> = self.weights()?.into_iter().map(f32::to_bits).collect();
        let all = self.gathered(&bits, 0)?;
        Ok(outside_of_the_majority(&all, bits.len()))
    }
}

/// Those that are not as more than half of all are; all of them where there is no such half.
fn outside_of_the_majority(all: &[u32], each: usize) -> Vec<usize> {
    let replicas: Vec<&[u32]> = all.chunks_exact(each.max(1)).collect();
    let like = |one: &[u32]| replicas.iter().filter(|it| **it == one).count();
    let most = replicas.iter().find(|it| 2 * like(it) > replicas.len());
    let differs = |it: &usize| most.is_none_or(|most| replicas[*it] != *most);
    (0..replicas.len()).filter(differs).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by a panic")]
mod tests {
    use aether::InProcess;
    use fastrand::Rng;

    use super::super::replicas::OnDevices;
    use super::*;
    use crate::table::{Prepared, Table};
    use crate::train::{DIGITS, DIGITS_NAME, Plan, fit};

    #[test]
    fn members_that_each_have_one_replica_get_the_bits_of_one_caller_that_has_all() {
        let table = Table::parse(DIGITS_NAME, DIGITS.as_bytes(), None).unwrap();
        let model = Perceptron { features: table.features, classes: table.classes.len() };
        let data = Prepared::new(&table, 5);
        let mut rng = Rng::with_seed(5);
        let initial = model.initial(&mut rng);
        // The last batch is short, so that a block is empty.
        let plan = Plan { epochs: 1, batch: 90 };
        let mut all = OnDevices::start(&Device::cpus(3), model, &initial).unwrap();
        let expected = fit(&mut all, &data.training, plan, &mut rng.clone()).unwrap();
        let weights = all.weights().unwrap();
        std::thread::scope(|scope| {
            for at in InProcess::new(3) {
                let (data, weights, expected) = (&data, &weights, &expected);
                let (initial, mut rng) = (&initial, rng.clone());
                scope.spawn(move || {
                    let mut member = Member::join(&at, model, initial).unwrap();
                    assert_eq!(member.devices(), ["cpu:0", "cpu:1", "cpu:2"]);
                    assert_eq!(member.tells(), at.rank() == 0);
                    let trained = fit(&mut member, &data.training, plan, &mut rng).unwrap();
                    assert_eq!(trained.loss.to_bits(), expected.loss.to_bits());
                    assert_eq!(&member.weights().unwrap(), weights);
                    assert_eq!(member.differing().unwrap(), [0; 0]);
                    if at.rank() == 1 {
                        member.weights.slice_mut::<u8>().unwrap()[33] ^= 1;
                    }
                    assert_eq!(member.differing().unwrap(), [1]);
                });
            }
        });
    }

    #[test]
    fn without_a_majority_all_replicas_differ() {
        let outside = |all: &[u32]| outside_of_the_majority(all, 2);
        assert_eq!(outside(&[1, 2, 1, 2, 1, 2]), [0; 0]);
        assert_eq!(outside(&[1, 2, 1, 3, 1, 2]), [1]);
        assert_eq!(outside(&[1, 2, 1, 3]), [0, 1]);
        assert_eq!(outside(&[1, 2, 3, 4, 5, 6]), [0, 1, 2]);
    }
}
