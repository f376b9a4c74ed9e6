#![doc = include_str!("../README.md")]

mod addressing;
mod call;
mod calls;
mod collectives;
mod compose;
mod config;
mod driver;
mod formation;
mod group;
mod member;
#[cfg(test)]
mod paper;
mod plan;
mod reduce;
mod rendezvous;
mod request;
mod set;
mod work;

pub use addressing::{DeviceResource, Driver, Elements};
pub use collectives::Collectives;
pub use config::{Capabilities, CommunicationId, Difference, GroupConfig};
pub use driver::CollectiveDriver;
pub use group::{Batch, Group};
pub use reduce::ReduceOp;
pub use rendezvous::{Directory, InProcess, Launcher, Rendezvous, Tcp, TcpServer, World};
pub use request::{Message, OpName, Request, Signature};
pub use set::GroupSet;
pub use work::Work;
