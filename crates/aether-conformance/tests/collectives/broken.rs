//! The host's driver with one defect, which the group's name tells.

use aether_collective::{
    Capabilities, CollectiveDriver, CommunicationId, Driver, Elements, GroupConfig, ReduceOp,
};
use aether_conformance::collectives::operation::Operation;
use aether_core::{DType, Device, Error, NativeStream, Region, Result, Stream};
use aether_host::{Host, HostId, HostRange};

use crate::comm::{Comm, Message, Named, Range};
use crate::defect::Defect::*;

/// The host's driver behind a wrapper. `BARE` hides the operations that the host has beyond the
/// required ones, so that aether composes them.
pub(crate) struct Broken<const BARE: bool>;

impl<const BARE: bool> Driver for Broken<BARE> {
    type Resource = HostRange;

    fn name() -> &'static str {
        if BARE { "bare host" } else { "broken host" }
    }

    fn supports(device: &Device) -> bool {
        Host::supports(device)
    }

    fn capabilities() -> Capabilities {
        if BARE { Capabilities::default() } else { Host::capabilities() }
    }

    fn resource(region: Region) -> HostRange {
        Host::resource(region)
    }
}

// SAFETY: the host keeps the contract, and the wrapper touches the memory of a call between the call
// and the answer of `issued`. The defects that don't are run by cases that keep the memory longer.
unsafe impl<const BARE: bool> CollectiveDriver for Broken<BARE> {
    type Communicator = Comm;
    type UniqueId = HostId;
    type DataType = DType;
    type CommStream = NativeStream;

    fn group_id(id: &CommunicationId) -> Result<HostId> {
        Host::group_id(id)
    }

    fn id_to_bytes(id: HostId) -> Vec<u8> {
        Host::id_to_bytes(id)
    }

    fn id_from_bytes(bytes: &[u8]) -> Result<HostId> {
        Host::id_from_bytes(bytes)
    }

    fn comm_stream(stream: &Stream) -> NativeStream {
        stream.native()
    }

    fn join(
        id: HostId,
        ranks: usize,
        rank: usize,
        device: &Device,
        config: &GroupConfig,
    ) -> Result<Comm> {
        Comm::join(id, ranks, rank, device, config)
    }

    fn elements(dtype: DType, bytes: u64) -> Result<Named> {
        Host::elements(dtype, bytes)
    }

    unsafe fn all_reduce(
        comm: &Comm,
        src: &Range,
        dst: &Range,
        elements: Named,
        op: ReduceOp,
        stream: NativeStream,
    ) -> Result<()> {
        let ends = (Some(*src), Some(*dst));
        let told = if comm.defect == ReductionIgnored { ReduceOp::Sum } else { op };
        comm.collective(Operation::AllReduce(op), elements, ends, |inner, elements| {
            // SAFETY: what aether promised for this wrapper's call, in the same words.
            unsafe { Host::all_reduce(inner, src, dst, elements, told, stream) }
        })
    }

    unsafe fn all_gather(
        comm: &Comm,
        src: &Range,
        dst: &Range,
        elements: Named,
        stream: NativeStream,
    ) -> Result<()> {
        let ends = (Some(*src), Some(*dst));
        comm.collective(Operation::AllGather, elements, ends, |inner, elements| {
            if comm.defect == OperationIgnored {
                let count = (dst.bytes / elements.data_type.size()) as u64;
                let all = Elements { count, ..elements };
                // SAFETY: the destination is as long as this says, and is read and written in place.
                return unsafe { Host::all_reduce(inner, dst, dst, all, ReduceOp::Sum, stream) };
            }
            // SAFETY: what aether promised for this wrapper's call, in the same words.
            unsafe { Host::all_gather(inner, src, dst, elements, stream) }
        })
    }

    unsafe fn reduce_scatter(
        comm: &Comm,
        src: &Range,
        dst: &Range,
        elements: Named,
        op: ReduceOp,
        stream: NativeStream,
    ) -> Result<()> {
        let ends = (Some(*src), Some(*dst));
        comm.collective(Operation::ReduceScatter(op), elements, ends, |inner, elements| {
            // SAFETY: what aether promised for this wrapper's call, in the same words.
            unsafe { Host::reduce_scatter(inner, src, dst, elements, op, stream) }
        })
    }

    unsafe fn broadcast(
        comm: &Comm,
        src: Option<&Range>,
        dst: &Range,
        elements: Named,
        root: usize,
        stream: NativeStream,
    ) -> Result<()> {
        let ends = (src.copied(), Some(*dst));
        comm.collective(Operation::Broadcast(root), elements, ends, |inner, elements| {
            match comm.defect {
                OperationIgnored => {
                    let op = ReduceOp::Sum;
                    // SAFETY: the destination is read and written in place.
                    return unsafe { Host::all_reduce(inner, dst, dst, elements, op, stream) };
                }
                RootIgnored => {
                    let src = (comm.rank == 0).then_some(src.unwrap_or(dst));
                    // SAFETY: what aether promised, and rank 0 reads its destination.
                    return unsafe { Host::broadcast(inner, src, dst, elements, 0, stream) };
                }
                _ => {}
            }
            // SAFETY: what aether promised for this wrapper's call, in the same words.
            unsafe { Host::broadcast(inner, src, dst, elements, root, stream) }
        })
    }

    unsafe fn all_to_all(
        comm: &Comm,
        src: &Range,
        dst: &Range,
        elements: Named,
        ranks: usize,
        stream: NativeStream,
    ) -> Result<()> {
        let ends = (Some(*src), Some(*dst));
        comm.collective(Operation::AllToAll, elements, ends, |inner, elements| {
            // SAFETY: what aether promised for this wrapper's call, in the same words.
            unsafe { Host::all_to_all(inner, src, dst, elements, ranks, stream) }
        })
    }

    unsafe fn send(
        comm: &Comm,
        src: &Range,
        elements: Named,
        peer: usize,
        _stream: NativeStream,
    ) -> Result<()> {
        comm.message(Message { sends: true, memory: *src, elements, peer })
    }

    unsafe fn recv(
        comm: &Comm,
        dst: &Range,
        elements: Named,
        peer: usize,
        _stream: NativeStream,
    ) -> Result<()> {
        comm.message(Message { sends: false, memory: *dst, elements, peer })
    }

    fn batch_begin(comm: &Comm) -> Result<()> {
        comm.batch_begin();
        Ok(())
    }

    fn batch_end(comm: &Comm) -> Result<()> {
        comm.batch_end()
    }

    fn issued(comm: &Comm) -> Result<bool> {
        comm.issued()
    }

    fn failure(comm: &Comm) -> Option<Error> {
        comm.failure()
    }

    fn abort(comm: &Comm, why: &Error) -> Result<()> {
        Host::abort(comm.inner()?, why)
    }

    fn leaving(comm: &Comm, panicking: bool) {
        if let Ok(inner) = comm.inner() {
            Host::leaving(inner, panicking);
        }
    }

    fn finish(comm: &Comm) -> Result<()> {
        if comm.defect == FinishSaysNothing {
            return Ok(());
        }
        Host::finish(comm.inner()?)
    }

    unsafe fn barrier(comm: &Comm, stream: NativeStream) -> Result<()> {
        comm.barrier(stream)
    }

    unsafe fn gather(
        comm: &Comm,
        src: &Range,
        dst: Option<&Range>,
        elements: Named,
        root: usize,
        stream: NativeStream,
    ) -> Result<()> {
        let ends = (Some(*src), dst.copied());
        comm.collective(Operation::Gather(root), elements, ends, |inner, elements| {
            // SAFETY: what aether promised for this wrapper's call, in the same words.
            unsafe { Host::gather(inner, src, dst, elements, root, stream) }
        })
    }

    unsafe fn scatter(
        comm: &Comm,
        src: Option<&Range>,
        dst: &Range,
        elements: Named,
        root: usize,
        stream: NativeStream,
    ) -> Result<()> {
        let ends = (src.copied(), Some(*dst));
        comm.collective(Operation::Scatter(root), elements, ends, |inner, elements| {
            // SAFETY: what aether promised for this wrapper's call, in the same words.
            unsafe { Host::scatter(inner, src, dst, elements, root, stream) }
        })
    }

    unsafe fn reduce(
        comm: &Comm,
        src: &Range,
        dst: Option<&Range>,
        elements: Named,
        op: ReduceOp,
        root: usize,
        stream: NativeStream,
    ) -> Result<()> {
        let ends = (Some(*src), dst.copied());
        comm.collective(Operation::Reduce(op, root), elements, ends, |inner, elements| {
            // SAFETY: what aether promised for this wrapper's call, in the same words.
            unsafe { Host::reduce(inner, src, dst, elements, op, root, stream) }
        })
    }

    unsafe fn all_gather_v(
        comm: &Comm,
        src: &Range,
        dst: &Range,
        elements: Named,
        counts: &[u64],
        stream: NativeStream,
    ) -> Result<()> {
        let ends = (Some(*src), Some(*dst));
        let mut told = counts.to_vec();
        if comm.defect == CountsSorted {
            told.sort_unstable();
        }
        comm.collective(
            Operation::AllGatherV(counts.to_vec()),
            elements,
            ends,
            |inner, elements| {
                // SAFETY: what aether promised for this wrapper's call; sorted counts have the same sum,
                // and the case whose lists differ gives every rank what sorted counts ask of it.
                unsafe { Host::all_gather_v(inner, src, dst, elements, &told, stream) }
            },
        )
    }

    unsafe fn reduce_scatter_v(
        comm: &Comm,
        src: &Range,
        dst: &Range,
        elements: Named,
        counts: &[u64],
        op: ReduceOp,
        stream: NativeStream,
    ) -> Result<()> {
        let ends = (Some(*src), Some(*dst));
        let operation = Operation::ReduceScatterV(counts.to_vec(), op);
        comm.collective(operation, elements, ends, |inner, elements| {
            // SAFETY: what aether promised for this wrapper's call, in the same words.
            unsafe { Host::reduce_scatter_v(inner, src, dst, elements, counts, op, stream) }
        })
    }

    unsafe fn all_to_all_v(
        comm: &Comm,
        src: &Range,
        dst: &Range,
        elements: Named,
        counts: &[u64],
        stream: NativeStream,
    ) -> Result<()> {
        let ends = (Some(*src), Some(*dst));
        let operation = Operation::AllToAllV(counts.to_vec());
        comm.collective(operation, elements, ends, |inner, elements| {
            // SAFETY: what aether promised for this wrapper's call, in the same words.
            unsafe { Host::all_to_all_v(inner, src, dst, elements, counts, stream) }
        })
    }
}
