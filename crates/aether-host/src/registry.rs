//! The groups of this process, by the identifier under which they are joined.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use aether_collective::{CommunicationId, GroupConfig};
use aether_core::{Error, ErrorKind, Result};

use crate::shared::{Shared, lock};

/// The identifier of a group of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HostId {
    process: u64,
    serial: u64,
    /// Its ranks are in several processes.
    spreads: bool,
}

#[derive(Default)]
struct Registry {
    serial: u64,
    /// Identifiers that were minted and whose group has not ended, and since when.
    minted: HashMap<CommunicationId, (HostId, Instant)>,
    /// Groups live until every rank has joined and left: one that joins late learns who went before.
    groups: HashMap<HostId, Arc<Shared>>,
}

/// A group that not all ranks have joined, and that all others have left, is forgotten when so many
/// were founded after it and so much time has passed: a rank may be slow between asking for the
/// identifier and joining under it, and must not found the group a second time.
const KEPT: u64 = 256;
const KEPT_FOR: Duration = Duration::from_secs(600);

fn registry() -> &'static Mutex<Registry> {
    static REGISTRY: OnceLock<Mutex<Registry>> = OnceLock::new();
    REGISTRY.get_or_init(Mutex::default)
}

/// Tells this process from others that run at the time, or ran before under the same number.
fn process() -> u64 {
    static PROCESS: OnceLock<u64> = OnceLock::new();
    *PROCESS.get_or_init(|| {
        use std::hash::{BuildHasher, RandomState};
        // The standard library's hasher is seeded at random for each process.
        RandomState::new().hash_one(std::process::id())
    })
}

/// The identifier of the group, minted by whoever asks first.
pub(crate) fn identify(id: &CommunicationId) -> HostId {
    let mut registry = lock(registry());
    if let Some((known, _)) = registry.minted.get(id) {
        return *known;
    }
    registry.serial += 1;
    registry.tidy();
    let minted = HostId { process: process(), serial: registry.serial, spreads: id.spreads() };
    registry.minted.insert(id.clone(), (minted, Instant::now()));
    minted
}

/// What the members of the group share, made by whoever joins first.
///
/// # Errors
/// `Unsupported` for the identifier of another process, `SizeMismatch` if world sizes differ.
pub(crate) fn enter(id: HostId, ranks: usize, config: &GroupConfig) -> Result<Arc<Shared>> {
    let attempted = "join a group";
    if id.process != process() {
        let reason =
            "the group was founded by another process, and this driver joins threads of one";
        return Err(Error::new(ErrorKind::Unsupported, attempted, reason).on("host"));
    }
    let mut registry = lock(registry());
    let shared = registry.groups.entry(id).or_insert_with(|| Arc::new(Shared::new(ranks, config)));
    if shared.ranks == ranks {
        return Ok(shared.clone());
    }
    let reason =
        format!("this rank says that there are {ranks} ranks, and others {}", shared.ranks);
    Err(Error::new(ErrorKind::SizeMismatch, attempted, reason).on("host"))
}

/// Forgets the group when its last member has left.
pub(crate) fn leave(id: HostId) {
    let mut registry = lock(registry());
    if registry.groups.get(&id).is_some_and(|it| it.is_left()) {
        registry.groups.remove(&id);
        registry.minted.retain(|_, (known, _)| *known != id);
    }
}

/// Every group that lives.
pub(crate) fn living() -> Vec<Arc<Shared>> {
    lock(registry()).groups.values().cloned().collect()
}

impl Registry {
    /// Forgets what never became a whole group, long ago.
    fn tidy(&mut self) {
        let Self { serial, minted, groups } = self;
        minted.retain(|_, (id, since)| {
            let many = id.serial.saturating_add(KEPT) < *serial;
            let old = many && since.elapsed() > KEPT_FOR;
            let nobody = groups.get(id).is_none_or(|it| Arc::strong_count(it) == 1);
            if old && nobody {
                groups.remove(id);
            }
            !(old && nobody)
        });
    }
}

impl HostId {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let words = [self.process.to_le_bytes(), self.serial.to_le_bytes()];
        [words.as_flattened(), &[u8::from(self.spreads)]].concat()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let half = |at: usize| {
            let part = bytes.get(at..at + 8)?;
            part.try_into().ok().map(u64::from_le_bytes)
        };
        match (half(0), half(8), bytes.get(16..)) {
            (Some(process), Some(serial), Some(&[spreads @ (0 | 1)])) => {
                Ok(Self { process, serial, spreads: spreads == 1 })
            }
            _ => {
                let reason = format!("{} bytes are no identifier of a host group", bytes.len());
                Err(Error::new(ErrorKind::Parse, "read a group's identifier", reason).on("host"))
            }
        }
    }

    /// The name under which ranks of several processes meet; none if all are in this one.
    pub(crate) fn meeting(&self) -> Option<String> {
        self.spreads.then(|| format!("aether-{:016x}-{}", self.process, self.serial))
    }
}
