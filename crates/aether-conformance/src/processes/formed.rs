//! The groups that live: where each meets, and which process each rank is.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;

use aether_core::{Error, ErrorKind, Result};

use super::seat::lock;

/// The groups, by their generation, of which no two have the same.
static GROUPS: Mutex<BTreeMap<u64, Group>> = Mutex::new(BTreeMap::new());

#[derive(Default)]
struct Group {
    proxies: usize,
    joined: usize,
    processes: BTreeMap<usize, u32>,
}

/// A proxy's part in a group. The directory goes when all have joined, or with the last.
pub(super) struct Formed {
    generation: u64,
}

impl Formed {
    pub(super) fn enter(generation: u64) -> Self {
        lock(&GROUPS).entry(generation).or_default().proxies += 1;
        Self { generation }
    }

    /// The directory in which the group's workers meet.
    pub(super) fn place(&self) -> PathBuf {
        let name = format!("aether-suite-{}-{}", std::process::id(), self.generation);
        std::env::temp_dir().join(name)
    }

    /// One more of so many ranks has joined.
    pub(super) fn joined(&self, ranks: usize) {
        let mut groups = lock(&GROUPS);
        let group = groups.entry(self.generation).or_default();
        group.joined += 1;
        let all = group.joined == ranks;
        drop(groups);
        if all {
            self.remove();
        }
    }

    /// What they met in serves nobody any more.
    fn remove(&self) {
        // Workers that never met made none, and what can't be removed harms nobody.
        drop(std::fs::remove_dir_all(self.place()));
    }

    /// Notes which process a rank is.
    ///
    /// # Errors
    /// `Backend` if it is another rank's, or this one.
    pub(super) fn is_in(&self, rank: usize, process: u32) -> Result<()> {
        let mut groups = lock(&GROUPS);
        let processes = &mut groups.entry(self.generation).or_default().processes;
        let other = processes.iter().find(|it| *it.1 == process).map(|it| *it.0);
        if other.is_none() && process != std::process::id() {
            processes.insert(rank, process);
            return Ok(());
        }
        let who = other.map_or_else(|| "the suite".to_owned(), |it| format!("rank {it}"));
        let reason = format!("rank {rank} is in process {process}, and so is {who}");
        Err(Error::new(ErrorKind::Backend, "join a group", reason).about_ranks([rank]))
    }
}

impl Drop for Formed {
    fn drop(&mut self) {
        let mut groups = lock(&GROUPS);
        let Some(group) = groups.get_mut(&self.generation) else { return };
        group.proxies -= 1;
        if group.proxies == 0 {
            groups.remove(&self.generation);
            drop(groups);
            self.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn ranks_that_share_a_process_are_refused() {
        let formed = Formed::enter(u64::MAX);
        formed.is_in(0, 1).unwrap();
        formed.is_in(1, 2).unwrap();
        for process in [1, 2, std::process::id()] {
            let error = formed.is_in(2, process).unwrap_err();
            assert_eq!((error.kind(), error.ranks()), (ErrorKind::Backend, [2].as_slice()));
        }
    }

    #[test]
    fn the_directory_goes_when_all_have_joined_or_with_the_last() {
        let [first, last] = [0, 1].map(|_| Formed::enter(u64::MAX - 1));
        let place = first.place();
        std::fs::create_dir(&place).unwrap();
        first.joined(2);
        assert!(place.exists());
        last.joined(2);
        assert!(!place.exists());
        std::fs::create_dir(&place).unwrap();
        drop(first);
        assert!(place.exists());
        drop(last);
        assert!(!place.exists());
    }
}
