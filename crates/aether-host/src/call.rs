//! From what the ranks asked for to segments of memory.

use aether_collective::OpName;

use crate::kernels::Kernel;
use crate::layout::{Layout, Reduction};
use crate::resource::HostRange;
use crate::shared::Entry;

/// Lays out the work of a call on which all ranks agree.
pub(crate) fn lay_out(layout: &mut Layout, entries: &[Entry], counts: &[u64]) {
    let Some(first) = entries.first() else { return };
    let signature = first.signature;
    let size = signature.dtype.size();
    let ranks = entries.len();
    let reduction = signature.op.and_then(|op| {
        let kernel = Kernel::select(signature.dtype, op)?;
        Some(Reduction { kernel, size, ranks })
    });
    layout.clear(reduction);
    let bytes = signature.count as usize * size;
    let src = |rank: usize, at: usize| source(entries.get(rank).and_then(|it| it.src), at);
    let dst = |rank: usize, at: usize| destination(entries.get(rank).and_then(|it| it.dst), at);
    let all_src = |at: usize| (0..ranks).filter_map(move |rank| src(rank, at));
    let all_dst = |at: usize| (0..ranks).filter_map(move |rank| dst(rank, at));
    let root = signature.root.unwrap_or(0);
    let sizes = || counts.iter().map(move |&it| it as usize * size);
    match signature.operation {
        OpName::AllReduce => layout.push(all_src(0), all_dst(0), bytes),
        OpName::Reduce => layout.push(all_src(0), dst(root, 0).into_iter(), bytes),
        OpName::Broadcast => layout.push(src(root, 0).into_iter(), all_dst(0), bytes),
        OpName::AllGather => {
            for rank in 0..ranks {
                layout.push(src(rank, 0).into_iter(), all_dst(rank * bytes), bytes);
            }
        }
        OpName::AllGatherV => {
            for_chunks(sizes(), |rank, at, bytes| {
                layout.push(src(rank, 0).into_iter(), all_dst(at), bytes);
            });
        }
        OpName::ReduceScatter => {
            for rank in 0..ranks {
                layout.push(all_src(rank * bytes), dst(rank, 0).into_iter(), bytes);
            }
        }
        OpName::ReduceScatterV => {
            for_chunks(sizes(), |rank, at, bytes| {
                layout.push(all_src(at), dst(rank, 0).into_iter(), bytes);
            });
        }
        OpName::AllToAll => {
            for from in 0..ranks {
                for to in 0..ranks {
                    let (src, dst) = (src(from, to * bytes), dst(to, from * bytes));
                    layout.push(src.into_iter(), dst.into_iter(), bytes);
                }
            }
        }
        OpName::AllToAllV => {
            let count = |from: usize, to: usize| {
                counts.get(from * ranks + to).map_or(0, |&it| it as usize * size)
            };
            for from in 0..ranks {
                for to in 0..ranks {
                    let sent: usize = (0..to).map(|it| count(from, it)).sum();
                    let received: usize = (0..from).map(|it| count(it, to)).sum();
                    let (src, dst) = (src(from, sent), dst(to, received));
                    layout.push(src.into_iter(), dst.into_iter(), count(from, to));
                }
            }
        }
        OpName::Gather => {
            for rank in 0..ranks {
                layout.push(src(rank, 0).into_iter(), dst(root, rank * bytes).into_iter(), bytes);
            }
        }
        OpName::Scatter => {
            for rank in 0..ranks {
                layout.push(src(root, rank * bytes).into_iter(), dst(rank, 0).into_iter(), bytes);
            }
        }
        // A barrier moves nothing, and messages go through lanes.
        _ => {}
    }
}

/// Calls with each chunk's rank, start and size.
fn for_chunks(sizes: impl Iterator<Item = usize>, mut each: impl FnMut(usize, usize, usize)) {
    let mut at = 0;
    for (rank, bytes) in sizes.enumerate() {
        each(rank, at, bytes);
        at += bytes;
    }
}

fn source(range: Option<HostRange>, at: usize) -> Option<*const u8> {
    range.map(|it| it.address.add(at).as_ptr().cast_const())
}

fn destination(range: Option<HostRange>, at: usize) -> Option<*mut u8> {
    range.map(|it| it.address.add(at).as_ptr())
}
