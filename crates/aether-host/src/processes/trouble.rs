//! What is said when a call can't end: who is gone, who did not come, who waits in a circle.

use std::collections::VecDeque;

use aether_core::{Error, ErrorKind};

use super::table::Table;

/// Breaks the group because ranks that the call waits for are gone, and how each went.
pub(crate) fn report_gone(table: &Table, call: &str, gone: &[&(usize, String)]) {
    let ranks: Vec<usize> = gone.iter().map(|it| it.0).collect();
    let how = gone.iter().map(|it| it.1.as_str()).find(|it| !it.starts_with("it left"));
    let how = how.or(gone.first().map(|it| it.1.as_str())).unwrap_or_default();
    let reason = format!("{} will never make this call: {how}", table.names_of(&ranks));
    table.fail(Error::new(ErrorKind::RankDied, call.to_owned(), reason).about_ranks(ranks));
}

/// Breaks the group because the deadline passed, and says so if ranks wait for each other in a circle.
pub(crate) fn report_late(table: &Table, call: &str, absent: &[usize]) {
    let deadline = table.config.deadline;
    let waits = waits(table, call, absent);
    if let Some(circle) = find_circle(table.rank, &waits) {
        let step = |&(rank, other): &(usize, usize)| {
            let call = waits.get(rank).and_then(Option::as_ref).map_or("", |it| it.0.as_str());
            format!("{} waits in {call} for {}", table.name_of(rank), table.name_of(other))
        };
        let steps: Vec<String> = circle.iter().map(step).collect();
        let reason = format!(
            "the deadline of {deadline:?} passed and the calls wait for each other: {}",
            steps.join("; ")
        );
        let mut ranks: Vec<usize> = circle.iter().map(|it| it.0).collect();
        ranks.sort_unstable();
        table.fail(Error::new(ErrorKind::Cycle, call.to_owned(), reason).about_ranks(ranks));
        return;
    }
    let reason = match absent.is_empty() {
        true => format!("the deadline of {deadline:?} passed before the work was done"),
        false => {
            let names = table.names_of(absent);
            format!("the deadline of {deadline:?} passed and {names} did not come")
        }
    };
    let error = Error::new(ErrorKind::DeadlineExceeded, call.to_owned(), reason);
    table.fail(error.on(table.name_of(table.rank)).about_ranks(absent));
}

/// A call in words, and the ranks that it waits for.
type Waits = Vec<Option<(String, Vec<usize>)>>;

/// What each rank waits for, as far as it shows.
fn waits(table: &Table, call: &str, absent: &[usize]) -> Waits {
    let shown = |(rank, peer): (usize, &super::participant::Peer)| match rank == table.rank {
        true => Some((call.to_owned(), absent.to_vec())),
        false => peer.header().wait.read(),
    };
    table.peers.iter().enumerate().map(shown).collect()
}

/// A shortest circle among the ranks that wait for each other, of those that `rank` is in or waits for: who
/// waits for whom.
fn find_circle(rank: usize, waits: &Waits) -> Option<Vec<(usize, usize)>> {
    let mut reached = vec![rank];
    let mut at = 0;
    while let Some(&start) = reached.get(at) {
        if let Some(circle) = circle_through(start, waits) {
            return Some(circle);
        }
        for &other in on(start, waits) {
            if !reached.contains(&other) {
                reached.push(other);
            }
        }
        at += 1;
    }
    None
}

fn on(rank: usize, waits: &Waits) -> &[usize] {
    waits.get(rank).and_then(Option::as_ref).map_or(&[], |it| it.1.as_slice())
}

fn circle_through(start: usize, waits: &Waits) -> Option<Vec<(usize, usize)>> {
    let mut came_from: Vec<Option<usize>> = vec![None; waits.len()];
    let mut front = VecDeque::from([start]);
    while let Some(rank) = front.pop_front() {
        for &other in on(rank, waits) {
            if other == start {
                let mut circle = vec![(rank, start)];
                let mut at = rank;
                while at != start {
                    let before = (*came_from.get(at)?)?;
                    circle.push((before, at));
                    at = before;
                }
                circle.reverse();
                return Some(circle);
            }
            if let Some(place @ None) = came_from.get_mut(other) {
                *place = Some(rank);
                front.push_back(other);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits_of(list: &[&[usize]]) -> Waits {
        let wait = |it: &&[usize]| (!it.is_empty()).then(|| (String::new(), it.to_vec()));
        list.iter().map(wait).collect()
    }

    #[test]
    fn the_shortest_circle_is_found_also_by_one_who_only_waits_for_it() {
        let waits = waits_of(&[&[1], &[2], &[1, 3], &[0]]);
        assert_eq!(find_circle(0, &waits), Some(vec![(0, 1), (1, 2), (2, 3), (3, 0)]));
        assert_eq!(find_circle(2, &waits), Some(vec![(2, 1), (1, 2)]));
        let waits = waits_of(&[&[1], &[2], &[1], &[]]);
        assert_eq!(find_circle(0, &waits), Some(vec![(1, 2), (2, 1)]));
    }

    #[test]
    fn who_waits_for_one_who_waits_for_nobody_is_in_no_circle() {
        assert_eq!(find_circle(0, &waits_of(&[&[1, 2], &[2], &[]])), None);
        assert_eq!(find_circle(2, &waits_of(&[&[1, 2], &[2], &[]])), None);
    }
}
