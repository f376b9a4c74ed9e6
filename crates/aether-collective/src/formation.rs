//! How groups of one process form: the table of formations.
//!
//! Whoever joins fills the open formation of the same driver, devices and name. A full one closes; one
//! whose time is over is poisoned and removed. An entry goes with its last member.

#[cfg(test)]
mod tests;

use std::any::TypeId;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use aether_core::{Device, DeviceId, Error, ErrorKind, Result};

use crate::{CollectiveDriver, CommunicationId, GroupConfig};

/// The place of one or several members in a formation that is complete. Dropping it takes them out of
/// the table.
pub(crate) struct Place {
    key: Key,
    ranks: Vec<usize>,
    id: CommunicationId,
}

/// Which groups exclude each other: those of one driver, the same devices and the same name.
#[derive(Clone, PartialEq, Eq)]
struct Key {
    driver: TypeId,
    /// By rank, and with their backends: two that track separately are two devices.
    devices: Vec<Device>,
    name: Option<String>,
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.driver.hash(state);
        self.name.hash(state);
        self.devices.iter().for_each(|it| it.id().hash(state));
    }
}

/// Formations are counted through the process: an identity never comes twice.
static GENERATIONS: AtomicU64 = AtomicU64::new(0);

#[derive(Default)]
struct Entry {
    open: Option<Formation>,
    /// How many members of complete formations live, by rank.
    living: Vec<usize>,
}

struct Formation {
    generation: u64,
    joined: Vec<bool>,
    outcome: Arc<Mutex<Outcome>>,
}

#[derive(Clone)]
enum Outcome {
    Open,
    Full,
    Failed(Error),
}

struct Table {
    entries: Mutex<HashMap<Key, Entry>>,
    changed: Condvar,
}

fn table() -> &'static Table {
    static TABLE: std::sync::OnceLock<Table> = std::sync::OnceLock::new();
    TABLE.get_or_init(|| Table { entries: Mutex::default(), changed: Condvar::new() })
}

/// The devices sorted, which is their order of ranks.
///
/// # Errors
/// `Empty`, `DuplicateDevice`.
pub(crate) fn by_rank(devices: &[Device]) -> Result<Vec<Device>> {
    let attempted = "join a group";
    if devices.is_empty() {
        return Err(Error::new(ErrorKind::Empty, attempted, "a group has at least one device"));
    }
    let mut sorted = devices.to_vec();
    sorted.sort_by_key(Device::id);
    let mut pairs = sorted.iter().zip(sorted.iter().skip(1));
    if let Some((device, _)) = pairs.find(|(a, b)| a.id() == b.id()) {
        // The same one twice, or one of another backend instance.
        let reason = format!("two devices of the list are named {device}");
        return Err(Error::new(ErrorKind::DuplicateDevice, attempted, reason).on(device));
    }
    Ok(sorted)
}

/// The number of one more formation, from 1.
pub(crate) fn next_generation() -> u64 {
    GENERATIONS.fetch_add(1, Ordering::Relaxed) + 1
}

/// Fills the places of `ranks` in the open formation of these devices, and waits until it is full.
///
/// # Errors
/// `DeadlineExceeded` naming the absent ranks; `InvalidArgument` if a living group of this rank has
/// the same devices and name.
pub(crate) fn join<D: CollectiveDriver>(
    devices: &[Device],
    ranks: &[usize],
    config: &GroupConfig,
) -> Result<Place> {
    let key =
        Key { driver: TypeId::of::<D>(), devices: devices.to_vec(), name: config.name.clone() };
    let until = Instant::now().checked_add(config.join_deadline);
    let mut entries = lock(&table().entries);
    let entry = entries.entry(key.clone()).or_default();
    entry.living.resize(devices.len(), 0);
    entry.check_free(devices, ranks)?;
    let formation = entry.open.get_or_insert_with(|| Formation {
        generation: next_generation(),
        joined: vec![false; devices.len()],
        outcome: Arc::new(Mutex::new(Outcome::Open)),
    });
    let generation = formation.generation;
    let outcome = formation.outcome.clone();
    for &rank in ranks {
        if let Some(joined) = formation.joined.get_mut(rank) {
            *joined = true;
        }
    }
    if !formation.joined.contains(&false) {
        *lock(&outcome) = Outcome::Full;
        entry.open = None;
        entry.living.iter_mut().for_each(|it| *it += 1);
        table().changed.notify_all();
    }
    drop(wait_until_full(entries, &key, &outcome, until));
    if let Outcome::Failed(error) = &*lock(&outcome) {
        return Err(error.clone());
    }
    let id = key.id(generation);
    Ok(Place { key, ranks: ranks.to_vec(), id })
}

impl Key {
    fn id(&self, generation: u64) -> CommunicationId {
        let devices: Vec<DeviceId> = self.devices.iter().map(Device::id).collect();
        let processes = vec![crate::rendezvous::this_process(); devices.len()];
        CommunicationId::new(devices, processes, self.name.clone(), generation)
    }
}

impl Entry {
    /// Refuses ranks that wait in the open formation, or live in a complete one. Then there is such a
    /// member, so the entry stays.
    fn check_free(&self, devices: &[Device], ranks: &[usize]) -> Result<()> {
        let waits = |rank| self.open.as_ref().is_some_and(|it| it.joined.get(rank) == Some(&true));
        let lives = |rank| self.living.get(rank).is_some_and(|&it| it > 0);
        let taken = ranks.iter().copied().find(|&rank| waits(rank) || lives(rank));
        let Some((rank, device)) = taken.and_then(|rank| Some((rank, devices.get(rank)?))) else {
            return Ok(());
        };
        let reason = match waits(rank) {
            true => "the device waits already for the others of this group",
            false => "a living group has the same devices; give one of the two a name",
        };
        let error = Error::new(ErrorKind::InvalidArgument, "join a group", reason);
        Err(error.on(device).about_ranks([rank]))
    }
}

fn wait_until_full<'a>(
    mut entries: MutexGuard<'a, HashMap<Key, Entry>>,
    key: &Key,
    outcome: &Mutex<Outcome>,
    until: Option<Instant>,
) -> MutexGuard<'a, HashMap<Key, Entry>> {
    while matches!(*lock(outcome), Outcome::Open) {
        let now = Instant::now();
        let left = until.map_or(Duration::from_secs(3600), |it| it.saturating_duration_since(now));
        if left.is_zero() {
            let open = entries.get_mut(key).and_then(|it| it.open.take());
            let error = time_is_over(key, open.as_ref());
            *lock(outcome) = Outcome::Failed(error);
            forget_if_empty(&mut entries, key);
            table().changed.notify_all();
            break;
        }
        let waited = table().changed.wait_timeout(entries, left);
        entries = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
    entries
}

fn time_is_over(key: &Key, open: Option<&Formation>) -> Error {
    let joined = open.map_or(&[][..], |it| it.joined.as_slice());
    let absent: Vec<usize> =
        joined.iter().enumerate().filter(|(_, joined)| !**joined).map(|(rank, _)| rank).collect();
    let named = |&rank: &usize| {
        key.devices.get(rank).map_or(format!("rank {rank}"), |it| format!("rank {rank} ({it})"))
    };
    let names: Vec<String> = absent.iter().map(named).collect();
    let reason = format!("the deadline passed and {} did not join", names.join(", "));
    let error = Error::new(ErrorKind::DeadlineExceeded, "join a group", reason);
    error.on(key.id(0)).about_ranks(absent)
}

fn forget_if_empty(entries: &mut HashMap<Key, Entry>, key: &Key) {
    let empty = |it: &Entry| it.open.is_none() && it.living.iter().all(|&it| it == 0);
    if entries.get(key).is_some_and(empty) {
        entries.remove(key);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Place {
    /// The group's identity.
    pub(crate) fn id(&self) -> &CommunicationId {
        &self.id
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut entries = lock(&table().entries);
        if let Some(entry) = entries.get_mut(&self.key) {
            for &rank in &self.ranks {
                if let Some(living) = entry.living.get_mut(rank) {
                    *living = living.saturating_sub(1);
                }
            }
        }
        forget_if_empty(&mut entries, &self.key);
    }
}
