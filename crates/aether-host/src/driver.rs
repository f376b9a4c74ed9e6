//! The host as a collective driver.

use aether_collective::{
    Capabilities, CollectiveDriver, CommunicationId, DeviceResource, Driver, Elements, GroupConfig,
    OpName, ReduceOp, Signature,
};
use aether_core::{
    DType, Device, DeviceKind, Error, ErrorKind, NativeStream, Region, Result, Stream,
};

use crate::comm;
use crate::lane::End;
use crate::member::Communicator;
use crate::processes;
use crate::registry::{self, HostId};
use crate::resource::HostRange;

/// Collectives on the CPU, between the threads of one process.
///
/// Memory is shared, so every thread that takes part takes slices, reads that slice of all sources and
/// writes that slice of all destinations: each byte is read once and written once.
#[derive(Clone, Copy, Debug)]
pub struct Host;

impl Driver for Host {
    type Resource = HostRange;

    fn name() -> &'static str {
        "host"
    }

    fn supports(device: &Device) -> bool {
        device.kind() == DeviceKind::CPU && device.host_addressable()
    }

    fn reaches(device: &Device, memory: &Device) -> bool {
        // One machine, one memory: a part of one chunk may be any member's buffer.
        let plain = |it: &Device| it.shares_backend(&Device::cpu(0));
        let is_heap = |it: &Device| processes::heap::is_of(it);
        Self::supports(memory)
            && (device.shares_backend(memory)
                || is_heap(device) && plain(memory)
                || plain(device) && is_heap(memory))
    }

    fn capabilities() -> Capabilities {
        Capabilities::default().with_barrier(true).with_rooted(true).with_vector(true)
    }

    fn resource(region: Region) -> HostRange {
        HostRange { address: region.address, bytes: region.bytes }
    }
}

type Range = DeviceResource<Host>;
type Named = Elements<DType>;

/// The signature of a call on these elements.
fn signed(operation: OpName, elements: Named) -> Signature {
    Signature::new(operation, elements.data_type, elements.count)
}

// SAFETY: a call's memory is touched by threads that took a slice of its round or a piece of its lane,
// which is possible only after the rank arrived; `issued` answers true only when all of them have
// ended, and an error only when no more can be taken and those that were have ended. What is read and
// written is what `call::lay_out` says, which follows the documentation of each method.
unsafe impl CollectiveDriver for Host {
    type Communicator = Communicator;
    type UniqueId = HostId;
    type DataType = DType;
    type CommStream = NativeStream;

    fn group_id(id: &CommunicationId) -> Result<HostId> {
        Ok(registry::identify(id))
    }

    fn id_to_bytes(id: HostId) -> Vec<u8> {
        id.to_bytes()
    }

    fn id_from_bytes(bytes: &[u8]) -> Result<HostId> {
        HostId::from_bytes(bytes)
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
    ) -> Result<Communicator> {
        Communicator::join(id, ranks, rank, device, config)
    }

    fn elements(dtype: DType, bytes: u64) -> Result<Named> {
        let size = dtype.size() as u64;
        if bytes.is_multiple_of(size) {
            return Ok(Elements { data_type: dtype, count: bytes / size });
        }
        let reason = format!("{bytes} bytes are not whole elements of {dtype}");
        Err(Error::new(ErrorKind::PartialElement, "count elements", reason).of_bytes(bytes))
    }

    unsafe fn all_reduce(
        comm: &Communicator,
        src: &Range,
        dst: &Range,
        elements: Named,
        op: ReduceOp,
        _stream: NativeStream,
    ) -> Result<()> {
        let signature = signed(OpName::AllReduce, elements).with_op(op);
        comm.arrive(signature, Some(*src), Some(*dst), &[])
    }

    unsafe fn all_gather(
        comm: &Communicator,
        src: &Range,
        dst: &Range,
        elements: Named,
        _stream: NativeStream,
    ) -> Result<()> {
        comm.arrive(signed(OpName::AllGather, elements), Some(*src), Some(*dst), &[])
    }

    unsafe fn reduce_scatter(
        comm: &Communicator,
        src: &Range,
        dst: &Range,
        elements: Named,
        op: ReduceOp,
        _stream: NativeStream,
    ) -> Result<()> {
        let signature = signed(OpName::ReduceScatter, elements).with_op(op);
        comm.arrive(signature, Some(*src), Some(*dst), &[])
    }

    unsafe fn broadcast(
        comm: &Communicator,
        src: Option<&Range>,
        dst: &Range,
        elements: Named,
        root: usize,
        _stream: NativeStream,
    ) -> Result<()> {
        let signature = signed(OpName::Broadcast, elements).with_root(root);
        comm.arrive(signature, src.copied(), Some(*dst), &[])
    }

    unsafe fn all_to_all(
        comm: &Communicator,
        src: &Range,
        dst: &Range,
        elements: Named,
        _ranks: usize,
        _stream: NativeStream,
    ) -> Result<()> {
        comm.arrive(signed(OpName::AllToAll, elements), Some(*src), Some(*dst), &[])
    }

    unsafe fn send(
        comm: &Communicator,
        src: &Range,
        elements: Named,
        peer: usize,
        _stream: NativeStream,
    ) -> Result<()> {
        comm.message(End::Send, *src, elements.data_type, elements.count, peer)
    }

    unsafe fn recv(
        comm: &Communicator,
        dst: &Range,
        elements: Named,
        peer: usize,
        _stream: NativeStream,
    ) -> Result<()> {
        comm.message(End::Recv, *dst, elements.data_type, elements.count, peer)
    }

    fn batch_begin(comm: &Communicator) -> Result<()> {
        comm.batch_begin()
    }

    fn batch_end(comm: &Communicator) -> Result<()> {
        comm.batch_end()
    }

    fn issued(comm: &Communicator) -> Result<bool> {
        comm.poll()
    }

    fn failure(comm: &Communicator) -> Option<Error> {
        comm.failure()
    }

    fn abort(comm: &Communicator, why: &Error) -> Result<()> {
        comm.abort(why);
        Ok(())
    }

    fn leaving(comm: &Communicator, panicking: bool) {
        if panicking {
            comm.panicked();
        }
    }

    unsafe fn barrier(comm: &Communicator, _stream: NativeStream) -> Result<()> {
        comm.arrive(comm::Communicator::barrier_signature(), None, None, &[])
    }

    unsafe fn gather(
        comm: &Communicator,
        src: &Range,
        dst: Option<&Range>,
        elements: Named,
        root: usize,
        _stream: NativeStream,
    ) -> Result<()> {
        let signature = signed(OpName::Gather, elements).with_root(root);
        comm.arrive(signature, Some(*src), dst.copied(), &[])
    }

    unsafe fn scatter(
        comm: &Communicator,
        src: Option<&Range>,
        dst: &Range,
        elements: Named,
        root: usize,
        _stream: NativeStream,
    ) -> Result<()> {
        let signature = signed(OpName::Scatter, elements).with_root(root);
        comm.arrive(signature, src.copied(), Some(*dst), &[])
    }

    unsafe fn reduce(
        comm: &Communicator,
        src: &Range,
        dst: Option<&Range>,
        elements: Named,
        op: ReduceOp,
        root: usize,
        _stream: NativeStream,
    ) -> Result<()> {
        let signature = signed(OpName::Reduce, elements).with_op(op).with_root(root);
        comm.arrive(signature, Some(*src), dst.copied(), &[])
    }

    unsafe fn all_gather_v(
        comm: &Communicator,
        src: &Range,
        dst: &Range,
        elements: Named,
        counts: &[u64],
        _stream: NativeStream,
    ) -> Result<()> {
        comm.arrive(vector(OpName::AllGatherV, elements, counts), Some(*src), Some(*dst), counts)
    }

    unsafe fn reduce_scatter_v(
        comm: &Communicator,
        src: &Range,
        dst: &Range,
        elements: Named,
        counts: &[u64],
        op: ReduceOp,
        _stream: NativeStream,
    ) -> Result<()> {
        let signature = vector(OpName::ReduceScatterV, elements, counts).with_op(op);
        comm.arrive(signature, Some(*src), Some(*dst), counts)
    }

    unsafe fn all_to_all_v(
        comm: &Communicator,
        src: &Range,
        dst: &Range,
        elements: Named,
        counts: &[u64],
        _stream: NativeStream,
    ) -> Result<()> {
        comm.arrive(vector(OpName::AllToAllV, elements, counts), Some(*src), Some(*dst), counts)
    }
}

/// The signature of a vector variant: each rank's own count differs by design, the list doesn't.
fn vector(operation: OpName, elements: Named, counts: &[u64]) -> Signature {
    let total = counts.iter().fold(0u64, |sum, &it| sum.wrapping_add(it));
    Signature::new(operation, elements.data_type, total).with_counts(counts)
}
