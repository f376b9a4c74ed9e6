//! The CollectiveDriver trait, and the safe groups over it.

mod call;
mod collectives;
mod config;
mod driver;
mod formation;
mod group;
mod member;
mod plan;
mod reduce;
mod rendezvous;
mod request;
mod set;
mod work;

pub use collectives::Collectives;
pub use config::{Capabilities, CommunicationId, Difference, GroupConfig};
pub use driver::{CollectiveDriver, DeviceResource, Driver, Elements};
pub use group::{Batch, Group};
pub use reduce::ReduceOp;
pub use rendezvous::{Directory, InProcess, Rendezvous};
pub use request::{Message, OpName, Request, Signature};
pub use set::GroupSet;
pub use work::Work;
