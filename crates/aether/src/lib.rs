#![doc = include_str!("../README.md")]

mod registry;

pub use aether_collective::{
    Batch, Capabilities, CollectiveDriver, Collectives, CommunicationId, DeviceResource,
    Difference, Directory, Driver, Elements, Group, GroupConfig, GroupSet, InProcess, Launcher,
    Message, OpName, ReduceOp, Rendezvous, Request, Signature, Tcp, TcpServer, Work, World,
};
pub use aether_core::*;
#[cfg(feature = "host")]
pub use aether_host::{Host, shared_device};
pub use aether_residency::*;
pub use registry::{Registry, Source};
