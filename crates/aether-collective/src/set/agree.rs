//! Members of one caller that disagree are told before anything is queued; between callers only the
//! driver can tell.

use aether_core::{DType, Error, ErrorKind, Result, SpanMut};

use crate::call::Call;
use crate::member::Member;
use crate::plan::Plan;
use crate::{CollectiveDriver, Signature};

/// Compares the members' calls.
///
/// # Errors
/// `RankMismatch`, naming two calls that differ and the ranks that make them.
pub(crate) fn check<D: CollectiveDriver>(
    members: &[Member<D>],
    plans: &[Plan<'_, D>],
) -> Result<()> {
    let Some((first, others)) = plans.split_first().filter(|(_, others)| !others.is_empty()) else {
        return Ok(());
    };
    let first = signature(first);
    match others.iter().map(signature).find(|it| *it != first) {
        None => Ok(()),
        Some(other) => Err(refuse(members, plans, first, other)),
    }
}

fn refuse<D: CollectiveDriver>(
    members: &[Member<D>],
    plans: &[Plan<'_, D>],
    first: Signature,
    other: Signature,
) -> Error {
    let made = |which: Signature| {
        let both = members.iter().zip(plans).filter(move |(_, plan)| signature(plan) == which);
        both.map(|(member, _)| member)
    };
    let names = |which: Signature| {
        let names = made(which).map(|it| format!("rank {} ({})", it.rank, it.device));
        names.collect::<Vec<_>>().join(", ")
    };
    let (some, others) = (names(first), names(other));
    let reason = format!("the ranks disagree: {some} called {first}, and {others} called {other}");
    let ranks: Vec<usize> = made(first).chain(made(other)).map(|it| it.rank).collect();
    Error::new(ErrorKind::RankMismatch, first.operation.name(), reason).about_ranks(ranks)
}

/// What the members have to agree on. Messages differ by design: their ends are matched by the driver.
fn signature<D: CollectiveDriver>(plan: &Plan<'_, D>) -> Signature {
    let written = plan.writes.first().map(SpanMut::as_span);
    let dtype = plan.reads.first().copied().or(written).map_or(DType::U8, |it| it.dtype());
    let plain = |count| Signature::new(plan.operation, dtype, count);
    let listed = |counts: &[u64]| {
        let total = counts.iter().fold(0u64, |sum, &it| sum.wrapping_add(it));
        Signature { counts: Signature::digest(counts), ..plain(total) }
    };
    match &plan.call {
        Call::AllReduce { elements, op, .. } | Call::ReduceScatter { elements, op, .. } => {
            Signature { op: Some(*op), ..plain(elements.count) }
        }
        Call::AllGather { elements, .. } | Call::AllToAll { elements, .. } => plain(elements.count),
        Call::AllGatherV { counts, .. } | Call::AllToAllV { counts, .. } => listed(counts),
        Call::ReduceScatterV { counts, op, .. } => Signature { op: Some(*op), ..listed(counts) },
        Call::Broadcast { elements, root, .. }
        | Call::Gather { elements, root, .. }
        | Call::Scatter { elements, root, .. } => {
            Signature { root: Some(*root), ..plain(elements.count) }
        }
        Call::Reduce { elements, op, root, .. } => {
            Signature { op: Some(*op), root: Some(*root), ..plain(elements.count) }
        }
        Call::Barrier => plain(0),
        Call::Batch(_) => Signature::new(plan.operation, DType::U8, 0),
    }
}
