#![doc = include_str!("../README.md")]

mod blocks;
mod checksum;
mod operations;
mod partition;
mod partitioned_array;
mod pipeline;
mod replica;
mod replica_set;
mod route;
mod staging;
mod stream_transport;
mod tiles;
mod transport;

pub use partition::{
    PartitionSpec, padded_block_samples, partition_view, partition_view_mut, partition_views_mut,
};
pub use partitioned_array::PartitionedArray;
pub use replica::Replica;
pub use replica_set::ReplicaSet;
pub use route::Route;
pub use stream_transport::StreamTransport;
pub use transport::Transport;
