//! What is said when a call can't end: who differs, who is absent, who is gone, who waits in a circle.

use std::collections::hash_map::Entry as Entered;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use aether_collective::Signature;
use aether_core::{Error, ErrorKind, Result};

use crate::lane::Half;
use crate::registry;
use crate::shared::{Entry, Party, Pending, Seat, Shared, Suspicion, lock};

/// Compares what the ranks asked for.
///
/// # Errors
/// `RankMismatch`, naming two calls that differ and the ranks that made them; in checked mode also
/// `Overlap`, if one rank's destination overlaps another's buffers.
pub(crate) fn compare(shared: &Shared, call: u64, entries: &[Entry]) -> Result<()> {
    let Some(first) = entries.first() else { return Ok(()) };
    if entries.iter().any(|it| it.signature != first.signature) {
        let signatures: Vec<Signature> = entries.iter().map(|it| it.signature).collect();
        let differ = differing(call + 1, &signatures, |ranks| shared.names_of(ranks));
        return differ.map_or(Ok(()), Err);
    }
    if shared.config.checked { overlap(shared, entries) } else { Ok(()) }
}

/// The error of a call, by its number from 1, whose ranks asked for these: of two that differ.
pub(crate) fn differing(
    call: u64,
    signatures: &[Signature],
    names_of: impl Fn(&[usize]) -> String,
) -> Option<Error> {
    let first = signatures.first()?;
    let other = signatures.iter().find(|it| *it != first)?;
    let made = |which: &Signature| -> Vec<usize> {
        let same = signatures.iter().enumerate().filter(|(_, it)| *it == which);
        same.map(|(rank, _)| rank).collect()
    };
    let (some, others) = (made(first), made(other));
    let mut reason = format!(
        "the ranks disagree on call {call}: {} called {first}, and {} called {other}",
        names_of(&some),
        names_of(&others),
    );
    if first.counts != other.counts && first.count == other.count {
        reason.push_str(" (their lists of counts differ)");
    }
    let ranks = [some.as_slice(), others.as_slice()].concat();
    let name = first.operation.name();
    Some(Error::new(ErrorKind::RankMismatch, name, reason).about_ranks(ranks))
}

/// Compares the lists of counts themselves: memory is laid out by them, and equal digests prove nothing.
///
/// # Errors
/// `RankMismatch`, naming the ranks whose list is not that of rank 0.
pub(crate) fn compare_counts(shared: &Shared, call: u64, entries: &[Entry]) -> Result<()> {
    let Some(first) = entries.first().filter(|it| it.signature.counts != 0) else { return Ok(()) };
    let Some(own) = shared.seat(0).map(|it| lock(&it.counts).clone()) else { return Ok(()) };
    let differs = |it: &Seat| *lock(&it.counts) != own;
    let seats = shared.seats.iter().enumerate();
    let others: Vec<usize> = seats.filter(|(_, it)| differs(it)).map(|(rank, _)| rank).collect();
    if others.is_empty() {
        return Ok(());
    }
    let reason = format!(
        "the ranks disagree on call {}: the lists of counts of {} differ from that of {}",
        call + 1,
        shared.names_of(&others),
        shared.name_of(0)
    );
    let name = first.signature.operation.name();
    Err(Error::new(ErrorKind::RankMismatch, name, reason).about_ranks([vec![0], others].concat()))
}

/// Refuses a range that one rank writes and another touches in the same call.
fn overlap(shared: &Shared, entries: &[Entry]) -> Result<()> {
    for (writer, one) in entries.iter().enumerate() {
        let Some(dst) = one.dst.filter(|it| it.bytes > 0) else { continue };
        for (rank, other) in entries.iter().enumerate().filter(|(rank, _)| *rank != writer) {
            let touched = [other.src, other.dst].into_iter().flatten();
            if let Some(range) = touched.filter(|it| it.bytes > 0).find(|it| it.overlaps(&dst)) {
                let reason = format!(
                    "{} writes {:?}+{}, which overlaps {:?}+{} of {}",
                    shared.name_of(writer),
                    dst.address,
                    dst.bytes,
                    range.address,
                    range.bytes,
                    shared.name_of(rank)
                );
                let name = one.signature.operation.name();
                return Err(
                    Error::new(ErrorKind::Overlap, name, reason).about_ranks([writer, rank])
                );
            }
        }
    }
    Ok(())
}

/// The ends of a message that differ.
pub(crate) fn disagree(shared: &Shared, from: usize, to: usize, send: Half, recv: Half) -> Error {
    let reason = format!(
        "the ranks disagree on a message: {} sends {} {}, and {} receives {} {}",
        shared.name_of(from),
        send.count,
        send.dtype,
        shared.name_of(to),
        recv.count,
        recv.dtype
    );
    Error::new(ErrorKind::RankMismatch, "send/recv", reason).about_ranks([from, to])
}

/// Breaks the group if a rank that the operation waits for is gone.
pub(crate) fn report_gone(shared: &Shared, rank: usize, operation: Pending) {
    let seats = |rank: &usize| shared.seat(*rank).filter(|it| it.gone.load(Ordering::Acquire));
    // Who is gone comes first: a rank that is then found absent made no call before it went.
    let mut gone: Vec<usize> = (0..shared.ranks).filter(|rank| seats(rank).is_some()).collect();
    let absent = shared.absent(rank, operation);
    gone.retain(|it| absent.contains(it));
    if gone.is_empty() {
        return;
    }
    let panicked = |rank: &usize| seats(rank).is_some_and(|it| it.panicked.load(Ordering::Acquire));
    let how = match gone.iter().any(panicked) {
        true => "its thread panicked",
        false => "it left the group",
    };
    let reason = format!("{} will never make this call: {how}", shared.names_of(&gone));
    let call = shared.describe(rank, operation);
    shared.fail(Error::new(ErrorKind::RankDied, call, reason).about_ranks(gone));
}

/// Breaks the group because the deadline passed, and says so if ranks wait for each other in a circle.
///
/// Other groups of the circle are not broken: who they wait for may come yet. What was seen is left
/// with their calls, for when their own deadlines pass.
pub(crate) fn report_late(shared: &Shared, rank: usize, call: &str, absent: &[usize]) {
    let deadline = shared.config.deadline;
    if let Some(circle) = find_circle(shared, rank) {
        let steps: Vec<String> = circle.iter().map(|it| it.words.clone()).collect();
        let reason = format!(
            "the deadline of {deadline:?} passed and the calls wait for each other: {}",
            steps.join("; ")
        );
        let mut ranks: Vec<usize> = circle.iter().map(|it| it.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let error = Error::new(ErrorKind::Cycle, call.to_owned(), reason).about_ranks(ranks);
        for wait in circle.iter().filter(|it| !std::ptr::eq(&*it.group, shared)) {
            if let Some(seat) = wait.group.seat(wait.rank) {
                let (call, circle) = (wait.call.clone(), error.clone());
                *lock(&seat.suspicion) = Some(Suspicion { call, circle });
            }
        }
        shared.fail(error);
        return;
    }
    let suspicion = shared.seat(rank).and_then(|it| lock(&it.suspicion).take());
    if let Some(seen) = suspicion.filter(|it| it.call == call) {
        shared.fail(seen.circle);
        return;
    }
    let reason = match absent.is_empty() {
        true => format!("the deadline of {deadline:?} passed before the work was done"),
        false => {
            let names = shared.names_of(absent);
            format!("the deadline of {deadline:?} passed and {names} did not come")
        }
    };
    let error = Error::new(ErrorKind::DeadlineExceeded, call.to_owned(), reason);
    shared.fail(error.on(shared.name_of(rank)).about_ranks(absent));
}

/// One wait: somebody's call in some group, for somebody who has not come.
#[derive(Clone)]
struct Wait {
    group: Arc<Shared>,
    rank: usize,
    party: Party,
    for_party: Party,
    call: String,
    words: String,
}

/// Every wait in this group, and in every other one of the process that has not failed, where it has
/// lasted for a while: a call that has just begun waits for nobody yet in earnest.
fn waits(here: &Shared) -> Vec<Wait> {
    let mut waits = Vec::new();
    for group in registry::living().into_iter().filter(|it| it.failure().is_none()) {
        for (rank, seat) in group.seats.iter().enumerate() {
            let Some(&party) = seat.party.get() else { continue };
            let current = lock(&seat.current);
            let (operation, since) = (current.operation, current.since);
            drop(current);
            let Some(operation) = operation else { continue };
            let lasted = since.map_or(Duration::ZERO, |it| it.elapsed());
            if !std::ptr::eq(&*group, here) && lasted < group.config.deadline / 2 {
                continue;
            }
            let (absent, call) = (group.absent(rank, operation), group.describe(rank, operation));
            for other in absent {
                let Some(&for_party) = group.seat(other).and_then(|it| it.party.get()) else {
                    continue;
                };
                let (me, it) = (group.name_of(rank), group.name_of(other));
                let words = format!("{me} waits in {call} for {it}");
                let (group, call) = (group.clone(), call.clone());
                waits.push(Wait { group, rank, party, for_party, call, words });
            }
        }
    }
    waits
}

type ByParty = HashMap<Party, Vec<Wait>>;

/// A circle of waits that this rank is in, or waits for.
fn find_circle(shared: &Shared, rank: usize) -> Option<Vec<Wait>> {
    let start = *shared.seat(rank)?.party.get()?;
    let mut by_party = ByParty::new();
    for wait in waits(shared) {
        by_party.entry(wait.party).or_default().push(wait);
    }
    let mut reached = vec![start];
    let mut at = 0;
    while let Some(&party) = reached.get(at) {
        if let Some(circle) = circle_through(party, &by_party) {
            return Some(circle);
        }
        for wait in by_party.get(&party).into_iter().flatten() {
            if !reached.contains(&wait.for_party) {
                reached.push(wait.for_party);
            }
        }
        at += 1;
    }
    None
}

/// A shortest circle of waits through this party.
fn circle_through(start: Party, by_party: &ByParty) -> Option<Vec<Wait>> {
    // A search in breadth; each party is entered once.
    let mut came_by: HashMap<Party, Wait> = HashMap::new();
    let mut front = VecDeque::from([start]);
    while let Some(party) = front.pop_front() {
        for wait in by_party.get(&party).into_iter().flatten() {
            if wait.for_party == start {
                let mut circle = vec![wait.clone()];
                let mut at = party;
                while at != start {
                    let step = came_by.get(&at)?.clone();
                    at = step.party;
                    circle.push(step);
                }
                circle.reverse();
                return Some(circle);
            }
            if let Entered::Vacant(place) = came_by.entry(wait.for_party) {
                place.insert(wait.clone());
                front.push_back(wait.for_party);
            }
        }
    }
    None
}
