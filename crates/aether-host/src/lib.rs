#![doc = include_str!("../README.md")]

mod call;
mod comm;
mod driver;
mod kernels;
mod lane;
mod layout;
mod mail;
mod member;
mod messages;
mod processes;
mod registry;
mod resource;
mod round;
mod shared;
mod small;
mod strips;
mod sync;
mod trouble;

pub use driver::Host;
pub use member::Communicator;
pub use processes::heap::shared_device;
pub use registry::HostId;
pub use resource::HostRange;
