//! Which device: its kind, its index, and the backend instance that serves it.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex};

use crate::sync::lock;
use crate::{Backend, Error, ErrorKind, Result, host};

/// A kind of device memory, numbered as DLPack numbers its device types.
///
/// The list is open: a backend outside of this workspace takes a number of its own and registers a
/// name for it with [`DeviceKind::register`]. Numbers below `1 << 16` are DLPack's to give, for now
/// and later; those from `1 << 16` up are free, and memory of such a kind can't be exported by DLPack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceKind(pub u32);

/// Names that outsiders gave to their own kinds.
static NAMES: Mutex<BTreeMap<u32, &'static str>> = Mutex::new(BTreeMap::new());

impl DeviceKind {
    /// Ordinary memory of the host: DLPack's `kDLCPU`.
    pub const CPU: Self = Self(1);
    /// Memory of a CUDA device: DLPack's `kDLCUDA`.
    pub const CUDA: Self = Self(2);
    /// Pinned memory of the host that CUDA devices reach: DLPack's `kDLCUDAHost`.
    pub const CUDA_HOST: Self = Self(3);

    const BUILT_IN: [(Self, &'static str); 3] =
        [(Self::CPU, "cpu"), (Self::CUDA, "cuda"), (Self::CUDA_HOST, "cuda_host")];

    /// Gives the kind a name, for printing and parsing. The same name twice is fine.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the kind already has another name, the name already belongs
    /// to another kind, or the name is not made of lower-case letters, digits and `_`.
    pub fn register(self, name: &'static str) -> Result<()> {
        let refuse = |reason: String| {
            Error::new(ErrorKind::InvalidArgument, "register a device kind", reason)
        };
        let plain = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'_';
        if !name.bytes().all(plain) || !name.starts_with(|it: char| it.is_ascii_lowercase()) {
            return Err(refuse(format!("`{name}` is not a lower-case word")));
        }
        let mut names = lock(&NAMES);
        let built_in = Self::BUILT_IN.iter().map(|&(kind, name)| (kind.0, name));
        let mut known = names.iter().map(|(&kind, &name)| (kind, name)).chain(built_in);
        if let Some((kind, taken)) =
            known.find(|&(kind, taken)| (kind == self.0) != (taken == name))
        {
            return Err(refuse(format!("kind {kind} is already named `{taken}`")));
        }
        names.insert(self.0, name);
        Ok(())
    }

    /// The name, if this kind is one of aether's own or was registered.
    pub fn name(self) -> Option<&'static str> {
        let built_in = Self::BUILT_IN.iter().find(|it| it.0 == self).map(|it| it.1);
        built_in.or_else(|| lock(&NAMES).get(&self.0).copied())
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

impl fmt::Debug for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for DeviceKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some((kind, _)) = Self::BUILT_IN.iter().find(|it| it.1 == text) {
            return Ok(*kind);
        }
        let names = lock(&NAMES);
        let named = names.iter().find(|(_, name)| **name == text).map(|(&kind, _)| Self(kind));
        let number = || text.parse().ok().filter(|_| !text.starts_with('+')).map(Self);
        named.or_else(number).ok_or_else(|| {
            Error::new(
                ErrorKind::Parse,
                "parse a device kind",
                format!("`{text}` is neither a registered name nor a number"),
            )
        })
    }
}

/// A device by name: its kind and its index among devices of that kind. Prints and parses as
/// `cpu:0`, `cuda:1`, `cuda_host:0`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId {
    /// The kind of memory.
    pub kind: DeviceKind,
    /// The index among devices of this kind.
    pub index: u32,
}

impl DeviceId {
    /// The device of this kind and index.
    pub const fn new(kind: DeviceKind, index: u32) -> Self {
        Self { kind, index }
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.index)
    }
}

impl fmt::Debug for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for DeviceId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refuse = |reason: &str| {
            Error::new(ErrorKind::Parse, "parse a device", format!("`{text}` {reason}"))
        };
        let (kind, index) =
            text.split_once(':').ok_or_else(|| refuse("is not of the form kind:index"))?;
        let index = Some(index).filter(|it| it.bytes().all(|it| it.is_ascii_digit()));
        let index = index.and_then(|it| it.parse().ok());
        let index = index.ok_or_else(|| refuse("has no index that is a number"))?;
        Ok(Self { kind: kind.parse()?, index })
    }
}

/// A device: a [`DeviceId`] and the backend instance that serves it.
///
/// Two devices are equal when both are the same, so two contexts of one GPU that track their work
/// separately never pass for one device.
#[derive(Clone)]
pub struct Device {
    id: DeviceId,
    backend: Arc<dyn Backend>,
}

impl Device {
    /// The host device of this index. Every index is a distinct device of this one machine, so that
    /// code for several devices runs anywhere.
    pub fn cpu(index: u32) -> Self {
        Self::new(DeviceId::new(DeviceKind::CPU, index), host::instance())
    }

    /// The first `count` host devices: `cpu:0`, `cpu:1`, and so on.
    pub fn cpus(count: u32) -> Vec<Self> {
        (0..count).map(Self::cpu).collect()
    }

    /// The device `id`, served by `backend`: for the authors of backends.
    pub fn new(id: DeviceId, backend: Arc<dyn Backend>) -> Self {
        Self { id, backend }
    }

    /// Kind and index.
    #[inline]
    pub fn id(&self) -> DeviceId {
        self.id
    }

    /// The kind of memory.
    #[inline]
    pub fn kind(&self) -> DeviceKind {
        self.id.kind
    }

    /// The backend instance that serves the device.
    #[inline]
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// Whether the host may read and write this device's memory by its address.
    pub fn host_addressable(&self) -> bool {
        self.backend.host_addressable(self.id)
    }

    /// Whether both devices are served by the same backend instance.
    #[inline]
    pub fn shares_backend(&self, other: &Self) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.backend), Arc::as_ptr(&other.backend))
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.shares_backend(other)
    }
}

impl Eq for Device {}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
