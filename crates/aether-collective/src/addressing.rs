//! How a driver names devices' memory and elements.

use aether_core::{Device, Region};

use crate::Capabilities;

/// A backend that addresses the memory of devices in a way of its own.
pub trait Driver: Send + Sync + Sized + 'static {
    /// A range of device memory, as this driver addresses it.
    type Resource: Copy + Send + Sync + 'static;

    /// The driver's name in messages: `host`, `nccl`.
    fn name() -> &'static str;

    /// Whether the driver runs collectives on the device.
    fn supports(device: &Device) -> bool;

    /// Whether the member of `device` can use memory of the device `memory`. Provided as its own memory
    /// alone; a driver on shared memory reaches more.
    fn reaches(device: &Device, memory: &Device) -> bool {
        device == memory
    }

    /// What the driver can do beyond what is required, and where it differs from aether's semantics.
    fn capabilities() -> Capabilities;

    /// The range as the driver addresses it. It is a number: nothing is touched.
    fn resource(region: Region) -> Self::Resource;
}

/// A range of device memory, as the driver `D` addresses it.
pub type DeviceResource<D> = <D as Driver>::Resource;

/// A number of elements and their type, as a driver names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elements<T> {
    /// The type.
    pub data_type: T,
    /// How many. What is counted is said by each method of [`CollectiveDriver`](crate::CollectiveDriver).
    pub count: u64,
}
