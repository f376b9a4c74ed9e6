//! What a collective backend implements.

use std::fmt;

use aether_core::{DType, Device, Error, ErrorKind, Result, Stream};

use crate::{CommunicationId, DeviceResource, Driver, Elements, GroupConfig, ReduceOp};

/// A driver that can run collectives across devices.
///
/// The methods that enqueue return at once: they put the operation on the stream, or tell the other
/// ranks that this one has arrived, and leave the rest to [`CollectiveDriver::issued`]. aether
/// calls them for one communicator in the order of the calls and never two at a time, and begins no
/// operation before `issued` has answered true, or an error, for the one before. So a driver keeps
/// at most one operation a communicator that is not on its stream yet.
///
/// One operation is one call, or one batch. Every `send` and `recv` comes between
/// [`CollectiveDriver::batch_begin`] and [`CollectiveDriver::batch_end`], a single one too; no other
/// call does. `issued` is asked after the end of the batch, for all of it. So each driver accepts
/// several messages in one operation, none of which waits for another, and so does one that leaves the
/// batch methods as they are provided.
///
/// # What a driver owes
/// The safe layer has proved the contract of a call before it makes it, and a driver checks none of
/// that again. What only the driver can see is its own, and `docs/semantics.md` of the repository
/// says what each case means. Unless [`Capabilities::differences`](crate::Capabilities::differences) says otherwise, a driver
/// - enforces [`GroupConfig::deadline`] from when the call is enqueued: a call that has not ended
///   by then fails with `DeadlineExceeded`, and says who is absent;
/// - notices communicators that were dropped, and tells whoever waits for one of them, or will, by
///   `RankDied`, well before the deadline;
/// - compares the calls of the ranks: where they differ, every rank that has not ended its call gets
///   `RankMismatch`, which names both calls and the ranks that made each. What is compared is a
///   [`Signature`](crate::Signature), which prints a call;
/// - finds, when the deadline passes, whether calls wait for each other in a circle, and then says
///   `Cycle` and names its steps;
/// - gives every such error the ranks that it speaks of, by [`Error::about_ranks`];
/// - implements [`CollectiveDriver::failure`], and [`CollectiveDriver::abort`] where it can, so that a
///   rank that makes no call when the group breaks learns of it at its next one. aether remembers what
///   each member was told itself, and no more.
///
/// # Threads and progress
/// Any thread may call: the one that makes a collective call, one that waits for something else, a
/// worker of aether. The steps of one operation may come from different threads, so nothing may be
/// kept in thread-local state, and no method but `join` and `join_all` may wait for another rank.
///
/// For one communicator the methods that enqueue, those of batches, `issued` and `finish` never run
/// at once. `abort`, `failure` and `leaving` may run, on other threads, while any of them does. The
/// communicator is dropped when nothing of it runs any more, by whichever thread is last.
///
/// The first `issued` follows the enqueuing at once, mostly inside the user's call, which is to
/// return: it is quick, and leaves the work to the later ones, which come from whoever waits and from
/// the workers for as long as the answer is `false`. A driver calls
/// [`announce`](aether_core::progress::announce) after a change that lets a pending call of another
/// rank go on, or fail: those who wait may sleep, and would see it late.
///
/// A panic in a method that takes a communicator, or in its destructor, is contained. It counts as
/// an error: the operation fails with `Panicked`, and the group with it. Other panics reach the caller.
///
/// # Compatibility
/// A backend of today compiles tomorrow: later needs come as provided methods that answer
/// `Unsupported`.
///
/// # Safety
/// aether lends memory, and takes it back, because of what a driver says. So an implementation
/// promises that
/// - it touches no more than the resources of a call, reads only what the method's documentation says
///   is read and writes only what is written;
/// - it touches them only between the call that enqueues and the answer of `issued` that is not
///   `false` — or, for a driver that works on the device's stream, the end of what is on the stream
///   then;
/// - after an error of the call or of `issued`, or a panic, nobody touches the memory of that operation
///   any more, whatever other ranks do later.
///
/// The methods that enqueue are unsafe. Their common contract, `# Safety` of each: every resource is
/// memory that [`Driver::reaches`] allows for the device that joined, valid until the operation has
/// ended, aligned to its element size and as long as the documentation says; it may be empty, and is
/// then not to be dereferenced; nobody else writes what is read or touches what is written
/// until then; resources overlap only in the in-place forms that the method names; the stream is
/// valid for the call.
pub unsafe trait CollectiveDriver: Driver {
    /// This device's membership of one group, joined once and kept. Dropping it leaves the group: the
    /// ranks that still wait for it learn that it is gone.
    type Communicator: Send + Sync + 'static;
    /// The identifier every rank of a group joins under.
    type UniqueId: Copy + Send + Sync + 'static;
    /// How the driver names an element type.
    type DataType: Copy + fmt::Debug + PartialEq + Send + Sync + 'static;
    /// The stream collectives are issued on, kept apart from the compute streams so that a collective
    /// never blocks one: a raw handle, valid for the call.
    type CommStream: Copy;

    /// The identifier the group `id` names joins under: minted by whoever asks first, and the same for
    /// whoever asks as long as the group lives. No later group has an equal `id`: its generation is
    /// another. Of several processes only rank 0's asks, and hands it on.
    ///
    /// # Errors
    /// The driver's refusal to mint one, which stops the group forming at all.
    fn group_id(id: &CommunicationId) -> Result<Self::UniqueId>;

    /// The identifier as bytes, to cross processes.
    fn id_to_bytes(id: Self::UniqueId) -> Vec<u8>;

    /// The identifier that another process made bytes of.
    ///
    /// # Errors
    /// `Parse` if they are no identifier of this driver.
    fn id_from_bytes(bytes: &[u8]) -> Result<Self::UniqueId>;

    /// Names one of aether's streams as the driver's own. The group keeps the stream alive.
    fn comm_stream(stream: &Stream) -> Self::CommStream;

    /// Joins the group `id` names as rank `rank` of `ranks`, with this device. It may wait for the
    /// other ranks, up to the configuration's join deadline.
    ///
    /// # Errors
    /// The driver's refusal to join, which every other rank sees as this one never arriving.
    fn join(
        id: Self::UniqueId,
        ranks: usize,
        rank: usize,
        device: &Device,
        config: &GroupConfig,
    ) -> Result<Self::Communicator>;

    /// Joins several ranks of one caller, each with its device. No rank waits here for another of the
    /// list. Provided as one join after the other: a driver whose `join` waits for other ranks has to
    /// implement it, or one caller can't hold several members.
    ///
    /// # Errors
    /// As [`CollectiveDriver::join`], of the first that fails; none of the list has joined then.
    fn join_all(
        id: Self::UniqueId,
        ranks: usize,
        members: &[(usize, &Device)],
        config: &GroupConfig,
    ) -> Result<Vec<Self::Communicator>> {
        members.iter().map(|&(rank, device)| Self::join(id, ranks, rank, device, config)).collect()
    }

    /// The elements of `dtype` that `bytes` bytes hold, as the driver names them.
    ///
    /// # Errors
    /// `Unsupported` for an element type the driver has no name for, `PartialElement` for a size that
    /// is not whole elements.
    fn elements(dtype: DType, bytes: u64) -> Result<Elements<Self::DataType>>;

    /// Whether the driver reduces elements of this type so.
    fn reduces(dtype: DType, op: ReduceOp) -> bool {
        let _ = op;
        dtype != DType::Bool
    }

    /// Reduces `src` across the group into `dst` on every rank. Both hold `elements`. In place: `src`
    /// is `dst`.
    ///
    /// # Errors
    /// The driver's refusal to enqueue the reduction.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn all_reduce(
        comm: &Self::Communicator,
        src: &DeviceResource<Self>,
        dst: &DeviceResource<Self>,
        elements: Elements<Self::DataType>,
        op: ReduceOp,
        stream: Self::CommStream,
    ) -> Result<()>;

    /// Writes every rank's `src` of `elements`, concatenated in rank order, to `dst`. In place: `src`
    /// is this rank's chunk of `dst`.
    ///
    /// # Errors
    /// The driver's refusal to enqueue the gather.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn all_gather(
        comm: &Self::Communicator,
        src: &DeviceResource<Self>,
        dst: &DeviceResource<Self>,
        elements: Elements<Self::DataType>,
        stream: Self::CommStream,
    ) -> Result<()>;

    /// Reduces every rank's `src` and writes this rank's chunk of `elements` to `dst`. In place: `dst`
    /// is this rank's chunk of `src`.
    ///
    /// # Errors
    /// The driver's refusal to enqueue the reduction.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn reduce_scatter(
        comm: &Self::Communicator,
        src: &DeviceResource<Self>,
        dst: &DeviceResource<Self>,
        elements: Elements<Self::DataType>,
        op: ReduceOp,
        stream: Self::CommStream,
    ) -> Result<()>;

    /// Writes rank `root`'s `src` of `elements` to `dst` on every rank. Only `root` has a `src`, which
    /// may be its `dst`.
    ///
    /// # Errors
    /// The driver's refusal to enqueue the broadcast.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn broadcast(
        comm: &Self::Communicator,
        src: Option<&DeviceResource<Self>>,
        dst: &DeviceResource<Self>,
        elements: Elements<Self::DataType>,
        root: usize,
        stream: Self::CommStream,
    ) -> Result<()>;

    /// Sends chunk r of `src` to rank r and writes the chunk rank r sends to chunk r of `dst`, each of
    /// the `ranks` chunks holding `elements`.
    ///
    /// # Errors
    /// The driver's refusal to enqueue the exchange.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn all_to_all(
        comm: &Self::Communicator,
        src: &DeviceResource<Self>,
        dst: &DeviceResource<Self>,
        elements: Elements<Self::DataType>,
        ranks: usize,
        stream: Self::CommStream,
    ) -> Result<()>;

    /// Sends `src` to `peer`. It has ended only when the peer's `recv` took the data.
    ///
    /// # Errors
    /// The driver's refusal to enqueue the send.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn send(
        comm: &Self::Communicator,
        src: &DeviceResource<Self>,
        elements: Elements<Self::DataType>,
        peer: usize,
        stream: Self::CommStream,
    ) -> Result<()>;

    /// Receives into `dst` from `peer`.
    ///
    /// # Errors
    /// The driver's refusal to enqueue the receive.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn recv(
        comm: &Self::Communicator,
        dst: &DeviceResource<Self>,
        elements: Elements<Self::DataType>,
        peer: usize,
        stream: Self::CommStream,
    ) -> Result<()>;

    /// Begins a batch: until [`CollectiveDriver::batch_end`], messages of this communicator wait for no
    /// other rank and not for each other, and all of them are one operation. Provided as nothing, for
    /// a driver whose `send` and `recv` only note the message.
    ///
    /// # Errors
    /// The driver's refusal; there is then no batch to end.
    fn batch_begin(comm: &Self::Communicator) -> Result<()> {
        let _ = comm;
        Ok(())
    }

    /// Ends the batch and enqueues it. It is owed after `batch_begin`, also when a call in between
    /// was refused.
    ///
    /// # Errors
    /// The driver's refusal; nothing of the batch is then enqueued.
    fn batch_end(comm: &Self::Communicator) -> Result<()> {
        let _ = comm;
        Ok(())
    }

    /// Progresses what was enqueued last, without waiting, and tells whether it is on its stream, or
    /// has ended. No completion is recorded before.
    ///
    /// # Errors
    /// The operation has failed, and nobody touches its memory any more.
    fn issued(comm: &Self::Communicator) -> Result<bool> {
        let _ = comm;
        Ok(true)
    }

    /// The group's first failure. It refuses further work from then on.
    fn failure(comm: &Self::Communicator) -> Option<Error> {
        let _ = comm;
        None
    }

    /// Breaks the group because of `why`: every rank's pending and later calls fail.
    ///
    /// # Errors
    /// `Unsupported` where the driver can't.
    fn abort(comm: &Self::Communicator, why: &Error) -> Result<()> {
        let _ = (comm, why);
        Err(unsupported::<Self>("abort"))
    }

    /// This rank's owner lets go of the communicator, which is dropped when its calls have ended. The
    /// other ranks' errors may then say why it is gone. Provided as nothing.
    fn leaving(comm: &Self::Communicator, panicking: bool) {
        let _ = (comm, panicking);
    }

    /// No call follows. All calls of this rank have ended; those of others may not have.
    ///
    /// # Errors
    /// A failure of the group that this rank has not seen yet.
    fn finish(comm: &Self::Communicator) -> Result<()> {
        Self::failure(comm).map_or(Ok(()), Err)
    }

    /// Waits on the stream until every rank has come here. Composed by aether where
    /// [`Capabilities::barrier`](crate::Capabilities::barrier) is false, as an all_reduce of one f32.
    ///
    /// # Errors
    /// The driver's refusal to enqueue it.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn barrier(comm: &Self::Communicator, stream: Self::CommStream) -> Result<()> {
        let _ = (comm, stream);
        Err(unsupported::<Self>("barrier"))
    }

    /// Writes every rank's `src` of `elements`, concatenated in rank order, to `dst` of `root`, which
    /// alone has one. Composed by aether where [`Capabilities::rooted`](crate::Capabilities::rooted) is false.
    ///
    /// # Errors
    /// The driver's refusal to enqueue it.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn gather(
        comm: &Self::Communicator,
        src: &DeviceResource<Self>,
        dst: Option<&DeviceResource<Self>>,
        elements: Elements<Self::DataType>,
        root: usize,
        stream: Self::CommStream,
    ) -> Result<()> {
        let _ = (comm, src, dst, elements, root, stream);
        Err(unsupported::<Self>("gather"))
    }

    /// Writes chunk r of `root`'s `src` to `dst` of rank r, each chunk holding `elements`. Only `root`
    /// has a `src`. Composed by aether where [`Capabilities::rooted`](crate::Capabilities::rooted) is false.
    ///
    /// # Errors
    /// The driver's refusal to enqueue it.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn scatter(
        comm: &Self::Communicator,
        src: Option<&DeviceResource<Self>>,
        dst: &DeviceResource<Self>,
        elements: Elements<Self::DataType>,
        root: usize,
        stream: Self::CommStream,
    ) -> Result<()> {
        let _ = (comm, src, dst, elements, root, stream);
        Err(unsupported::<Self>("scatter"))
    }

    /// Reduces `src` across the group into `dst` of `root`, which alone has one. Both hold `elements`;
    /// in place: `src` is `dst`. Composed by aether where [`Capabilities::rooted`](crate::Capabilities::rooted) is false.
    ///
    /// # Errors
    /// The driver's refusal to enqueue it.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn reduce(
        comm: &Self::Communicator,
        src: &DeviceResource<Self>,
        dst: Option<&DeviceResource<Self>>,
        elements: Elements<Self::DataType>,
        op: ReduceOp,
        root: usize,
        stream: Self::CommStream,
    ) -> Result<()> {
        let _ = (comm, src, dst, elements, op, root, stream);
        Err(unsupported::<Self>("reduce"))
    }

    /// As [`CollectiveDriver::all_gather`], where rank r's chunk has `counts[r]` elements; `elements`
    /// counts the source. Composed by aether where [`Capabilities::vector`](crate::Capabilities::vector) is false.
    ///
    /// # Errors
    /// The driver's refusal to enqueue it.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn all_gather_v(
        comm: &Self::Communicator,
        src: &DeviceResource<Self>,
        dst: &DeviceResource<Self>,
        elements: Elements<Self::DataType>,
        counts: &[u64],
        stream: Self::CommStream,
    ) -> Result<()> {
        let _ = (comm, src, dst, elements, counts, stream);
        Err(unsupported::<Self>("all_gather_v"))
    }

    /// As [`CollectiveDriver::reduce_scatter`], where rank r's chunk has `counts[r]` elements;
    /// `elements` counts the destination. Composed by aether where [`Capabilities::vector`](crate::Capabilities::vector) is false.
    ///
    /// # Errors
    /// The driver's refusal to enqueue it.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn reduce_scatter_v(
        comm: &Self::Communicator,
        src: &DeviceResource<Self>,
        dst: &DeviceResource<Self>,
        elements: Elements<Self::DataType>,
        counts: &[u64],
        op: ReduceOp,
        stream: Self::CommStream,
    ) -> Result<()> {
        let _ = (comm, src, dst, elements, counts, op, stream);
        Err(unsupported::<Self>("reduce_scatter_v"))
    }

    /// As [`CollectiveDriver::all_to_all`], where rank i sends `counts[i * ranks + j]` elements to rank
    /// j; `elements` counts the source. Chunks lie densely in rank order. Composed by aether where
    /// [`Capabilities::vector`](crate::Capabilities::vector) is false.
    ///
    /// # Errors
    /// The driver's refusal to enqueue it.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn all_to_all_v(
        comm: &Self::Communicator,
        src: &DeviceResource<Self>,
        dst: &DeviceResource<Self>,
        elements: Elements<Self::DataType>,
        counts: &[u64],
        stream: Self::CommStream,
    ) -> Result<()> {
        let _ = (comm, src, dst, elements, counts, stream);
        Err(unsupported::<Self>("all_to_all_v"))
    }
}

/// What a driver answers to what it can't do.
fn unsupported<D: Driver>(attempted: &'static str) -> Error {
    Error::new(ErrorKind::Unsupported, attempted, "the driver can't do it").on(D::name())
}
