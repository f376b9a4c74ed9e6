//! From a request to a checked call: everything that can be refused is refused here, before anything
//! is queued on any member.

mod check;
#[cfg(test)]
mod tests;

use std::ops::Range;

use aether_core::{Device, Result, Span, SpanMut};
use smallvec::SmallVec;

use crate::call::{Call, Post};
use crate::compose::Scratch;
use crate::{CollectiveDriver, Message, OpName, Request};

pub(crate) use check::chunk_of;
use check::is_same;

/// Who asks.
#[derive(Clone, Copy)]
pub(crate) struct Asker<'a> {
    pub(crate) device: &'a Device,
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
}

/// A checked call and what it touches.
pub(crate) struct Plan<'a, D: CollectiveDriver> {
    pub(crate) operation: OpName,
    pub(crate) call: Call<D>,
    pub(crate) reads: SmallVec<[Span<'a>; 2]>,
    pub(crate) writes: SmallVec<[SpanMut<'a>; 1]>,
    /// Memory of the member's own that a composed call needs.
    pub(crate) scratch: Option<Box<Scratch<D>>>,
}

impl<D: CollectiveDriver> Plan<'_, D> {
    /// The call, to be made.
    pub(crate) fn take_call(&mut self) -> Call<D> {
        std::mem::replace(&mut self.call, Call::Barrier)
    }
}

impl Asker<'_> {
    /// Checks the request and resolves it for the driver.
    ///
    /// # Errors
    /// Every refusal of aether's semantics.
    pub(crate) fn plan<'a, D: CollectiveDriver>(self, request: Request<'a>) -> Result<Plan<'a, D>> {
        let check = Check { asker: self, operation: request.operation() };
        check.plan(request)
    }
}

struct Check<'d> {
    asker: Asker<'d>,
    operation: OpName,
}

impl Check<'_> {
    fn plan<'a, D: CollectiveDriver>(&self, request: Request<'a>) -> Result<Plan<'a, D>> {
        match request {
            Request::AllReduce { src, dst, op } => {
                let to = dst.as_span();
                let elements = self.buffer::<D>(&to)?;
                self.reduces::<D>(to.dtype(), op)?;
                if let Some(src) = &src {
                    self.beside::<D>(src, &to)?;
                    self.sized(src.bytes(), to.bytes(), "the source", "the destination")?;
                }
                let src = self.apart(src, &to, &to)?;
                let (from, to) = (resource::<D>(src.as_ref().unwrap_or(&to)), resource::<D>(&to));
                self.unless_in_place(
                    Call::AllReduce { src: from, dst: to, elements, op },
                    src,
                    dst,
                    |bytes| 0..bytes,
                )
            }
            Request::AllGather { src, dst } => {
                let to = dst.as_span();
                self.buffer::<D>(&to)?;
                let chunk = self.chunk(&to)?;
                let own = self.own(&to, chunk)?;
                let elements = self.elements::<D>(&own)?;
                if let Some(src) = &src {
                    self.beside::<D>(src, &to)?;
                    self.sized(src.bytes(), chunk, "the source", "a chunk of the destination")?;
                }
                let src = self.apart(src, &own, &to)?;
                let (from, to) = (resource::<D>(src.as_ref().unwrap_or(&own)), resource::<D>(&to));
                let start = self.asker.rank * chunk;
                let call = Call::AllGather { src: from, dst: to, elements };
                self.unless_in_place(call, src, dst, |_| start..start + chunk)
            }
            Request::AllGatherV { src, dst, counts } => {
                let to = dst.as_span();
                self.buffer::<D>(&to)?;
                let sizes = self.sizes(counts, to.dtype().size(), self.asker.ranks)?;
                self.total(sizes.iter().copied(), &to, "the destination")?;
                let at = chunk_of(sizes.iter().copied(), self.asker.rank);
                let own = to.part(at.start, at.len())?;
                let elements = self.elements::<D>(&own)?;
                if let Some(src) = &src {
                    self.beside::<D>(src, &to)?;
                    self.sized(src.bytes(), at.len(), "the source", "this rank's count")?;
                }
                let src = self.apart(src, &own, &to)?;
                let (from, to) = (resource::<D>(src.as_ref().unwrap_or(&own)), resource::<D>(&to));
                let call = Call::AllGatherV { src: from, dst: to, elements, counts: counts.into() };
                self.unless_in_place(call, src, dst, |_| at)
            }
            Request::ReduceScatter { src, dst, op } => {
                let to = dst.as_span();
                self.buffer::<D>(&src)?;
                let elements = self.beside::<D>(&to, &src)?;
                self.reduces::<D>(src.dtype(), op)?;
                let chunk = self.chunk(&src)?;
                self.sized(to.bytes(), chunk, "the destination", "a chunk of the source")?;
                if !is_same(&to, &self.own(&src, chunk)?) {
                    self.no_overlap(&src, &to)?;
                }
                let (from, to) = (resource::<D>(&src), resource::<D>(&to));
                let call = Call::ReduceScatter { src: from, dst: to, elements, op };
                self.done(call, Some(src), Some(dst))
            }
            Request::ReduceScatterInPlace { buffer, op } => {
                let whole = buffer.as_span();
                self.buffer::<D>(&whole)?;
                self.reduces::<D>(whole.dtype(), op)?;
                let chunk = self.chunk(&whole)?;
                let own = self.own(&whole, chunk)?;
                let elements = self.elements::<D>(&own)?;
                let (from, to) = (resource::<D>(&whole), resource::<D>(&own));
                let call = Call::ReduceScatter { src: from, dst: to, elements, op };
                let mut plan = self.in_place(call, buffer, |bytes| 0..bytes)?;
                let start = self.asker.rank * chunk;
                let only = plan.writes.pop().map(|it| it.into_part(start, chunk)).transpose()?;
                plan.writes.extend(only);
                Ok(plan)
            }
            Request::ReduceScatterV { src, dst, counts, op } => {
                let to = dst.as_span();
                self.buffer::<D>(&src)?;
                let elements = self.beside::<D>(&to, &src)?;
                self.reduces::<D>(src.dtype(), op)?;
                let sizes = self.sizes(counts, src.dtype().size(), self.asker.ranks)?;
                self.total(sizes.iter().copied(), &src, "the source")?;
                let at = chunk_of(sizes.iter().copied(), self.asker.rank);
                self.sized(to.bytes(), at.len(), "the destination", "this rank's count")?;
                if !is_same(&to, &src.part(at.start, at.len())?) {
                    self.no_overlap(&src, &to)?;
                }
                let call = Call::ReduceScatterV {
                    src: resource::<D>(&src),
                    dst: resource::<D>(&to),
                    elements,
                    counts: counts.into(),
                    op,
                };
                self.done(call, Some(src), Some(dst))
            }
            Request::Broadcast { src, dst, root } => {
                self.in_group("root", root)?;
                let at_root = root == self.asker.rank;
                self.only_root("a source", src.is_none() || at_root)?;
                let whole = dst.as_span();
                let elements = self.buffer::<D>(&whole)?;
                if let Some(src) = &src {
                    self.beside::<D>(src, &whole)?;
                    self.sized(src.bytes(), whole.bytes(), "the source", "the destination")?;
                }
                let src = self.apart(src, &whole, &whole)?;
                let to = resource::<D>(&whole);
                let from = src.as_ref().map(resource::<D>).or(at_root.then_some(to));
                let call = Call::Broadcast { src: from, dst: to, elements, root };
                self.unless_in_place(call, src, dst, |bytes| 0..if at_root { bytes } else { 0 })
            }
            Request::AllToAll { src, dst } => {
                let to = dst.as_span();
                self.buffer::<D>(&src)?;
                self.beside::<D>(&to, &src)?;
                let chunk = self.chunk(&src)?;
                self.sized(to.bytes(), src.bytes(), "the destination", "the source")?;
                self.no_overlap(&src, &to)?;
                let elements = self.elements::<D>(&self.own(&src, chunk)?)?;
                let call = Call::AllToAll {
                    src: resource::<D>(&src),
                    dst: resource::<D>(&to),
                    elements,
                    ranks: self.asker.ranks,
                };
                self.done(call, Some(src), Some(dst))
            }
            Request::AllToAllV { src, dst, counts } => {
                let to = dst.as_span();
                let elements = self.buffer::<D>(&src)?;
                self.beside::<D>(&to, &src)?;
                let (rank, ranks) = (self.asker.rank, self.asker.ranks);
                let pairs = ranks.checked_mul(ranks).ok_or_else(|| self.overflow())?;
                let sizes = self.sizes(counts, src.dtype().size(), pairs)?;
                let sent = sizes.iter().copied().skip(rank * ranks).take(ranks);
                let received = sizes.iter().copied().skip(rank).step_by(ranks);
                self.total(sent, &src, "the source")?;
                self.total(received, &to, "the destination")?;
                self.no_overlap(&src, &to)?;
                let (from, to) = (resource::<D>(&src), resource::<D>(&to));
                let call = Call::AllToAllV { src: from, dst: to, elements, counts: counts.into() };
                self.done(call, Some(src), Some(dst))
            }
            Request::Gather { src, dst, root } => {
                self.in_group("root", root)?;
                self.only_root("a destination", dst.is_some() == (root == self.asker.rank))?;
                let elements = self.buffer::<D>(&src)?;
                if let Some(to) = dst.as_ref().map(SpanMut::as_span) {
                    self.beside::<D>(&to, &src)?;
                    let chunk = self.chunk(&to)?;
                    self.sized(src.bytes(), chunk, "the source", "a chunk of the destination")?;
                    self.no_overlap(&src, &to)?;
                }
                let to = dst.as_ref().map(|it| resource::<D>(&it.as_span()));
                let call = Call::Gather { src: resource::<D>(&src), dst: to, elements, root };
                self.done(call, Some(src), dst)
            }
            Request::Scatter { src, dst, root } => {
                self.in_group("root", root)?;
                self.only_root("a source", src.is_some() == (root == self.asker.rank))?;
                let to = dst.as_span();
                let elements = self.buffer::<D>(&to)?;
                if let Some(src) = &src {
                    self.beside::<D>(src, &to)?;
                    let chunk = self.chunk(src)?;
                    self.sized(to.bytes(), chunk, "the destination", "a chunk of the source")?;
                    self.no_overlap(src, &to)?;
                }
                let (from, to) = (src.as_ref().map(resource::<D>), resource::<D>(&to));
                self.done(Call::Scatter { src: from, dst: to, elements, root }, src, Some(dst))
            }
            Request::Reduce { src, dst, op, root } => {
                self.in_group("root", root)?;
                self.only_root("a destination", dst.is_some() == (root == self.asker.rank))?;
                let elements = self.buffer::<D>(&src)?;
                self.reduces::<D>(src.dtype(), op)?;
                if let Some(to) = dst.as_ref().map(SpanMut::as_span) {
                    self.beside::<D>(&to, &src)?;
                    self.sized(to.bytes(), src.bytes(), "the destination", "the source")?;
                    self.apart(Some(src), &to, &to)?;
                }
                let to = dst.as_ref().map(|it| resource::<D>(&it.as_span()));
                let call = Call::Reduce { src: resource::<D>(&src), dst: to, elements, op, root };
                self.done(call, Some(src), dst)
            }
            Request::Barrier => self.done(Call::Barrier, None, None),
            Request::Batch(messages) => self.batch(messages),
        }
    }

    fn batch<'a, D: CollectiveDriver>(
        &self,
        messages: SmallVec<[Message<'a>; 2]>,
    ) -> Result<Plan<'a, D>> {
        let mut posts = SmallVec::with_capacity(messages.len());
        let mut reads = SmallVec::<[Span<'a>; 2]>::new();
        let mut writes = SmallVec::<[SpanMut<'a>; 1]>::new();
        for message in messages {
            match message {
                Message::Send { src, peer } => {
                    self.in_group("peer", peer)?;
                    let elements = self.buffer::<D>(&src)?;
                    posts.push(Post::Send { src: resource::<D>(&src), elements, peer });
                    reads.push(src);
                }
                Message::Recv { dst, peer } => {
                    self.in_group("peer", peer)?;
                    let elements = self.buffer::<D>(&dst.as_span())?;
                    posts.push(Post::Recv { dst: resource::<D>(&dst.as_span()), elements, peer });
                    writes.push(dst);
                }
            }
        }
        for (at, dst) in writes.iter().enumerate() {
            let others = writes.iter().take(at).map(SpanMut::as_span);
            let others = reads.iter().copied().chain(others);
            others.into_iter().try_for_each(|other| self.no_overlap(&other, &dst.as_span()))?;
        }
        Ok(Plan {
            operation: self.operation,
            call: Call::Batch(posts),
            reads,
            writes,
            scratch: None,
        })
    }

    /// A call that reads its source, or in the in-place form this part of its destination.
    fn unless_in_place<'a, D: CollectiveDriver>(
        &self,
        call: Call<D>,
        src: Option<Span<'a>>,
        dst: SpanMut<'a>,
        reads: impl FnOnce(usize) -> Range<usize>,
    ) -> Result<Plan<'a, D>> {
        match src {
            Some(src) => self.done(call, Some(src), Some(dst)),
            None => self.in_place(call, dst, reads),
        }
    }

    fn in_place<'a, D: CollectiveDriver>(
        &self,
        call: Call<D>,
        dst: SpanMut<'a>,
        reads: impl FnOnce(usize) -> Range<usize>,
    ) -> Result<Plan<'a, D>> {
        let reads = reads(dst.as_span().bytes());
        // SAFETY: the plan goes to one operation, which is told of both ("they are only given to one
        // operation"); a plan that is dropped instead has accessed nothing.
        let own = unsafe { dst.alias() }.part(reads.start, reads.len())?;
        self.done(call, Some(own).filter(|it| it.bytes() > 0), Some(dst))
    }

    fn done<'a, D: CollectiveDriver>(
        &self,
        call: Call<D>,
        src: Option<Span<'a>>,
        dst: Option<SpanMut<'a>>,
    ) -> Result<Plan<'a, D>> {
        // Pushed, because collecting takes a loop for what is one at most.
        let (mut reads, mut writes) = (SmallVec::new(), SmallVec::new());
        if let Some(src) = src {
            reads.push(src);
        }
        if let Some(dst) = dst {
            writes.push(dst);
        }
        Ok(Plan { operation: self.operation, call, reads, writes, scratch: None })
    }
}

pub(crate) fn resource<D: CollectiveDriver>(span: &Span<'_>) -> D::Resource {
    D::resource(span.region())
}
