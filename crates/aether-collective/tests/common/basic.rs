//! The host with nothing but what a driver has to provide.

use std::cell::RefCell;

use aether_collective::{
    Capabilities, CollectiveDriver, CommunicationId, DeviceResource, Driver, Elements, GroupConfig,
    ReduceOp,
};
use aether_core::{DType, Device, Error, Region, Result, Stream};
use aether_host::Host;

thread_local! {
    /// What happens once, when this thread next enqueues an all_reduce.
    static MEANWHILE: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// Has something happen when this thread next enqueues an all_reduce.
pub fn meanwhile(run: impl FnOnce() + 'static) {
    MEANWHILE.set(Some(Box::new(run)));
}

/// What was to happen and has not: another thread, a worker, enqueued the all_reduce.
pub fn has_not_happened() -> Option<Box<dyn FnOnce()>> {
    MEANWHILE.take()
}

type Comm = <Host as CollectiveDriver>::Communicator;
type Range = DeviceResource<Host>;
type Named = Elements<DType>;
type Raw = <Host as CollectiveDriver>::CommStream;

/// The host with nothing but what a driver has to provide: what is composed runs on it.
pub struct Basic;

impl Driver for Basic {
    type Resource = Range;

    fn name() -> &'static str {
        "basic"
    }

    fn supports(device: &Device) -> bool {
        Host::supports(device)
    }

    fn capabilities() -> Capabilities {
        Capabilities::default()
    }

    fn resource(region: Region) -> Range {
        Host::resource(region)
    }
}

// SAFETY: every promise is that of `Host`, which does all of it.
unsafe impl CollectiveDriver for Basic {
    type Communicator = Comm;
    type UniqueId = <Host as CollectiveDriver>::UniqueId;
    type DataType = DType;
    type CommStream = Raw;

    fn group_id(id: &CommunicationId) -> Result<Self::UniqueId> {
        Host::group_id(id)
    }

    fn id_to_bytes(id: Self::UniqueId) -> Vec<u8> {
        Host::id_to_bytes(id)
    }

    fn id_from_bytes(bytes: &[u8]) -> Result<Self::UniqueId> {
        Host::id_from_bytes(bytes)
    }

    fn comm_stream(stream: &Stream) -> Raw {
        Host::comm_stream(stream)
    }

    fn join(
        id: Self::UniqueId,
        ranks: usize,
        rank: usize,
        device: &Device,
        config: &GroupConfig,
    ) -> Result<Comm> {
        Host::join(id, ranks, rank, device, config)
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
        stream: Raw,
    ) -> Result<()> {
        if let Some(run) = MEANWHILE.take() {
            run();
        }
        // SAFETY: the caller promises the same contract.
        unsafe { Host::all_reduce(comm, src, dst, elements, op, stream) }
    }

    unsafe fn all_gather(
        comm: &Comm,
        src: &Range,
        dst: &Range,
        elements: Named,
        stream: Raw,
    ) -> Result<()> {
        // SAFETY: the caller promises the same contract.
        unsafe { Host::all_gather(comm, src, dst, elements, stream) }
    }

    unsafe fn reduce_scatter(
        comm: &Comm,
        src: &Range,
        dst: &Range,
        elements: Named,
        op: ReduceOp,
        stream: Raw,
    ) -> Result<()> {
        // SAFETY: the caller promises the same contract.
        unsafe { Host::reduce_scatter(comm, src, dst, elements, op, stream) }
    }

    unsafe fn broadcast(
        comm: &Comm,
        src: Option<&Range>,
        dst: &Range,
        elements: Named,
        root: usize,
        stream: Raw,
    ) -> Result<()> {
        // SAFETY: the caller promises the same contract.
        unsafe { Host::broadcast(comm, src, dst, elements, root, stream) }
    }

    unsafe fn all_to_all(
        comm: &Comm,
        src: &Range,
        dst: &Range,
        elements: Named,
        ranks: usize,
        stream: Raw,
    ) -> Result<()> {
        // SAFETY: the caller promises the same contract.
        unsafe { Host::all_to_all(comm, src, dst, elements, ranks, stream) }
    }

    unsafe fn send(
        comm: &Comm,
        src: &Range,
        elements: Named,
        peer: usize,
        stream: Raw,
    ) -> Result<()> {
        // SAFETY: the caller promises the same contract.
        unsafe { Host::send(comm, src, elements, peer, stream) }
    }

    unsafe fn recv(
        comm: &Comm,
        dst: &Range,
        elements: Named,
        peer: usize,
        stream: Raw,
    ) -> Result<()> {
        // SAFETY: the caller promises the same contract.
        unsafe { Host::recv(comm, dst, elements, peer, stream) }
    }

    fn batch_begin(comm: &Comm) -> Result<()> {
        Host::batch_begin(comm)
    }

    fn batch_end(comm: &Comm) -> Result<()> {
        Host::batch_end(comm)
    }

    fn issued(comm: &Comm) -> Result<bool> {
        Host::issued(comm)
    }

    fn failure(comm: &Comm) -> Option<Error> {
        Host::failure(comm)
    }

    fn abort(comm: &Comm, why: &Error) -> Result<()> {
        Host::abort(comm, why)
    }

    fn leaving(comm: &Comm, panicking: bool) {
        Host::leaving(comm, panicking);
    }
}
