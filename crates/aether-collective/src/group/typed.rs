//! The typed calls of one member, thin over [`Group::run`] and [`Group::submit`].

use aether_core::{AsSpan, AsSpanMut, Element, Result, View, ViewMut};
use smallvec::smallvec;

use crate::{CollectiveDriver, Group, Message, ReduceOp, Request, Work};

/// Writes each call twice: blocking by its plain name, and returning at once by its `_async` name.
macro_rules! calls {
    ($(
        $(#[$doc:meta])*
        $name:ident / $name_async:ident [$($generics:tt)*] ($($arg:ident: $type:ty),*) => $request:expr;
    )*) => {
        impl<D: CollectiveDriver> Group<D> {$(
            $(#[$doc])*
            ///
            /// It returns when that is done, and takes borrowed memory too.
            ///
            /// # Errors
            /// Every refusal and failure of aether's semantics.
            pub fn $name<$($generics)*>(&mut self, $($arg: $type),*) -> Result<()> {
                let request = $request;
                self.run(request)
            }

            $(#[$doc])*
            ///
            /// It returns at once.
            ///
            /// # Errors
            /// Every refusal of aether's semantics; `BorrowedMemory` for views that are not over
            /// chunks.
            pub fn $name_async<$($generics)*>(&mut self, $($arg: $type),*) -> Result<Work> {
                let request = $request;
                self.submit(request)
            }
        )*}
    };
}

calls! {
    /// Reduces `src` of every rank, in rank order, into `dst` on every rank.
    all_reduce / all_reduce_async [T: Element, const R: usize, const S: usize]
    (src: &View<'_, T, R>, dst: &mut ViewMut<'_, T, S>, op: ReduceOp) =>
        Request::AllReduce { src: Some(src.span()?), dst: dst.span_mut()?, op };

    /// Reduces `buffer` of every rank, in rank order, into itself on every rank.
    all_reduce_in_place / all_reduce_in_place_async [T: Element, const R: usize]
    (buffer: &mut ViewMut<'_, T, R>, op: ReduceOp) =>
        Request::AllReduce { src: None, dst: buffer.span_mut()?, op };

    /// Writes `src` of every rank, in rank order, to `dst` on every rank.
    all_gather / all_gather_async [T: Element, const R: usize, const S: usize]
    (src: &View<'_, T, R>, dst: &mut ViewMut<'_, T, S>) =>
        Request::AllGather { src: Some(src.span()?), dst: dst.span_mut()? };

    /// As `all_gather`, where each rank's source is already its chunk of `buffer`.
    all_gather_in_place / all_gather_in_place_async [T: Element, const R: usize]
    (buffer: &mut ViewMut<'_, T, R>) =>
        Request::AllGather { src: None, dst: buffer.span_mut()? };

    /// As `all_gather`, where rank r's source has `counts[r]` elements. All ranks give the same counts.
    all_gather_v / all_gather_v_async [T: Element, const R: usize, const S: usize]
    (src: &View<'_, T, R>, dst: &mut ViewMut<'_, T, S>, counts: &[u64]) =>
        Request::AllGatherV { src: Some(src.span()?), dst: dst.span_mut()?, counts };

    /// Reduces `src` of every rank, in rank order, and writes chunk r to `dst` of rank r.
    reduce_scatter / reduce_scatter_async [T: Element, const R: usize, const S: usize]
    (src: &View<'_, T, R>, dst: &mut ViewMut<'_, T, S>, op: ReduceOp) =>
        Request::ReduceScatter { src: src.span()?, dst: dst.span_mut()?, op };

    /// As `reduce_scatter`, into this rank's chunk of `buffer`; the other chunks stay as they are.
    reduce_scatter_in_place / reduce_scatter_in_place_async [T: Element, const R: usize]
    (buffer: &mut ViewMut<'_, T, R>, op: ReduceOp) =>
        Request::ReduceScatterInPlace { buffer: buffer.span_mut()?, op };

    /// As `reduce_scatter`, where rank r's chunk has `counts[r]` elements. All ranks give the same
    /// counts.
    reduce_scatter_v / reduce_scatter_v_async [T: Element, const R: usize, const S: usize]
    (src: &View<'_, T, R>, dst: &mut ViewMut<'_, T, S>, counts: &[u64], op: ReduceOp) =>
        Request::ReduceScatterV { src: src.span()?, dst: dst.span_mut()?, counts, op };

    /// Writes the root's `src` to `dst` on every rank. Only the root has a source.
    broadcast / broadcast_async [T: Element, const R: usize, const S: usize]
    (src: Option<&View<'_, T, R>>, dst: &mut ViewMut<'_, T, S>, root: usize) =>
        Request::Broadcast { src: src.map(|it| it.span()).transpose()?, dst: dst.span_mut()?, root };

    /// Writes the root's `buffer` to `buffer` on every other rank.
    broadcast_in_place / broadcast_in_place_async [T: Element, const R: usize]
    (buffer: &mut ViewMut<'_, T, R>, root: usize) =>
        Request::Broadcast { src: None, dst: buffer.span_mut()?, root };

    /// Sends chunk r of `src` to rank r, and writes the chunk that rank r sends to chunk r of `dst`.
    all_to_all / all_to_all_async [T: Element, const R: usize, const S: usize]
    (src: &View<'_, T, R>, dst: &mut ViewMut<'_, T, S>) =>
        Request::AllToAll { src: src.span()?, dst: dst.span_mut()? };

    /// As `all_to_all`, where rank i sends `counts[i * ranks + j]` elements to rank j. All ranks give
    /// the same counts.
    all_to_all_v / all_to_all_v_async [T: Element, const R: usize, const S: usize]
    (src: &View<'_, T, R>, dst: &mut ViewMut<'_, T, S>, counts: &[u64]) =>
        Request::AllToAllV { src: src.span()?, dst: dst.span_mut()?, counts };

    /// Writes `src` of every rank, in rank order, to `dst` of the root, which alone has one.
    gather / gather_async [T: Element, const R: usize, const S: usize]
    (src: &View<'_, T, R>, dst: Option<&mut ViewMut<'_, T, S>>, root: usize) =>
        Request::Gather { src: src.span()?, dst: dst.map(|it| it.span_mut()).transpose()?, root };

    /// Writes chunk r of the root's `src` to `dst` of rank r. Only the root has a source.
    scatter / scatter_async [T: Element, const R: usize, const S: usize]
    (src: Option<&View<'_, T, R>>, dst: &mut ViewMut<'_, T, S>, root: usize) =>
        Request::Scatter { src: src.map(|it| it.span()).transpose()?, dst: dst.span_mut()?, root };

    /// Reduces `src` of every rank, in rank order, into `dst` of the root, which alone has one.
    reduce / reduce_async [T: Element, const R: usize, const S: usize]
    (src: &View<'_, T, R>, dst: Option<&mut ViewMut<'_, T, S>>, op: ReduceOp, root: usize) =>
        Request::Reduce { src: src.span()?, dst: dst.map(|it| it.span_mut()).transpose()?, op, root };

    /// Waits until every rank has come here.
    barrier / barrier_async [] () => Request::Barrier;

    /// Sends `src` to `peer`. It is done only when the peer's `recv` took the data.
    send / send_async [T: Element, const R: usize] (src: &View<'_, T, R>, peer: usize) =>
        Request::Batch(smallvec![Message::Send { src: src.span()?, peer }]);

    /// Receives `dst` from `peer`.
    recv / recv_async [T: Element, const R: usize] (dst: &mut ViewMut<'_, T, R>, peer: usize) =>
        Request::Batch(smallvec![Message::Recv { dst: dst.span_mut()?, peer }]);

    /// Sends `src` to rank `to` and receives `dst` from rank `from`, neither waiting for the other.
    send_recv / send_recv_async [T: Element, const R: usize, const S: usize]
    (src: &View<'_, T, R>, to: usize, dst: &mut ViewMut<'_, T, S>, from: usize) =>
        Request::Batch(smallvec![
            Message::Send { src: src.span()?, peer: to },
            Message::Recv { dst: dst.span_mut()?, peer: from },
        ]);
}
