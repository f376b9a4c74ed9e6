//! Circles of waits: within one group, or through several groups of this process.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};

use aether_core::{DeviceId, Error, ErrorKind};

use super::header::state;
use super::participant::Peer;
use super::table::Table;
use super::told;
use crate::shared::lock;

/// What every group of this process that spreads over processes sees of its ranks.
static LIVING: Mutex<Vec<Weak<Vec<Peer>>>> = Mutex::new(Vec::new());

/// Who waits and is waited for, in whatever group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Party {
    pid: u32,
    device: DeviceId,
}

/// One wait: whose call, in which rank's place, for whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) rank: usize,
    party: Party,
    other: Party,
    /// `rank 0 (cpu:0) waits in barrier (call 1) for rank 1 (cpu:1)`
    pub(crate) words: String,
}

/// Notes a group that was joined, as long as it lives.
pub(crate) fn enter(peers: &Arc<Vec<Peer>>) {
    let mut living = lock(&LIVING);
    living.retain(|it| it.strong_count() > 0);
    living.push(Arc::downgrade(peers));
}

/// The other groups of this process.
fn others(table: &Table) -> Vec<Arc<Vec<Peer>>> {
    let living = lock(&LIVING);
    let groups = living.iter().filter_map(Weak::upgrade);
    groups.filter(|it| !Arc::ptr_eq(it, &table.peers)).collect()
}

/// A circle of waits that the rank is in, or waits for, whose call, in words, waits for `absent`.
pub(crate) fn find(table: &Table, call: &str, absent: &[usize]) -> Option<Vec<Wait>> {
    let own = own(table, call, absent);
    let start = own.first()?.party;
    let mut all = own;
    for (rank, peer) in table.others() {
        all.extend(shown(&table.peers, rank, peer));
    }
    for group in others(table) {
        for (rank, peer) in group.iter().enumerate() {
            all.extend(shown(&group, rank, peer));
        }
    }
    among(start, all)
}

/// What another group of this process says of the call, if it has failed because of a circle through
/// it: once it has failed, its ranks don't wait any more, and the circle can't be seen.
pub(crate) fn told(table: &Table, call: &str, absent: &[usize]) -> Option<Error> {
    let own = own(table, call, absent);
    let failure = |peer: &Peer| {
        let header = peer.header();
        let broken = header.progress.state.get() == state::BROKEN;
        broken.then(|| told::decode(&header.failure.read())).flatten()
    };
    let is_own = |error: &Error| {
        let reason = error.reason();
        error.kind() == ErrorKind::Cycle && own.iter().any(|it| reason.contains(&it.words))
    };
    let groups = others(table);
    groups.iter().flat_map(|it| it.iter()).filter_map(failure).find(is_own)
}

/// The waits of this rank.
fn own(table: &Table, call: &str, absent: &[usize]) -> Vec<Wait> {
    match table.peers.get(table.rank) {
        Some(peer) => waits(&table.peers, table.rank, peer, call, absent),
        None => Vec::new(),
    }
}

/// The waits that a rank of a group shows.
fn shown(group: &[Peer], rank: usize, peer: &Peer) -> Vec<Wait> {
    match peer.header().wait.read() {
        Some((call, ranks)) => waits(group, rank, peer, &call, &ranks),
        None => Vec::new(),
    }
}

fn waits(group: &[Peer], rank: usize, peer: &Peer, call: &str, ranks: &[usize]) -> Vec<Wait> {
    let party = |it: &Peer| Party { pid: it.pid, device: it.device };
    let wait = |&other: &usize| {
        let waited_for = group.get(other)?;
        let (me, it) = (peer.device, waited_for.device);
        let words = format!("rank {rank} ({me}) waits in {call} for rank {other} ({it})");
        Some(Wait { rank, party: party(peer), other: party(waited_for), words })
    };
    ranks.iter().filter_map(wait).collect()
}

/// A shortest circle among the waits, of those that `start` is in or waits for.
fn among(start: Party, all: Vec<Wait>) -> Option<Vec<Wait>> {
    let mut by_party = HashMap::<Party, Vec<Wait>>::new();
    for wait in all {
        by_party.entry(wait.party).or_default().push(wait);
    }
    let mut reached = vec![start];
    let mut at = 0;
    while let Some(&party) = reached.get(at) {
        if let Some(circle) = through(party, &by_party) {
            return Some(circle);
        }
        for wait in by_party.get(&party).into_iter().flatten() {
            if !reached.contains(&wait.other) {
                reached.push(wait.other);
            }
        }
        at += 1;
    }
    None
}

/// A shortest circle through this party.
fn through(start: Party, by_party: &HashMap<Party, Vec<Wait>>) -> Option<Vec<Wait>> {
    // A search in breadth; each party is entered once.
    let mut came_by = HashMap::<Party, &Wait>::new();
    let mut front = VecDeque::from([start]);
    while let Some(party) = front.pop_front() {
        for wait in by_party.get(&party).into_iter().flatten() {
            if wait.other == start {
                let mut circle = vec![wait.clone()];
                let mut at = party;
                while at != start {
                    let step = *came_by.get(&at)?;
                    at = step.party;
                    circle.push(step.clone());
                }
                circle.reverse();
                return Some(circle);
            }
            if let Entry::Vacant(place) = came_by.entry(wait.other) {
                place.insert(wait);
                front.push_back(wait.other);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use aether_core::DeviceKind;

    use super::*;

    fn party(number: usize) -> Party {
        let device = DeviceId::new(DeviceKind::CPU, number as u32);
        Party { pid: 100 + number as u32, device }
    }

    /// Who waits for whom.
    fn waits_of(list: &[&[usize]]) -> Vec<Wait> {
        let wait = |(rank, others): (usize, &&[usize])| {
            let wait = move |&other: &usize| Wait {
                rank,
                party: party(rank),
                other: party(other),
                words: format!("{rank}>{other}"),
            };
            others.iter().map(wait).collect::<Vec<_>>()
        };
        list.iter().enumerate().flat_map(wait).collect()
    }

    fn found(start: usize, list: &[&[usize]]) -> Option<Vec<String>> {
        let circle = among(party(start), waits_of(list))?;
        Some(circle.into_iter().map(|it| it.words).collect())
    }

    fn words(list: &[&str]) -> Option<Vec<String>> {
        Some(list.iter().map(|&it| it.to_owned()).collect())
    }

    #[test]
    fn the_shortest_circle_is_found_also_by_one_who_only_waits_for_it() {
        let list: [&[usize]; 4] = [&[1], &[2], &[1, 3], &[0]];
        assert_eq!(found(0, &list), words(&["0>1", "1>2", "2>3", "3>0"]));
        assert_eq!(found(2, &list), words(&["2>1", "1>2"]));
        assert_eq!(found(0, &[&[1], &[2], &[1], &[]]), words(&["1>2", "2>1"]));
    }

    #[test]
    fn who_waits_for_one_who_waits_for_nobody_is_in_no_circle() {
        assert_eq!(found(0, &[&[1, 2], &[2], &[]]), None);
        assert_eq!(found(2, &[&[1, 2], &[2], &[]]), None);
    }
}
