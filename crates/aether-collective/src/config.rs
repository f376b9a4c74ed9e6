//! How a group is configured, what it is called, and what a driver can do.

use std::fmt;
use std::time::Duration;

use aether_core::DeviceId;

/// How a group behaves. The same on every rank.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupConfig {
    /// How long joining waits for the other ranks.
    pub join_deadline: Duration,
    /// How long an operation may take, from when this rank's call is ready and the driver is told
    /// of it.
    pub deadline: Duration,
    /// Whether no call completes before all ranks have agreed on it.
    pub checked: bool,
    /// The group's name: needed where two living groups have the same devices.
    pub name: Option<String>,
}

impl GroupConfig {
    /// The configuration in which both deadlines are this long.
    #[must_use]
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Self { join_deadline: deadline, deadline, ..self }
    }

    /// The configuration in which joining waits so long for the other ranks.
    #[must_use]
    pub fn with_join_deadline(self, join_deadline: Duration) -> Self {
        Self { join_deadline, ..self }
    }

    /// The configuration of a group with this name.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// The configuration with checked mode on or off.
    #[must_use]
    pub fn with_checked(self, checked: bool) -> Self {
        Self { checked, ..self }
    }
}

impl Default for GroupConfig {
    /// Deadlines of 60 s; checked where `AETHER_CHECKED` is 1.
    fn default() -> Self {
        let checked = std::env::var_os("AETHER_CHECKED").is_some_and(|it| it == "1");
        let minute = Duration::from_secs(60);
        Self { join_deadline: minute, deadline: minute, checked, name: None }
    }
}

/// What names a group: its devices, a name where two live groups have the same devices, and the
/// generation, which tells a group from the earlier ones of the same name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CommunicationId {
    devices: Vec<DeviceId>,
    processes: Vec<u64>,
    name: Option<String>,
    generation: u64,
}

impl CommunicationId {
    /// Made where groups form: the generation comes from there, and not from callers. As many processes
    /// as devices.
    pub(crate) fn new(
        devices: Vec<DeviceId>,
        processes: Vec<u64>,
        name: Option<String>,
        generation: u64,
    ) -> Self {
        Self { devices, processes, name, generation }
    }

    /// The devices, by rank.
    pub fn devices(&self) -> &[DeviceId] {
        &self.devices
    }

    /// The process of each rank: a number that tells it from others, and nothing else.
    pub fn processes(&self) -> &[u64] {
        &self.processes
    }

    /// Whether the ranks are in more than one process.
    pub fn spreads(&self) -> bool {
        self.processes.windows(2).any(|pair| matches!(pair, [one, other] if one != other))
    }

    /// The name, if it has one.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The number of the formation, from 1: no other group that was founded in the same process has it.
    /// A group of several processes is founded in that of rank 0.
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

impl fmt::Display for CommunicationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("group")?;
        if let Some(name) = &self.name {
            write!(f, " `{name}`")?;
        }
        match self.devices.as_slice() {
            [] => f.write_str(" of nobody"),
            [only] => write!(f, " of {only}"),
            [first, .., last] => write!(f, " of {first}..{last} ({})", self.devices.len()),
        }
    }
}

/// What a driver can do beyond what is required, and where it differs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// It works on the stream that it is given, in the order of that stream; otherwise on the CPU, and
    /// aether calls it only when what a call depends on has ended.
    pub on_stream: bool,
    /// It has a barrier of its own.
    pub barrier: bool,
    /// It has gather, scatter and reduce of its own.
    pub rooted: bool,
    /// It has all_gather_v, reduce_scatter_v and all_to_all_v of its own.
    pub vector: bool,
    /// Where it differs from aether's semantics: one entry a row.
    pub differences: &'static [Difference],
}

impl Capabilities {
    /// What a driver can that works on the stream it is given, or on the CPU.
    #[must_use]
    pub const fn with_on_stream(self, on_stream: bool) -> Self {
        Self { on_stream, ..self }
    }

    /// What a driver can that has a barrier of its own, or none.
    #[must_use]
    pub const fn with_barrier(self, barrier: bool) -> Self {
        Self { barrier, ..self }
    }

    /// What a driver can that has gather, scatter and reduce of its own, or doesn't.
    #[must_use]
    pub const fn with_rooted(self, rooted: bool) -> Self {
        Self { rooted, ..self }
    }

    /// What a driver can that has the vector variants of its own, or doesn't.
    #[must_use]
    pub const fn with_vector(self, vector: bool) -> Self {
        Self { vector, ..self }
    }

    /// What a driver can that differs from aether's semantics so.
    #[must_use]
    pub const fn with_differences(self, differences: &'static [Difference]) -> Self {
        Self { differences, ..self }
    }
}

/// One documented difference from aether's semantics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The row of the table of semantics.
    pub row: &'static str,
    /// What the driver does instead.
    pub instead: &'static str,
}
