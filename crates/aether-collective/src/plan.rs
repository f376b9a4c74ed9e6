//! From a request to a checked call: everything that can be refused is refused here, before anything
//! is queued on any member.

use std::ops::Range;

use aether_core::{DType, Device, Error, ErrorKind, Result, Span, SpanMut};
use smallvec::SmallVec;

use crate::call::{Call, Post};
use crate::driver::chunk_of;
use crate::{CollectiveDriver, Elements, Message, OpName, ReduceOp, Request};

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
                self.reduces::<D>(dst.as_span().dtype(), op)?;
                let elements = self.buffer::<D>(&dst.as_span())?;
                let Some(src) = self.unless_same(src, &dst) else {
                    let at = resource::<D>(&dst.as_span());
                    let call = Call::AllReduce { src: at, dst: at, elements, op };
                    return self.in_place(call, dst, |bytes| 0..bytes);
                };
                self.pair::<D>(&src, &dst, src.bytes())?;
                let call = Call::AllReduce {
                    src: resource::<D>(&src),
                    dst: resource::<D>(&dst.as_span()),
                    elements,
                    op,
                };
                self.moving(call, src, dst)
            }
            Request::AllGather { src, dst } => {
                let whole = dst.as_span();
                let chunk = self.chunk(&whole)?;
                let own = self.own(&whole, chunk)?;
                let elements = self.elements::<D>(&own)?;
                let in_place = src.is_none_or(|it| it.range() == own.range());
                let from = src.unwrap_or(own);
                if !in_place {
                    self.pair::<D>(&from, &dst, chunk)?;
                }
                self.buffer::<D>(&dst.as_span())?;
                let call = Call::AllGather {
                    src: resource::<D>(&from),
                    dst: resource::<D>(&dst.as_span()),
                    elements,
                };
                match src.filter(|_| !in_place) {
                    Some(src) => self.moving(call, src, dst),
                    None => {
                        let start = self.asker.rank * chunk;
                        self.in_place(call, dst, |_| start..start + chunk)
                    }
                }
            }
            Request::AllGatherV { src, dst, counts } => {
                let size = dst.as_span().dtype().size();
                let sizes = self.sizes(counts, size, self.asker.ranks)?;
                self.total(sizes.iter().copied(), &dst.as_span(), "the destination")?;
                let at = chunk_of(sizes.iter().copied(), self.asker.rank);
                let own = self.part(&dst.as_span(), at.clone())?;
                let elements = self.elements::<D>(&own)?;
                let in_place = src.is_none_or(|it| it.range() == own.range());
                let from = src.unwrap_or(own);
                if !in_place {
                    self.pair::<D>(&from, &dst, at.len())?;
                }
                self.buffer::<D>(&dst.as_span())?;
                let call = Call::AllGatherV {
                    src: resource::<D>(&from),
                    dst: resource::<D>(&dst.as_span()),
                    elements,
                    counts: counts.into(),
                };
                match src.filter(|_| !in_place) {
                    Some(src) => self.moving(call, src, dst),
                    None => self.in_place(call, dst, |_| at),
                }
            }
            Request::ReduceScatter { src, dst, op } => {
                self.reduces::<D>(src.dtype(), op)?;
                let chunk = self.chunk(&src)?;
                let own = self.own(&src, chunk)?;
                if dst.as_span().range() != own.range() {
                    self.no_overlap(&src, &dst)?;
                }
                self.sized(
                    dst.as_span().bytes(),
                    chunk,
                    "the destination",
                    "a chunk of the source",
                )?;
                self.same_type(&src, &dst.as_span())?;
                self.buffer::<D>(&src)?;
                let elements = self.buffer::<D>(&dst.as_span())?;
                let call = Call::ReduceScatter {
                    src: resource::<D>(&src),
                    dst: resource::<D>(&dst.as_span()),
                    elements,
                    op,
                };
                self.moving(call, src, dst)
            }
            Request::ReduceScatterInPlace { buffer, op } => {
                let whole = buffer.as_span();
                self.reduces::<D>(whole.dtype(), op)?;
                self.buffer::<D>(&whole)?;
                let chunk = self.chunk(&whole)?;
                let own = self.own(&whole, chunk)?;
                let elements = self.elements::<D>(&own)?;
                let call = Call::ReduceScatter {
                    src: resource::<D>(&whole),
                    dst: resource::<D>(&own),
                    elements,
                    op,
                };
                let at = self.asker.rank * chunk..(self.asker.rank + 1) * chunk;
                let mut plan = self.in_place(call, buffer, |bytes| 0..bytes)?;
                let only =
                    plan.writes.pop().map(|it| it.into_part(at.start, at.len())).transpose()?;
                plan.writes.extend(only);
                Ok(plan)
            }
            Request::ReduceScatterV { src, dst, counts, op } => {
                self.reduces::<D>(src.dtype(), op)?;
                let sizes = self.sizes(counts, src.dtype().size(), self.asker.ranks)?;
                self.total(sizes.iter().copied(), &src, "the source")?;
                let at = chunk_of(sizes.iter().copied(), self.asker.rank);
                let own = self.part(&src, at.clone())?;
                if dst.as_span().range() != own.range() {
                    self.no_overlap(&src, &dst)?;
                }
                self.sized(
                    dst.as_span().bytes(),
                    at.len(),
                    "the destination",
                    "this rank's count",
                )?;
                self.same_type(&src, &dst.as_span())?;
                self.buffer::<D>(&src)?;
                let elements = self.buffer::<D>(&dst.as_span())?;
                let call = Call::ReduceScatterV {
                    src: resource::<D>(&src),
                    dst: resource::<D>(&dst.as_span()),
                    elements,
                    counts: counts.into(),
                    op,
                };
                self.moving(call, src, dst)
            }
            Request::Broadcast { src, dst, root } => {
                self.in_group("root", root)?;
                let elements = self.buffer::<D>(&dst.as_span())?;
                let at_root = root == self.asker.rank;
                self.only_root("a source", src.is_none() || at_root)?;
                let to = resource::<D>(&dst.as_span());
                let Some(src) = self.unless_same(src, &dst) else {
                    let from = at_root.then_some(to);
                    let call = Call::Broadcast { src: from, dst: to, elements, root };
                    return self.in_place(call, dst, |bytes| 0..if at_root { bytes } else { 0 });
                };
                self.pair::<D>(&src, &dst, src.bytes())?;
                let from = Some(resource::<D>(&src));
                self.moving(Call::Broadcast { src: from, dst: to, elements, root }, src, dst)
            }
            Request::AllToAll { src, dst } => {
                let chunk = self.chunk(&src)?;
                self.pair::<D>(&src, &dst, src.bytes())?;
                self.buffer::<D>(&dst.as_span())?;
                let elements = self.elements::<D>(&self.own(&src, chunk)?)?;
                let call = Call::AllToAll {
                    src: resource::<D>(&src),
                    dst: resource::<D>(&dst.as_span()),
                    elements,
                    ranks: self.asker.ranks,
                };
                self.moving(call, src, dst)
            }
            Request::AllToAllV { src, dst, counts } => {
                let ranks = self.asker.ranks;
                let pairs = ranks.checked_mul(ranks).ok_or_else(|| self.overflow())?;
                let sizes = self.sizes(counts, src.dtype().size(), pairs)?;
                let rank = self.asker.rank;
                let sent = sizes.iter().copied().skip(rank * ranks).take(ranks);
                let received = sizes.iter().copied().skip(rank).step_by(ranks);
                self.total(sent, &src, "the source")?;
                self.total(received, &dst.as_span(), "the destination")?;
                self.no_overlap(&src, &dst)?;
                self.same_type(&src, &dst.as_span())?;
                let elements = self.buffer::<D>(&src)?;
                self.buffer::<D>(&dst.as_span())?;
                let call = Call::AllToAllV {
                    src: resource::<D>(&src),
                    dst: resource::<D>(&dst.as_span()),
                    elements,
                    counts: counts.into(),
                };
                self.moving(call, src, dst)
            }
            Request::Gather { src, dst, root } => {
                self.in_group("root", root)?;
                self.only_root("a destination", dst.is_some() == (root == self.asker.rank))?;
                let elements = self.buffer::<D>(&src)?;
                if let Some(dst) = &dst {
                    self.sized(self.chunk(&dst.as_span())?, src.bytes(), "a chunk", "the source")?;
                    self.no_overlap(&src, dst)?;
                    self.same_type(&src, &dst.as_span())?;
                    self.buffer::<D>(&dst.as_span())?;
                }
                let to = dst.as_ref().map(|it| resource::<D>(&it.as_span()));
                let call = Call::Gather { src: resource::<D>(&src), dst: to, elements, root };
                self.done(call, Some(src), dst)
            }
            Request::Scatter { src, dst, root } => {
                self.in_group("root", root)?;
                self.only_root("a source", src.is_some() == (root == self.asker.rank))?;
                let elements = self.buffer::<D>(&dst.as_span())?;
                if let Some(src) = &src {
                    self.sized(
                        self.chunk(src)?,
                        dst.as_span().bytes(),
                        "a chunk",
                        "the destination",
                    )?;
                    self.no_overlap(src, &dst)?;
                    self.same_type(src, &dst.as_span())?;
                    self.buffer::<D>(src)?;
                }
                let from = src.as_ref().map(resource::<D>);
                let to = resource::<D>(&dst.as_span());
                self.done(Call::Scatter { src: from, dst: to, elements, root }, src, Some(dst))
            }
            Request::Reduce { src, dst, op, root } => {
                self.in_group("root", root)?;
                self.reduces::<D>(src.dtype(), op)?;
                self.only_root("a destination", dst.is_some() == (root == self.asker.rank))?;
                let elements = self.buffer::<D>(&src)?;
                if let Some(dst) = &dst {
                    self.buffer::<D>(&dst.as_span())?;
                    if self.unless_same(Some(src), dst).is_some() {
                        self.pair::<D>(&src, dst, src.bytes())?;
                    }
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
        let mut reads = SmallVec::new();
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
            reads.iter().try_for_each(|src| self.no_overlap(src, dst))?;
            let others = writes.iter().take(at);
            others.map(SpanMut::as_span).try_for_each(|other| self.no_overlap(&other, dst))?;
        }
        Ok(Plan { operation: self.operation, call: Call::Batch(posts), reads, writes })
    }

    fn moving<'a, D: CollectiveDriver>(
        &self,
        call: Call<D>,
        src: Span<'a>,
        dst: SpanMut<'a>,
    ) -> Result<Plan<'a, D>> {
        self.done(call, Some(src), Some(dst))
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
        let (reads, writes) = (src.into_iter().collect(), dst.into_iter().collect());
        Ok(Plan { operation: self.operation, call, reads, writes })
    }

    /// None if the source is exactly the destination, or there is none: the in-place form.
    fn unless_same<'a>(&self, src: Option<Span<'a>>, dst: &SpanMut<'_>) -> Option<Span<'a>> {
        let to = dst.as_span();
        // Two empty ranges at one address are the same too, whichever memory they name.
        src.filter(|it| it.range() != to.range() || !it.overlaps(&to) && it.bytes() > 0)
    }

    /// A buffer on this member's device, of a type the driver knows, whole and aligned.
    fn buffer<D: CollectiveDriver>(&self, span: &Span<'_>) -> Result<Elements<D::DataType>> {
        let on_host = self.asker.device.kind() == aether_core::DeviceKind::CPU
            && self.asker.device.host_addressable();
        let here = span.device().map_or(on_host, |it| it == self.asker.device);
        if !here {
            let where_ = span.device().map_or("the host".to_owned(), |it| it.to_string());
            let reason = format!("the buffer is on {where_}");
            return Err(self.refuse(ErrorKind::WrongDevice, reason, span.bytes()));
        }
        if !span.address().addr().is_multiple_of(span.dtype().size()) && span.bytes() > 0 {
            let reason = format!(
                "{:?} is not a multiple of {}, as {} needs",
                span.address(),
                span.dtype().size(),
                span.dtype()
            );
            return Err(self.refuse(ErrorKind::Misaligned, reason, span.bytes()));
        }
        self.elements::<D>(span)
    }

    fn elements<D: CollectiveDriver>(&self, span: &Span<'_>) -> Result<Elements<D::DataType>> {
        D::elements(span.dtype(), span.bytes() as u64).map_err(|error| {
            self.refuse(error.kind(), error.reason().to_owned(), span.bytes()).caused_by(error)
        })
    }

    /// Source and destination of a call that is not in place.
    fn pair<D: CollectiveDriver>(
        &self,
        src: &Span<'_>,
        dst: &SpanMut<'_>,
        bytes: usize,
    ) -> Result<()> {
        self.buffer::<D>(src)?;
        self.same_type(src, &dst.as_span())?;
        self.sized(src.bytes(), bytes, "the source", "its chunk of the destination")?;
        if matches!(
            self.operation,
            OpName::AllReduce | OpName::Broadcast | OpName::AllToAll | OpName::Reduce
        ) {
            self.sized(dst.as_span().bytes(), src.bytes(), "the destination", "the source")?;
        }
        self.no_overlap(src, dst)
    }

    fn no_overlap(&self, src: &Span<'_>, dst: &SpanMut<'_>) -> Result<()> {
        if !src.overlaps(&dst.as_span()) {
            return Ok(());
        }
        let reason =
            format!("{src:?} and {dst:?} overlap, and not in the way of the in-place form");
        Err(self.refuse(ErrorKind::Overlap, reason, src.bytes()))
    }

    fn same_type(&self, src: &Span<'_>, dst: &Span<'_>) -> Result<()> {
        if src.dtype() == dst.dtype() {
            return Ok(());
        }
        let reason = format!("the source is {} and the destination {}", src.dtype(), dst.dtype());
        Err(self.refuse(ErrorKind::DTypeMismatch, reason, src.bytes()))
    }

    fn sized(&self, bytes: usize, needed: usize, what: &str, like: &str) -> Result<()> {
        if bytes == needed {
            return Ok(());
        }
        let reason = format!("{what} has {bytes} bytes and {like} {needed}");
        Err(self.refuse(ErrorKind::SizeMismatch, reason, bytes))
    }

    /// The size of a chunk of a buffer that holds one for every rank.
    fn chunk(&self, span: &Span<'_>) -> Result<usize> {
        let (ranks, size) = (self.asker.ranks, span.dtype().size());
        if (span.bytes() / size).is_multiple_of(ranks) && span.bytes().is_multiple_of(size) {
            return Ok(span.bytes() / ranks);
        }
        let reason = format!(
            "{} {} elements don't divide into {ranks} chunks; the vector variants take \
                              a count for each rank",
            span.bytes() / size,
            span.dtype()
        );
        Err(self.refuse(ErrorKind::SizeMismatch, reason, span.bytes()))
    }

    fn own<'a>(&self, span: &Span<'a>, chunk: usize) -> Result<Span<'a>> {
        self.part(span, self.asker.rank * chunk..(self.asker.rank + 1) * chunk)
    }

    fn part<'a>(&self, span: &Span<'a>, range: Range<usize>) -> Result<Span<'a>> {
        span.part(range.start, range.len())
    }

    /// The counts of all ranks in bytes.
    fn sizes(&self, counts: &[u64], size: usize, expected: usize) -> Result<Vec<usize>> {
        if counts.len() != expected {
            let reason = format!("{} counts were given and {expected} are needed", counts.len());
            return Err(self.refuse(ErrorKind::InvalidArgument, reason, 0));
        }
        let bytes = |&count: &u64| usize::try_from(count).ok().and_then(|it| it.checked_mul(size));
        let sizes: Option<Vec<usize>> = counts.iter().map(bytes).collect();
        let sizes = sizes.ok_or_else(|| self.overflow())?;
        let total = sizes.iter().try_fold(0usize, |sum, &it| sum.checked_add(it));
        total.map(|_| sizes).ok_or_else(|| self.overflow())
    }

    fn total(&self, sizes: impl Iterator<Item = usize>, span: &Span<'_>, what: &str) -> Result<()> {
        self.sized(span.bytes(), sizes.sum(), what, "the sum of its counts")
    }

    fn in_group(&self, what: &str, rank: usize) -> Result<()> {
        if rank < self.asker.ranks {
            return Ok(());
        }
        let reason = format!("{what} {rank} is out of range: there are {} ranks", self.asker.ranks);
        Err(self.refuse(ErrorKind::RankOutOfRange, reason, 0).about_ranks([rank]))
    }

    fn only_root(&self, what: &str, right: bool) -> Result<()> {
        if right {
            return Ok(());
        }
        let reason = format!("the root has {what}, and nobody else");
        Err(self.refuse(ErrorKind::InvalidArgument, reason, 0))
    }

    fn reduces<D: CollectiveDriver>(&self, dtype: DType, op: ReduceOp) -> Result<()> {
        if D::reduces(dtype, op) {
            return Ok(());
        }
        let reason = format!("{} does not reduce {dtype} by {op}", D::name());
        Err(self.refuse(ErrorKind::Unsupported, reason, 0))
    }

    fn overflow(&self) -> Error {
        self.refuse(ErrorKind::Overflow, "the product of counts and sizes overflows".to_owned(), 0)
    }

    fn refuse(&self, kind: ErrorKind, reason: String, bytes: usize) -> Error {
        let place = format!("rank {} ({})", self.asker.rank, self.asker.device);
        Error::new(kind, self.operation.name(), reason).on(place).of_bytes(bytes as u64)
    }
}

fn resource<D: CollectiveDriver>(span: &Span<'_>) -> D::Resource {
    D::resource(span.region())
}
