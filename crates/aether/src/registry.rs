//! From text to devices.

use std::collections::BTreeMap;

use aether_core::{Device, DeviceId, DeviceKind, Error, ErrorKind, Result};

/// Where the devices of one kind come from.
pub trait Source: Send + Sync {
    /// The device of this index.
    ///
    /// # Errors
    /// `UnknownDevice` if there is none.
    fn device(&self, index: u32) -> Result<Device>;

    /// Every device that is there.
    ///
    /// # Errors
    /// Why none can be had, such as `LibraryNotFound`.
    fn all(&self) -> Result<Vec<Device>>;
}

/// The kinds of devices that a program knows by name.
///
/// [`Registry::default`] has what the features of this crate bring. A backend outside of this
/// workspace adds its own kinds with [`Registry::add`].
pub struct Registry {
    sources: BTreeMap<DeviceKind, Box<dyn Source>>,
}

impl Registry {
    /// A registry that knows no kind.
    pub fn empty() -> Self {
        Self { sources: BTreeMap::new() }
    }

    /// Adds a kind, or replaces its source.
    pub fn add(&mut self, kind: DeviceKind, source: impl Source + 'static) {
        self.sources.insert(kind, Box::new(source));
    }

    /// The kinds, by number.
    pub fn kinds(&self) -> impl Iterator<Item = DeviceKind> {
        self.sources.keys().copied()
    }

    /// The device that is named `cpu:0`, `cuda:1`, and so on.
    ///
    /// # Errors
    /// `Parse` for text that names none; `UnknownDevice` for a kind that nobody added or a device
    /// that does not exist.
    pub fn device(&self, name: &str) -> Result<Device> {
        let id: DeviceId = name.parse()?;
        self.source(id.kind)?.device(id.index)
    }

    /// The first `count` devices of a kind.
    ///
    /// # Errors
    /// `UnknownDevice`, and what the source says.
    pub fn first(&self, kind: DeviceKind, count: u32) -> Result<Vec<Device>> {
        let source = self.source(kind)?;
        (0..count).map(|index| source.device(index)).collect()
    }

    /// Every device of a kind.
    ///
    /// # Errors
    /// `UnknownDevice` for a kind that nobody added, and what the source says.
    pub fn all(&self, kind: DeviceKind) -> Result<Vec<Device>> {
        self.source(kind)?.all()
    }

    fn source(&self, kind: DeviceKind) -> Result<&dyn Source> {
        self.sources.get(&kind).map(|it| &**it).ok_or_else(|| {
            let known = self.kinds().map(|it| it.to_string()).collect::<Vec<_>>().join(", ");
            let reason = format!("no devices of kind {kind} are known here, only of {known}");
            Error::new(ErrorKind::UnknownDevice, "look up a device", reason)
        })
    }
}

impl Default for Registry {
    fn default() -> Self {
        let mut registry = Self::empty();
        registry.add(DeviceKind::CPU, HostDevices);
        registry
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.sources.keys()).finish()
    }
}

/// The host's devices: any index is one.
struct HostDevices;

impl Source for HostDevices {
    fn device(&self, index: u32) -> Result<Device> {
        Ok(Device::cpu(index))
    }

    fn all(&self) -> Result<Vec<Device>> {
        Ok(vec![Device::cpu(0)])
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that unwraps says where it failed")]
mod tests {
    use super::*;

    #[test]
    fn a_name_becomes_the_device_of_its_source() {
        let registry = Registry::default();
        assert_eq!(registry.device("cpu:7").unwrap(), Device::cpu(7));
        assert_eq!(registry.first(DeviceKind::CPU, 3).unwrap(), Device::cpus(3));
        assert_eq!(registry.all(DeviceKind::CPU).unwrap(), [Device::cpu(0)]);
    }

    #[test]
    fn a_kind_that_nobody_added_is_an_error_that_names_those_that_are_known() {
        let error = Registry::default().device("cuda:0").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownDevice);
        assert!(error.reason().contains("only of cpu"), "{error}");
        assert_eq!(Registry::default().device("cpu").unwrap_err().kind(), ErrorKind::Parse);
    }
}
