//! A checked call as its driver gets it.

use aether_core::Result;
use smallvec::SmallVec;

use crate::{CollectiveDriver, DeviceResource, Elements, ReduceOp};

type Named<D> = Elements<<D as CollectiveDriver>::DataType>;

/// One call of the driver, with everything resolved. It owns nothing but the lists of counts.
pub(crate) enum Call<D: CollectiveDriver> {
    AllReduce {
        src: DeviceResource<D>,
        dst: DeviceResource<D>,
        elements: Named<D>,
        op: ReduceOp,
    },
    AllGather {
        src: DeviceResource<D>,
        dst: DeviceResource<D>,
        elements: Named<D>,
    },
    AllGatherV {
        src: DeviceResource<D>,
        dst: DeviceResource<D>,
        elements: Named<D>,
        counts: Box<[u64]>,
    },
    ReduceScatter {
        src: DeviceResource<D>,
        dst: DeviceResource<D>,
        elements: Named<D>,
        op: ReduceOp,
    },
    ReduceScatterV {
        src: DeviceResource<D>,
        dst: DeviceResource<D>,
        elements: Named<D>,
        counts: Box<[u64]>,
        op: ReduceOp,
    },
    Broadcast {
        src: Option<DeviceResource<D>>,
        dst: DeviceResource<D>,
        elements: Named<D>,
        root: usize,
    },
    AllToAll {
        src: DeviceResource<D>,
        dst: DeviceResource<D>,
        elements: Named<D>,
        ranks: usize,
    },
    AllToAllV {
        src: DeviceResource<D>,
        dst: DeviceResource<D>,
        elements: Named<D>,
        counts: Box<[u64]>,
    },
    Gather {
        src: DeviceResource<D>,
        dst: Option<DeviceResource<D>>,
        elements: Named<D>,
        root: usize,
    },
    Scatter {
        src: Option<DeviceResource<D>>,
        dst: DeviceResource<D>,
        elements: Named<D>,
        root: usize,
    },
    Reduce {
        src: DeviceResource<D>,
        dst: Option<DeviceResource<D>>,
        elements: Named<D>,
        op: ReduceOp,
        root: usize,
    },
    Barrier,
    Batch(SmallVec<[Post<D>; 2]>),
}

/// One message of a batch.
pub(crate) enum Post<D: CollectiveDriver> {
    Send { src: DeviceResource<D>, elements: Named<D>, peer: usize },
    Recv { dst: DeviceResource<D>, elements: Named<D>, peer: usize },
}

impl<D: CollectiveDriver> Call<D> {
    /// Hands the call to the driver.
    ///
    /// # Safety
    /// The contract of [`CollectiveDriver`]'s methods that enqueue: the resources are valid, aligned
    /// and free of conflicting access until the operation has ended.
    pub(crate) unsafe fn enqueue(
        &self,
        comm: &D::Communicator,
        stream: D::CommStream,
    ) -> Result<()> {
        // SAFETY of every call below: the caller promises the driver's contract for the resources of
        // this call, which the planner laid out as each method's documentation asks.
        match self {
            // SAFETY: see above.
            &Self::AllReduce { ref src, ref dst, elements, op } => unsafe {
                D::all_reduce(comm, src, dst, elements, op, stream)
            },
            // SAFETY: see above.
            &Self::AllGather { ref src, ref dst, elements } => unsafe {
                D::all_gather(comm, src, dst, elements, stream)
            },
            // SAFETY: see above.
            &Self::AllGatherV { ref src, ref dst, elements, ref counts } => unsafe {
                D::all_gather_v(comm, src, dst, elements, counts, stream)
            },
            // SAFETY: see above.
            &Self::ReduceScatter { ref src, ref dst, elements, op } => unsafe {
                D::reduce_scatter(comm, src, dst, elements, op, stream)
            },
            // SAFETY: see above.
            &Self::ReduceScatterV { ref src, ref dst, elements, ref counts, op } => unsafe {
                D::reduce_scatter_v(comm, src, dst, elements, counts, op, stream)
            },
            // SAFETY: see above.
            &Self::Broadcast { ref src, ref dst, elements, root } => unsafe {
                D::broadcast(comm, src.as_ref(), dst, elements, root, stream)
            },
            // SAFETY: see above.
            &Self::AllToAll { ref src, ref dst, elements, ranks } => unsafe {
                D::all_to_all(comm, src, dst, elements, ranks, stream)
            },
            // SAFETY: see above.
            &Self::AllToAllV { ref src, ref dst, elements, ref counts } => unsafe {
                D::all_to_all_v(comm, src, dst, elements, counts, stream)
            },
            // SAFETY: see above.
            &Self::Gather { ref src, ref dst, elements, root } => unsafe {
                D::gather(comm, src, dst.as_ref(), elements, root, stream)
            },
            // SAFETY: see above.
            &Self::Scatter { ref src, ref dst, elements, root } => unsafe {
                D::scatter(comm, src.as_ref(), dst, elements, root, stream)
            },
            // SAFETY: see above.
            &Self::Reduce { ref src, ref dst, elements, op, root } => unsafe {
                D::reduce(comm, src, dst.as_ref(), elements, op, root, stream)
            },
            // SAFETY: see above.
            Self::Barrier => unsafe { D::barrier(comm, stream) },
            Self::Batch(posts) => {
                D::batch_begin(comm)?;
                let posted = posts.iter().try_for_each(|post| {
                    // SAFETY: see above.
                    unsafe { post.enqueue(comm, stream) }
                });
                // The end is owed after a refusal too; the first error is the one that tells why.
                let ended = D::batch_end(comm);
                posted.and(ended)
            }
        }
    }
}

impl<D: CollectiveDriver> Post<D> {
    /// # Safety
    /// As [`Call::enqueue`].
    unsafe fn enqueue(&self, comm: &D::Communicator, stream: D::CommStream) -> Result<()> {
        match *self {
            // SAFETY: the caller promises the driver's contract for the resource.
            Self::Send { ref src, elements, peer } => unsafe {
                D::send(comm, src, elements, peer, stream)
            },
            // SAFETY: as above.
            Self::Recv { ref dst, elements, peer } => unsafe {
                D::recv(comm, dst, elements, peer, stream)
            },
        }
    }
}
