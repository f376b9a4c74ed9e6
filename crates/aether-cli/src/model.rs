//! The network that is trained, over plain slices: what runs on one rank.

mod lanes;
mod momentum;
mod perceptron;

pub(crate) use momentum::{Schedule, momentum_step};
pub(crate) use perceptron::{Perceptron, Samples, Scratch};
