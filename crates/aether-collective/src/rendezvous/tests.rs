//! Ranks that meet, and those that can't.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use aether_core::{Device, DeviceId, ErrorKind, Result};

use super::{InProcess, Met, Rendezvous, meet};
use crate::GroupConfig;
use crate::paper::Paper;

const SOON: Duration = Duration::from_secs(60);

fn meet_at(at: &dyn Rendezvous, deadline: Duration) -> Result<Met<Paper>> {
    let device = Device::cpu(at.rank() as u32 * 10);
    meet(at, &device, &GroupConfig::default().with_deadline(deadline))
}

/// A rendezvous that tells lies about who takes part.
struct Says<'a> {
    inner: &'a InProcess,
    rank: usize,
    ranks: usize,
}

impl Rendezvous for Says<'_> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.ranks
    }

    fn place(&self) -> String {
        "a test".to_owned()
    }

    fn post(&self, key: &str, value: &[u8]) -> Result<()> {
        self.inner.post(key, value)
    }

    fn look_up(&self, key: &str) -> Result<Option<Vec<u8>>> {
        self.inner.look_up(key)
    }
}

#[test]
fn ranks_meet_and_agree_on_everything() {
    let handles = InProcess::new(3);
    let met: Vec<Met<Paper>> = std::thread::scope(|scope| {
        let meet = |at: &InProcess| {
            let at = at.clone();
            scope.spawn(move || meet_at(&at, SOON))
        };
        let meeting: Vec<_> = handles.iter().map(meet).collect();
        meeting.into_iter().map(|it| it.join().unwrap().unwrap()).collect()
    });
    let cpu = |index| Device::cpu(index).id();
    let devices: Vec<DeviceId> = vec![cpu(0), cpu(10), cpu(20)];
    for one in &met {
        assert_eq!(one.id.devices(), devices);
        assert_eq!((&one.id, one.unique), (&met[0].id, met[0].unique));
        assert!(!one.id.spreads(), "all of this process");
    }
}

#[test]
fn a_group_knows_whether_it_spreads_over_processes() {
    let handles = InProcess::new(2);
    handles[1].post("rank-1", b"2 1:1 7").unwrap();
    let met = meet_at(&handles[0], SOON).unwrap();
    assert_eq!(met.id.processes().len(), 2);
    assert_eq!(met.id.processes()[1], 7);
    assert!(met.id.spreads());
}

#[test]
fn absent_ranks_are_named_at_the_deadline() {
    let handles = InProcess::new(4);
    handles[3].post("rank-3", b"4 1:3 7").unwrap();
    let error = meet_at(&handles[1], Duration::ZERO).map(drop).unwrap_err();
    assert_eq!((error.kind(), error.ranks()), (ErrorKind::DeadlineExceeded, [0, 2].as_slice()));
}

#[test]
fn a_rank_that_comes_twice_is_refused() {
    let handles = InProcess::new(2);
    assert!(meet_at(&handles[1], Duration::ZERO).is_err());
    let error = meet_at(&handles[1], SOON).map(drop).unwrap_err();
    assert_eq!((error.kind(), error.ranks()), (ErrorKind::InvalidArgument, [1].as_slice()));
}

/// The one with the larger world would otherwise wait for a rank that nobody is.
#[test]
fn world_sizes_that_differ_are_told_at_once_by_both() {
    let handles = InProcess::new(2);
    let larger = Says { inner: &handles[0], rank: 0, ranks: 3 };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| meet_at(&handles[1], SOON).map(drop).unwrap_err());
        let error = meet_at(&larger, SOON).map(drop).unwrap_err();
        assert_eq!((error.kind(), error.ranks()), (ErrorKind::SizeMismatch, [1].as_slice()));
        let error = other.join().unwrap();
        assert_eq!((error.kind(), error.ranks()), (ErrorKind::SizeMismatch, [0].as_slice()));
    });
}

#[test]
fn ranks_out_of_range_and_worlds_too_large_are_errors() {
    let handles = InProcess::new(1);
    let at = |rank, ranks| Says { inner: &handles[0], rank, ranks };
    for (rank, ranks) in [(0, 0), (3, 3)] {
        let error = meet_at(&at(rank, ranks), SOON).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RankOutOfRange, "rank {rank} of {ranks}");
    }
    let error = meet_at(&at(0, usize::MAX), SOON).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
}

#[test]
fn what_makes_no_sense_is_refused_with_its_rank() {
    for junk in ["", "2", "two 1:0 7", "2 1 7", "2 1:x 7", "2 cpu:0 7", "2 1:1", "2 1:1 x"] {
        let handles = InProcess::new(2);
        handles[1].post("rank-1", junk.as_bytes()).unwrap();
        let error = meet_at(&handles[0], SOON).map(drop).unwrap_err();
        assert_eq!((error.kind(), error.ranks()), (ErrorKind::Parse, [1].as_slice()), "{junk}");
    }
    for junk in [&b"short"[..], &[0; 9]] {
        let handles = InProcess::new(2);
        handles[0].post("rank-0", b"2 1:0 7").unwrap();
        handles[0].post("id", junk).unwrap();
        let error = meet_at(&handles[1], SOON).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Parse, "{junk:?}");
    }
}
