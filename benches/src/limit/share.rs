//! Who reads and writes what: an operation taken apart for threads that never wait for each other.

use crate::cell::{Cell, Op};

/// Elements of a cache line: the unit of the split.
const LINE: usize = 16;

/// What takes apart evenly: lines of each chunk for each thread.
const LINES: usize = 8;

/// One run over memory: the sum of all sources goes to every destination. All are equally long.
pub(super) struct Piece<'a> {
    pub(super) sources: Vec<&'a [f32]>,
    pub(super) destinations: Vec<&'a mut [f32]>,
}

/// Whether the cell is large enough, and made of whole cache lines.
pub(super) fn can_split(cell: &Cell, threads: usize) -> bool {
    let chunk = cell.elements() / cell.ranks;
    chunk >= LINE * LINES * threads && chunk.is_multiple_of(LINE)
}

/// The pieces of each thread. Sources and destinations are by rank, and as long as the operation has
/// them.
pub(super) fn shares<'a>(
    op: Op,
    sources: &[&'a [f32]],
    destinations: Vec<&'a mut [f32]>,
    threads: usize,
) -> Vec<Vec<Piece<'a>>> {
    let ranks = sources.len();
    let mut shares: Vec<Vec<Piece<'a>>> = (0..threads).map(|_| Vec::new()).collect();
    let mut give = |sources: Vec<&'a [f32]>, destinations: Vec<&'a mut [f32]>| {
        for (share, piece) in shares.iter_mut().zip(split(sources, destinations, threads)) {
            share.push(piece);
        }
    };
    match op {
        Op::AllReduce => give(sources.to_vec(), destinations),
        // The root has its data already.
        Op::Broadcast => give(vec![sources[0]], destinations.into_iter().skip(1).collect()),
        Op::ReduceScatter => {
            for (rank, destination) in destinations.into_iter().enumerate() {
                let chunk =
                    |source: &&'a [f32]| &source[rank * destination.len()..][..destination.len()];
                give(sources.iter().map(chunk).collect(), vec![destination]);
            }
        }
        Op::AllGather => {
            let chunk = sources[0].len();
            let mut chunks: Vec<_> =
                destinations.into_iter().map(|it| it.chunks_exact_mut(chunk)).collect();
            for source in sources {
                give(vec![source], chunks.iter_mut().filter_map(Iterator::next).collect());
            }
        }
        Op::AllToAll => {
            let chunk = sources[0].len() / ranks;
            for (rank, destination) in destinations.into_iter().enumerate() {
                for (source, destination) in sources.iter().zip(destination.chunks_exact_mut(chunk))
                {
                    give(vec![&source[rank * chunk..][..chunk]], vec![destination]);
                }
            }
        }
    }
    shares
}

/// One piece a thread, of whole lines and as even as these allow.
pub(super) fn split<'a>(
    mut sources: Vec<&'a [f32]>,
    mut destinations: Vec<&'a mut [f32]>,
    threads: usize,
) -> Vec<Piece<'a>> {
    let lines = sources[0].len() / LINE;
    let mut taken = 0;
    let mut pieces = Vec::with_capacity(threads);
    for thread in 1..=threads {
        let end = lines * thread / threads;
        let elements = (end - taken) * LINE;
        taken = end;
        let head = |source: &mut &'a [f32]| source.split_off(..elements).unwrap_or_default();
        let head_mut = |it: &mut &'a mut [f32]| it.split_off_mut(..elements).unwrap_or_default();
        pieces.push(Piece {
            sources: sources.iter_mut().map(head).collect(),
            destinations: destinations.iter_mut().map(head_mut).collect(),
        });
    }
    pieces
}
