//! What one device has joined.

use std::fmt;

use aether_core::{Device, DeviceId, Error, ErrorKind, Result};

use crate::{CollectiveDriver, Group, GroupConfig};

/// The groups that one device has joined, by the devices of each and its name.
pub struct Collectives<D: CollectiveDriver> {
    device: Device,
    groups: Vec<Group<D>>,
}

impl<D: CollectiveDriver> Collectives<D> {
    /// A device that has joined nothing yet.
    pub fn new(device: Device) -> Self {
        Self { device, groups: Vec::new() }
    }

    /// Joins the group of these devices, and waits for the others. A broken group of the same devices
    /// and name makes room for the new one.
    ///
    /// # Errors
    /// Those of [`Group::join_with`]; `GroupBroken` if another rank broke the new group already.
    pub fn join(&mut self, devices: &[Device], config: &GroupConfig) -> Result<&mut Group<D>> {
        let ids = sorted(devices);
        self.groups.retain(|it| !is(it, &ids, config.name.as_deref()) || it.check().is_ok());
        self.groups.push(Group::join_with(devices, &self.device, config)?);
        self.group(devices, config.name.as_deref())
    }

    /// The group of these devices with this name.
    ///
    /// # Errors
    /// `NotMember` if the device never joined it, or isn't in the list; `DuplicateDevice`;
    /// `GroupBroken`, naming the first failure.
    pub fn group(&mut self, devices: &[Device], name: Option<&str>) -> Result<&mut Group<D>> {
        crate::formation::by_rank(devices)?;
        let refuse = |reason: &str| {
            Err(Error::new(ErrorKind::NotMember, "find a group", reason).on(&self.device))
        };
        if !devices.contains(&self.device) {
            return refuse("the device is not in the list of the group's devices");
        }
        let ids = sorted(devices);
        match self.groups.iter_mut().find(|it| is(it, &ids, name)) {
            Some(group) => group.check().map(|()| group),
            None => refuse("the device never joined a group of these devices with this name"),
        }
    }

    /// Leaves the group of these devices with this name in order.
    ///
    /// # Errors
    /// `NotMember` if the device never joined it; those of [`Group::finish`].
    pub fn finish(&mut self, devices: &[Device], name: Option<&str>) -> Result<()> {
        let ids = sorted(devices);
        match self.groups.iter().position(|it| is(it, &ids, name)) {
            Some(at) => self.groups.swap_remove(at).finish(),
            None => {
                let reason = "the device never joined a group of these devices with this name";
                Err(Error::new(ErrorKind::NotMember, "finish a group", reason).on(&self.device))
            }
        }
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The groups.
    pub fn groups(&self) -> &[Group<D>] {
        &self.groups
    }
}

fn sorted(devices: &[Device]) -> Vec<DeviceId> {
    let mut ids: Vec<DeviceId> = devices.iter().map(Device::id).collect();
    ids.sort_unstable();
    ids
}

fn is<D: CollectiveDriver>(group: &Group<D>, devices: &[DeviceId], name: Option<&str>) -> bool {
    group.id().devices() == devices && group.id().name() == name
}

impl<D: CollectiveDriver> fmt::Debug for Collectives<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Collectives({}, {:?})", self.device, self.groups)
    }
}
