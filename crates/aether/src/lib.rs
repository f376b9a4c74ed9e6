#![doc = include_str!("../README.md")]

mod registry;

pub use aether_collective::{
    Batch, Capabilities, CollectiveDriver, Collectives, CommunicationId, DeviceResource,
    Difference, Directory, Driver, Elements, Group, GroupConfig, GroupSet, InProcess, Message,
    OpName, ReduceOp, Rendezvous, Request, Signature, Work,
};
pub use aether_core::*;
#[cfg(feature = "host")]
pub use aether_host::Host;
pub use aether_residency::*;
pub use registry::{Registry, Source};
