//! The driver whose communicators stand for members in workers.

use std::marker::PhantomData;

use aether_collective::{
    Capabilities, CollectiveDriver, CommunicationId, Driver, Elements, GroupConfig, ReduceOp,
};
use aether_core::{Address, DType, Device, Error, ErrorKind, NativeStream, Region, Result, Stream};

use super::Remote;
use super::proxy::Proxy;
use crate::collectives::operation::Operation;

/// The driver of `R` across processes, as a driver of this one.
#[derive(Clone, Copy, Debug)]
pub struct Processes<R>(PhantomData<R>);

/// A range of memory of this process.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// Where it begins.
    pub address: Address,
    /// How long it is.
    pub bytes: usize,
}

impl<R: Remote> Driver for Processes<R> {
    type Resource = Range;

    fn name() -> &'static str {
        R::Driver::name()
    }

    fn supports(device: &Device) -> bool {
        device.host_addressable()
    }

    fn reaches(device: &Device, memory: &Device) -> bool {
        Self::supports(memory) && device.shares_backend(memory)
    }

    fn capabilities() -> Capabilities {
        // The bytes come and go by the CPU.
        R::Driver::capabilities().with_on_stream(false)
    }

    fn resource(region: Region) -> Range {
        Range { address: region.address, bytes: region.bytes }
    }
}

type Named = Elements<DType>;

// SAFETY: sources are read while the call is enqueued, and destinations written within `issued`, before
// it answers true; no other thread keeps their addresses, and no other rank has them.
unsafe impl<R: Remote> CollectiveDriver for Processes<R> {
    type Communicator = Proxy;
    /// The generation of the group.
    type UniqueId = u64;
    type DataType = DType;
    type CommStream = NativeStream;

    fn group_id(id: &CommunicationId) -> Result<u64> {
        Ok(id.generation())
    }

    fn id_to_bytes(id: u64) -> Vec<u8> {
        id.to_le_bytes().into()
    }

    fn id_from_bytes(bytes: &[u8]) -> Result<u64> {
        let number = bytes.try_into().map(u64::from_le_bytes);
        number.map_err(|_| {
            let reason = format!("{} bytes are no identifier of a group", bytes.len());
            Error::new(ErrorKind::Parse, "read a group's identifier", reason)
        })
    }

    fn comm_stream(stream: &Stream) -> NativeStream {
        stream.native()
    }

    fn join(
        id: u64,
        ranks: usize,
        rank: usize,
        device: &Device,
        config: &GroupConfig,
    ) -> Result<Proxy> {
        Proxy::begin::<R>(id, ranks, rank, device, config)?.joined::<R>(ranks, config)
    }

    fn join_all(
        id: u64,
        ranks: usize,
        members: &[(usize, &Device)],
        config: &GroupConfig,
    ) -> Result<Vec<Proxy>> {
        let begin =
            |&(rank, device): &(usize, &Device)| Proxy::begin::<R>(id, ranks, rank, device, config);
        let begun = members.iter().map(begin).collect::<Result<Vec<_>>>()?;
        begun.into_iter().map(|it| it.joined::<R>(ranks, config)).collect()
    }

    fn elements(dtype: DType, bytes: u64) -> Result<Named> {
        let Elements { count, .. } = R::Driver::elements(dtype, bytes)?;
        Ok(Elements { data_type: dtype, count })
    }

    fn reduces(dtype: DType, op: ReduceOp) -> bool {
        R::Driver::reduces(dtype, op)
    }

    unsafe fn all_reduce(
        comm: &Proxy,
        src: &Range,
        dst: &Range,
        elements: Named,
        op: ReduceOp,
        _: NativeStream,
    ) -> Result<()> {
        comm.collective(Operation::AllReduce(op), elements.data_type, Some(src), Some(dst))
    }

    unsafe fn all_gather(
        comm: &Proxy,
        src: &Range,
        dst: &Range,
        elements: Named,
        _: NativeStream,
    ) -> Result<()> {
        comm.collective(Operation::AllGather, elements.data_type, Some(src), Some(dst))
    }

    unsafe fn reduce_scatter(
        comm: &Proxy,
        src: &Range,
        dst: &Range,
        elements: Named,
        op: ReduceOp,
        _: NativeStream,
    ) -> Result<()> {
        comm.collective(Operation::ReduceScatter(op), elements.data_type, Some(src), Some(dst))
    }

    unsafe fn broadcast(
        comm: &Proxy,
        src: Option<&Range>,
        dst: &Range,
        elements: Named,
        root: usize,
        _: NativeStream,
    ) -> Result<()> {
        comm.collective(Operation::Broadcast(root), elements.data_type, src, Some(dst))
    }

    unsafe fn all_to_all(
        comm: &Proxy,
        src: &Range,
        dst: &Range,
        elements: Named,
        _: usize,
        _: NativeStream,
    ) -> Result<()> {
        comm.collective(Operation::AllToAll, elements.data_type, Some(src), Some(dst))
    }

    unsafe fn send(
        comm: &Proxy,
        src: &Range,
        elements: Named,
        peer: usize,
        _: NativeStream,
    ) -> Result<()> {
        comm.message(true, src, elements.data_type, peer)
    }

    unsafe fn recv(
        comm: &Proxy,
        dst: &Range,
        elements: Named,
        peer: usize,
        _: NativeStream,
    ) -> Result<()> {
        comm.message(false, dst, elements.data_type, peer)
    }

    fn batch_begin(comm: &Proxy) -> Result<()> {
        comm.open_batch();
        Ok(())
    }

    fn batch_end(comm: &Proxy) -> Result<()> {
        comm.close_batch()
    }

    fn issued(comm: &Proxy) -> Result<bool> {
        comm.issued()
    }

    fn failure(comm: &Proxy) -> Option<Error> {
        comm.failure()
    }

    fn abort(comm: &Proxy, why: &Error) -> Result<()> {
        comm.abort(why)
    }

    fn leaving(comm: &Proxy, panicking: bool) {
        if panicking {
            // A worker that can't be told has ended, and has left by that.
            drop(comm.leave(true));
        }
    }

    fn finish(comm: &Proxy) -> Result<()> {
        comm.finish()
    }

    unsafe fn barrier(comm: &Proxy, _: NativeStream) -> Result<()> {
        comm.barrier()
    }

    unsafe fn gather(
        comm: &Proxy,
        src: &Range,
        dst: Option<&Range>,
        elements: Named,
        root: usize,
        _: NativeStream,
    ) -> Result<()> {
        comm.collective(Operation::Gather(root), elements.data_type, Some(src), dst)
    }

    unsafe fn scatter(
        comm: &Proxy,
        src: Option<&Range>,
        dst: &Range,
        elements: Named,
        root: usize,
        _: NativeStream,
    ) -> Result<()> {
        comm.collective(Operation::Scatter(root), elements.data_type, src, Some(dst))
    }

    unsafe fn reduce(
        comm: &Proxy,
        src: &Range,
        dst: Option<&Range>,
        elements: Named,
        op: ReduceOp,
        root: usize,
        _: NativeStream,
    ) -> Result<()> {
        comm.collective(Operation::Reduce(op, root), elements.data_type, Some(src), dst)
    }

    unsafe fn all_gather_v(
        comm: &Proxy,
        src: &Range,
        dst: &Range,
        elements: Named,
        counts: &[u64],
        _: NativeStream,
    ) -> Result<()> {
        let operation = Operation::AllGatherV(counts.into());
        comm.collective(operation, elements.data_type, Some(src), Some(dst))
    }

    unsafe fn reduce_scatter_v(
        comm: &Proxy,
        src: &Range,
        dst: &Range,
        elements: Named,
        counts: &[u64],
        op: ReduceOp,
        _: NativeStream,
    ) -> Result<()> {
        let operation = Operation::ReduceScatterV(counts.into(), op);
        comm.collective(operation, elements.data_type, Some(src), Some(dst))
    }

    unsafe fn all_to_all_v(
        comm: &Proxy,
        src: &Range,
        dst: &Range,
        elements: Named,
        counts: &[u64],
        _: NativeStream,
    ) -> Result<()> {
        let operation = Operation::AllToAllV(counts.into());
        comm.collective(operation, elements.data_type, Some(src), Some(dst))
    }
}
