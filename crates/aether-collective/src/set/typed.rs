//! The typed calls of all members, thin over [`GroupSet::run`] and [`GroupSet::submit`].
//!
//! A list of buffers holds one for each member, by rank.

use aether_core::{AsSpan, AsSpanMut, Element, Error, ErrorKind, Result, View, ViewMut};
use smallvec::SmallVec;

use crate::set::{Requests, run_all, submit_all};
use crate::{CollectiveDriver, GroupSet, Message, ReduceOp, Request, Work};

/// Refuses a list that doesn't have one buffer for each member.
fn one_each(what: &str, given: usize, ranks: usize) -> Result<()> {
    if given == ranks {
        return Ok(());
    }
    let reason = format!("{given} {what} were given for {ranks} ranks");
    Err(Error::new(ErrorKind::SizeMismatch, "make a collective call", reason))
}

/// One request a member, from its source and its destination.
fn pairs<'a, S, M>(
    ranks: usize,
    sources: &'a [S],
    destinations: &'a mut [M],
    request: impl Fn(&'a S, &'a mut M) -> Result<Request<'a>>,
) -> Result<Requests<'a>> {
    one_each("sources", sources.len(), ranks)?;
    one_each("destinations", destinations.len(), ranks)?;
    sources.iter().zip(destinations).map(|(src, dst)| request(src, dst)).collect()
}

/// One request a member, from the buffer that it works in.
fn singles<'a, M>(
    ranks: usize,
    buffers: &'a mut [M],
    request: impl Fn(&'a mut M) -> Result<Request<'a>>,
) -> Result<Requests<'a>> {
    one_each("buffers", buffers.len(), ranks)?;
    buffers.iter_mut().map(request).collect()
}

/// One request a member, where the root has one more buffer.
fn rooted<'a, M, X>(
    ranks: usize,
    members: impl ExactSizeIterator<Item = M>,
    root: usize,
    extra: X,
    request: impl Fn(M, Option<X>) -> Result<Request<'a>>,
) -> Result<Requests<'a>> {
    one_each("buffers", members.len(), ranks)?;
    let mut extra = Some(extra);
    let at_root = |(rank, member)| request(member, if rank == root { extra.take() } else { None });
    members.enumerate().map(at_root).collect()
}

/// Writes each call twice: blocking by its plain name, and returning at once by its `_async` name.
macro_rules! calls {
    ($(
        $(#[$doc:meta])*
        $name:ident / $name_async:ident [$($generics:tt)*] ($ranks:ident; $($arg:ident: $type:ty),*) =>
            $requests:expr;
    )*) => {
        impl<D: CollectiveDriver> GroupSet<D> {$(
            $(#[$doc])*
            ///
            /// It returns when that is done, and takes borrowed memory too.
            ///
            /// # Errors
            /// Every refusal and failure of aether's semantics.
            pub fn $name<$($generics)*>(&mut self, $($arg: $type),*) -> Result<()> {
                let $ranks = self.ranks();
                let requests: Requests<'_> = $requests?;
                run_all(&self.members, requests.into_iter())
            }

            $(#[$doc])*
            ///
            /// It returns at once.
            ///
            /// # Errors
            /// Every refusal of aether's semantics; `BorrowedMemory` for views that are not over
            /// chunks.
            pub fn $name_async<$($generics)*>(&mut self, $($arg: $type),*) -> Result<Work> {
                let $ranks = self.ranks();
                let requests: Requests<'_> = $requests?;
                submit_all(&self.members, requests.into_iter())
            }
        )*}
    };
}

calls! {
    /// Reduces all sources, in rank order, into every destination.
    all_reduce / all_reduce_async [T: Element, const R: usize, const S: usize]
    (ranks; src: &[View<'_, T, R>], dst: &mut [ViewMut<'_, T, S>], op: ReduceOp) =>
        pairs(ranks, src, dst, |src, dst| {
            Ok(Request::AllReduce { src: Some(src.span()?), dst: dst.span_mut()?, op })
        });

    /// Reduces all buffers, in rank order, into every one of them.
    all_reduce_in_place / all_reduce_in_place_async [T: Element, const R: usize]
    (ranks; buffers: &mut [ViewMut<'_, T, R>], op: ReduceOp) =>
        singles(ranks, buffers, |it| Ok(Request::AllReduce { src: None, dst: it.span_mut()?, op }));

    /// Writes all sources, in rank order, to every destination.
    all_gather / all_gather_async [T: Element, const R: usize, const S: usize]
    (ranks; src: &[View<'_, T, R>], dst: &mut [ViewMut<'_, T, S>]) =>
        pairs(ranks, src, dst, |src, dst| {
            Ok(Request::AllGather { src: Some(src.span()?), dst: dst.span_mut()? })
        });

    /// As `all_gather`, where each rank's source is already its chunk of its buffer.
    all_gather_in_place / all_gather_in_place_async [T: Element, const R: usize]
    (ranks; buffers: &mut [ViewMut<'_, T, R>]) =>
        singles(ranks, buffers, |it| Ok(Request::AllGather { src: None, dst: it.span_mut()? }));

    /// As `all_gather`, where rank r's source has `counts[r]` elements.
    all_gather_v / all_gather_v_async [T: Element, const R: usize, const S: usize]
    (ranks; src: &[View<'_, T, R>], dst: &mut [ViewMut<'_, T, S>], counts: &[u64]) =>
        pairs(ranks, src, dst, |src, dst| {
            Ok(Request::AllGatherV { src: Some(src.span()?), dst: dst.span_mut()?, counts })
        });

    /// Reduces all sources, in rank order, and writes chunk r to destination r.
    reduce_scatter / reduce_scatter_async [T: Element, const R: usize, const S: usize]
    (ranks; src: &[View<'_, T, R>], dst: &mut [ViewMut<'_, T, S>], op: ReduceOp) =>
        pairs(ranks, src, dst, |src, dst| {
            Ok(Request::ReduceScatter { src: src.span()?, dst: dst.span_mut()?, op })
        });

    /// As `reduce_scatter`, into chunk r of buffer r; the other chunks stay as they are.
    reduce_scatter_in_place / reduce_scatter_in_place_async [T: Element, const R: usize]
    (ranks; buffers: &mut [ViewMut<'_, T, R>], op: ReduceOp) =>
        singles(ranks, buffers, |it| {
            Ok(Request::ReduceScatterInPlace { buffer: it.span_mut()?, op })
        });

    /// As `reduce_scatter`, where chunk r has `counts[r]` elements.
    reduce_scatter_v / reduce_scatter_v_async [T: Element, const R: usize, const S: usize]
    (ranks; src: &[View<'_, T, R>], dst: &mut [ViewMut<'_, T, S>], counts: &[u64], op: ReduceOp) =>
        pairs(ranks, src, dst, |src, dst| {
            Ok(Request::ReduceScatterV { src: src.span()?, dst: dst.span_mut()?, counts, op })
        });

    /// Writes the root's `src` to every destination.
    broadcast / broadcast_async [T: Element, const R: usize, const S: usize]
    (ranks; src: &View<'_, T, R>, dst: &mut [ViewMut<'_, T, S>], root: usize) =>
        rooted(ranks, dst.iter_mut(), root, src.span()?, |dst, src| {
            Ok(Request::Broadcast { src, dst: dst.span_mut()?, root })
        });

    /// Writes the root's buffer to every other.
    broadcast_in_place / broadcast_in_place_async [T: Element, const R: usize]
    (ranks; buffers: &mut [ViewMut<'_, T, R>], root: usize) =>
        singles(ranks, buffers, |it| Ok(Request::Broadcast { src: None, dst: it.span_mut()?, root }));

    /// Writes chunk j of source i to chunk i of destination j.
    all_to_all / all_to_all_async [T: Element, const R: usize, const S: usize]
    (ranks; src: &[View<'_, T, R>], dst: &mut [ViewMut<'_, T, S>]) =>
        pairs(ranks, src, dst, |src, dst| {
            Ok(Request::AllToAll { src: src.span()?, dst: dst.span_mut()? })
        });

    /// As `all_to_all`, where rank i sends `counts[i * ranks + j]` elements to rank j.
    all_to_all_v / all_to_all_v_async [T: Element, const R: usize, const S: usize]
    (ranks; src: &[View<'_, T, R>], dst: &mut [ViewMut<'_, T, S>], counts: &[u64]) =>
        pairs(ranks, src, dst, |src, dst| {
            Ok(Request::AllToAllV { src: src.span()?, dst: dst.span_mut()?, counts })
        });

    /// Writes all sources, in rank order, to the root's `dst`.
    gather / gather_async [T: Element, const R: usize, const S: usize]
    (ranks; src: &[View<'_, T, R>], dst: &mut ViewMut<'_, T, S>, root: usize) =>
        rooted(ranks, src.iter(), root, dst.span_mut()?, |src, dst| {
            Ok(Request::Gather { src: src.span()?, dst, root })
        });

    /// Writes chunk r of the root's `src` to destination r.
    scatter / scatter_async [T: Element, const R: usize, const S: usize]
    (ranks; src: &View<'_, T, R>, dst: &mut [ViewMut<'_, T, S>], root: usize) =>
        rooted(ranks, dst.iter_mut(), root, src.span()?, |dst, src| {
            Ok(Request::Scatter { src, dst: dst.span_mut()?, root })
        });

    /// Reduces all sources, in rank order, into the root's `dst`.
    reduce / reduce_async [T: Element, const R: usize, const S: usize]
    (ranks; src: &[View<'_, T, R>], dst: &mut ViewMut<'_, T, S>, op: ReduceOp, root: usize) =>
        rooted(ranks, src.iter(), root, dst.span_mut()?, |src, dst| {
            Ok(Request::Reduce { src: src.span()?, dst, op, root })
        });

    /// Waits until every member has come here.
    barrier / barrier_async [] (ranks;) =>
        Ok::<_, Error>((0..ranks).map(|_| Request::Barrier).collect());

    /// Sends source r to rank `to[r]`, where destination `to[r]` receives it: a permutation, as one
    /// operation of each member.
    permute / permute_async [T: Element, const R: usize, const S: usize]
    (ranks; src: &[View<'_, T, R>], dst: &mut [ViewMut<'_, T, S>], to: &[usize]) =>
        permutation(ranks, to).and_then(|from| {
            one_each("sources", src.len(), ranks)?;
            one_each("destinations", dst.len(), ranks)?;
            let ends = to.iter().zip(from);
            src.iter().zip(dst).zip(ends).map(|((src, dst), (&to, from))| {
                let send = Message::Send { src: src.span()?, peer: to };
                let recv = Message::Recv { dst: dst.span_mut()?, peer: from };
                Ok(Request::Batch([send, recv].into_iter().collect()))
            }).collect()
        });
}

/// Whom each rank receives from, if each sends to `to[rank]`.
fn permutation(ranks: usize, to: &[usize]) -> Result<SmallVec<[usize; 8]>> {
    one_each("receivers", to.len(), ranks)?;
    let mut from: SmallVec<[usize; 8]> = (0..ranks).map(|_| ranks).collect();
    for (sender, &receiver) in to.iter().enumerate() {
        match from.get_mut(receiver) {
            Some(it) if *it == ranks => *it = sender,
            Some(_) => {
                let reason = format!("rank {receiver} would receive twice");
                return Err(Error::new(ErrorKind::InvalidArgument, "send/recv", reason)
                    .about_ranks([receiver]));
            }
            None => {
                let reason = format!("peer {receiver} is out of range: there are {ranks} ranks");
                return Err(Error::new(ErrorKind::RankOutOfRange, "send/recv", reason)
                    .about_ranks([receiver]));
            }
        }
    }
    Ok(from)
}
