//! Calls that a driver doesn't provide, made of those that every driver does.
//!
//! A call is first planned as if the driver provided it, so that it is refused for the same reasons.
//! What moves data becomes one batch of messages over the same memory. What reduces becomes an
//! all_reduce, into memory of the member's own where its destination is none of the caller's. Ranks of
//! several callers that disagree on such a call are told of the messages, or the all_reduce, that differ.

use std::ops::Range;

use aether_core::{Chunk, Completion, DType, Result, Span, SpanMut};
use smallvec::SmallVec;

use crate::call::{Call, Post};
use crate::member::Member;
use crate::plan::{Plan, chunk_of, resource};
use crate::{CollectiveDriver, Elements, ReduceOp};

/// Memory of the member's own that a composed call writes first.
pub(crate) struct Scratch<D: CollectiveDriver> {
    memory: Chunk,
    /// The call that follows: it reads this part of the scratch memory and writes what the plan writes.
    then: Option<(Call<D>, Range<usize>)>,
}

/// Rewrites the plan if the driver doesn't provide its call.
///
/// # Errors
/// `OutOfMemory`, and what else allocating scratch memory comes to; nothing was queued.
pub(crate) fn compose<D: CollectiveDriver>(
    plan: &mut Plan<'_, D>,
    member: &Member<D>,
) -> Result<()> {
    let can = D::capabilities();
    match &plan.call {
        Call::Gather { elements, root, .. } if !can.rooted => {
            let (elements, root) = (*elements, *root);
            plan.call = gather(plan, member, elements, root)?;
        }
        Call::Scatter { elements, root, .. } if !can.rooted => {
            let (elements, root) = (*elements, *root);
            plan.call = scatter(plan, member, elements, root)?;
        }
        &Call::Reduce { src, dst, elements, op, .. } if !can.rooted => match dst {
            Some(dst) => plan.call = Call::AllReduce { src, dst, elements, op },
            None => {
                let bytes = plan.reads.first().map_or(0, Span::bytes);
                let memory = Chunk::allocate(&member.device, bytes)?;
                let dst = whole::<D>(&memory)?;
                plan.call = Call::AllReduce { src, dst, elements, op };
                plan.scratch = Some(Box::new(Scratch { memory, then: None }));
            }
        },
        Call::Barrier if !can.barrier => {
            let memory = member.beat()?;
            let own = whole::<D>(&memory)?;
            let elements = D::elements(DType::F32, memory.size() as u64)?;
            plan.call = Call::AllReduce { src: own, dst: own, elements, op: ReduceOp::Sum };
            plan.scratch = Some(Box::new(Scratch { memory, then: None }));
        }
        Call::AllGatherV { counts, .. } if !can.vector => {
            plan.call = all_gather_v(plan, member, counts)?;
        }
        Call::AllToAllV { counts, .. } if !can.vector => {
            plan.call = all_to_all_v(plan, member, counts)?;
        }
        Call::ReduceScatterV { src, dst, elements, counts, op } if !can.vector => {
            let Some(from) = plan.reads.first() else { return Ok(()) };
            let memory = Chunk::allocate(&member.device, from.bytes())?;
            let own = chunk_of(sizes(counts, from), member.rank);
            let part = resource::<D>(&memory.span_of(own.clone(), DType::U8)?);
            let to_myself = Call::Batch(SmallVec::from_iter([
                Post::Send { src: part, elements: *elements, peer: member.rank },
                Post::Recv { dst: *dst, elements: *elements, peer: member.rank },
            ]));
            let elements = count::<D>(from)?;
            let (src, dst, op) = (*src, whole::<D>(&memory)?, *op);
            plan.call = Call::AllReduce { src, dst, elements, op };
            plan.scratch = Some(Box::new(Scratch { memory, then: Some((to_myself, own)) }));
        }
        _ => {}
    }
    Ok(())
}

impl<D: CollectiveDriver> Member<D> {
    /// Puts a composed call that needs scratch memory on the member's stream. The memory may go at once:
    /// it stays until the work on it has ended.
    ///
    /// # Errors
    /// Nothing is queued, or all that was has ended and the group is broken.
    ///
    /// # Safety
    /// Spans of the plan that are not tracked outlive the completion.
    pub(crate) unsafe fn enqueue_composed(
        &self,
        plan: &mut Plan<'_, D>,
        scratch: Scratch<D>,
    ) -> Result<Completion> {
        let Scratch { mut memory, then } = scratch;
        let writes = memory.span_of_mut(.., DType::U8)?;
        // SAFETY: the caller keeps what is not tracked; the scratch memory is a chunk's.
        let first = unsafe { self.put(plan.take_call(), &plan.reads, &[writes]) }?;
        let Some((call, part)) = then else {
            self.keep_beat(plan.operation, memory);
            return Ok(first);
        };
        let reads = memory.span_of(part, DType::U8);
        // SAFETY: as above.
        let second = reads.and_then(|part| unsafe { self.put(call, &[part], &plan.writes) });
        // The end of the second implies that of the first: they are on one stream.
        second.inspect_err(|error| {
            self.abort(error);
            drop(first.wait());
        })
    }
}

fn gather<D: CollectiveDriver>(
    plan: &Plan<'_, D>,
    member: &Member<D>,
    elements: Elements<D::DataType>,
    root: usize,
) -> Result<Call<D>> {
    let mut posts = SmallVec::new();
    for src in &plan.reads {
        posts.push(Post::Send { src: resource::<D>(src), elements, peer: root });
        for dst in plan.writes.iter().map(SpanMut::as_span) {
            for peer in 0..member.ranks {
                let part = dst.part(peer * src.bytes(), src.bytes())?;
                posts.push(Post::Recv { dst: resource::<D>(&part), elements, peer });
            }
        }
    }
    Ok(Call::Batch(posts))
}

fn scatter<D: CollectiveDriver>(
    plan: &Plan<'_, D>,
    member: &Member<D>,
    elements: Elements<D::DataType>,
    root: usize,
) -> Result<Call<D>> {
    let mut posts = SmallVec::new();
    for dst in plan.writes.iter().map(SpanMut::as_span) {
        posts.push(Post::Recv { dst: resource::<D>(&dst), elements, peer: root });
        for src in &plan.reads {
            for peer in 0..member.ranks {
                let part = src.part(peer * dst.bytes(), dst.bytes())?;
                posts.push(Post::Send { src: resource::<D>(&part), elements, peer });
            }
        }
    }
    Ok(Call::Batch(posts))
}

fn all_gather_v<D: CollectiveDriver>(
    plan: &Plan<'_, D>,
    member: &Member<D>,
    counts: &[u64],
) -> Result<Call<D>> {
    let mut posts = SmallVec::new();
    for dst in plan.writes.iter().map(SpanMut::as_span) {
        let at = |rank| chunk_of(sizes(counts, &dst), rank);
        let part = |rank| dst.part(at(rank).start, at(rank).len());
        let own = part(member.rank)?;
        // In place nothing goes to the rank itself; and there is no source at all if it is empty.
        let src = plan.reads.first().copied().unwrap_or(own);
        let in_place = src.range() == own.range();
        let elements = count::<D>(&own)?;
        for peer in (0..member.ranks).filter(|&it| it != member.rank || !in_place) {
            posts.push(Post::Send { src: resource::<D>(&src), elements, peer });
            let part = part(peer)?;
            let elements = count::<D>(&part)?;
            posts.push(Post::Recv { dst: resource::<D>(&part), elements, peer });
        }
    }
    Ok(Call::Batch(posts))
}

fn all_to_all_v<D: CollectiveDriver>(
    plan: &Plan<'_, D>,
    member: &Member<D>,
    counts: &[u64],
) -> Result<Call<D>> {
    let mut posts = SmallVec::new();
    let (rank, ranks) = (member.rank, member.ranks);
    for (src, dst) in plan.reads.iter().zip(&plan.writes) {
        let dst = dst.as_span();
        let sent = || sizes(counts, src).skip(rank * ranks).take(ranks);
        let received = || sizes(counts, src).skip(rank).step_by(ranks);
        for peer in 0..ranks {
            let (from, to) = (chunk_of(sent(), peer), chunk_of(received(), peer));
            let (from, to) = (src.part(from.start, from.len())?, dst.part(to.start, to.len())?);
            let (sends, takes) = (count::<D>(&from)?, count::<D>(&to)?);
            posts.push(Post::Send { src: resource::<D>(&from), elements: sends, peer });
            posts.push(Post::Recv { dst: resource::<D>(&to), elements: takes, peer });
        }
    }
    Ok(Call::Batch(posts))
}

/// The counts in bytes, of elements of the span's type. The planner found them to fit.
fn sizes<'c>(counts: &'c [u64], span: &Span<'_>) -> impl Iterator<Item = usize> + use<'c> {
    let size = span.dtype().size();
    counts.iter().map(move |&count| count as usize * size)
}

fn count<D: CollectiveDriver>(span: &Span<'_>) -> Result<Elements<D::DataType>> {
    D::elements(span.dtype(), span.bytes() as u64)
}

fn whole<D: CollectiveDriver>(memory: &Chunk) -> Result<D::Resource> {
    Ok(resource::<D>(&memory.span_of(.., DType::U8)?))
}
