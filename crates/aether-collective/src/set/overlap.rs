//! Members' buffers must not overlap where one rank writes: the collective has no order among them.

use aether_core::{Error, ErrorKind, Result, Span, SpanMut};
use smallvec::SmallVec;

use crate::CollectiveDriver;
use crate::plan::Plan;

struct Part<'p> {
    span: Span<'p>,
    writes: bool,
    rank: usize,
}

/// Refuses a range that one rank writes and another touches in the same call.
///
/// # Errors
/// `Overlap`, naming both ranks and ranges.
pub(crate) fn check<D: CollectiveDriver>(plans: &[Plan<'_, D>]) -> Result<()> {
    if plans.len() < 2 {
        return Ok(());
    }
    let mut parts = SmallVec::<[Part<'_>; 16]>::new();
    for (rank, plan) in plans.iter().enumerate() {
        let reads = plan.reads.iter().map(|&span| (span, false));
        let writes = plan.writes.iter().map(|span| (SpanMut::as_span(span), true));
        let both = reads.chain(writes).filter(|(span, _)| span.bytes() > 0);
        parts.extend(both.map(|(span, writes)| Part { span, writes, rank }));
    }
    parts.sort_unstable_by_key(|it| it.span.address());
    // Sorted by where they begin: whatever overlaps a part is still open when it begins.
    let mut open = SmallVec::<[&Part<'_>; 16]>::new();
    for part in &parts {
        open.retain(|it| it.span.range().end > part.span.range().start);
        let conflicts = |it: &&&Part<'_>| {
            (it.writes || part.writes) && it.rank != part.rank && it.span.overlaps(&part.span)
        };
        if let Some(other) = open.iter().find(conflicts) {
            return Err(refuse(plans, part, other));
        }
        open.push(part);
    }
    Ok(())
}

fn refuse<D: CollectiveDriver>(plans: &[Plan<'_, D>], one: &Part<'_>, other: &Part<'_>) -> Error {
    let name = plans.first().map_or("collective", |it| it.operation.name());
    let verb = |it: &Part<'_>| if it.writes { "writes" } else { "reads" };
    let reason = format!(
        "rank {} {} {:?} and rank {} {} {:?}, which overlap",
        one.rank,
        verb(one),
        one.span,
        other.rank,
        verb(other),
        other.span
    );
    Error::new(ErrorKind::Overlap, name, reason).about_ranks([one.rank, other.rank])
}
