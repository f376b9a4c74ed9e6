//! What happens when ranks disagree, don't come, die, or wait for each other.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod absence;
mod aftermath;
mod circles;
#[path = "../common/mod.rs"]
mod common;
mod disagreement;

use std::time::Duration;

use aether_collective::{Group, ReduceOp};
use aether_core::{Error, ErrorKind, Result, View, ViewMut};
use aether_host::Host;

/// A deadline that tests can wait for.
pub(crate) const SOON: Duration = Duration::from_millis(150);
/// How much later than its deadline an error may come on a busy machine.
pub(crate) const SLACK: Duration = Duration::from_secs(20);

pub(crate) type Member = Group<Host>;

pub(crate) fn all_reduce<T: aether_core::Element>(
    group: &mut Member,
    count: usize,
    op: ReduceOp,
) -> Result<()> {
    let mut data = vec![T::default(); count];
    group.all_reduce_in_place(&mut ViewMut::new(&mut data, [count])?, op)
}

pub(crate) fn broadcast(group: &mut Member, count: usize, root: usize) -> Result<()> {
    let mut data = vec![1f32; count];
    group.broadcast_in_place(&mut ViewMut::new(&mut data, [count])?, root)
}

pub(crate) fn gather_v(group: &mut Member, counts: &[u64]) -> Result<()> {
    let total: u64 = counts.iter().sum();
    let src = vec![1f32; counts[group.rank()] as usize];
    let mut dst = vec![0f32; total as usize];
    let mut dst = ViewMut::new(&mut dst, [total as usize])?;
    group.all_gather_v(&View::new(&src, [src.len()])?, &mut dst, counts)
}

pub(crate) fn exchange_v(group: &mut Member, counts: &[u64; 9]) -> Result<()> {
    let rank = group.rank();
    let sent: u64 = (0..3).map(|it| counts[rank * 3 + it]).sum();
    let received: u64 = (0..3).map(|it| counts[it * 3 + rank]).sum();
    let (src, mut dst) = (vec![1f32; sent as usize], vec![0f32; received as usize]);
    let mut dst = ViewMut::new(&mut dst, [received as usize])?;
    group.all_to_all_v(&View::new(&src, [src.len()])?, &mut dst, counts)
}

/// What went wrong, also for a rank that made its call so late that the group was broken already.
pub(crate) fn first(error: &Error) -> ErrorKind {
    match error.kind() {
        ErrorKind::GroupBroken => {
            let source = std::error::Error::source(error).unwrap();
            source.downcast_ref::<Error>().unwrap().kind()
        }
        kind => kind,
    }
}
