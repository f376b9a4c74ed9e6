//! One call of all ranks: what each gives, how it is asked for, and what each has afterwards.

use aether_collective::{Group, GroupConfig, GroupSet, Message, ReduceOp, Request};
use aether_core::{Chunk, DType, Device, Result};
use aether_host::Host;

use crate::common::{mix, threads};
use crate::reference;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    AllGather,
    AllGatherV,
    AllReduce,
    AllToAll,
    AllToAllV,
    Broadcast,
    Gather,
    Permute,
    Reduce,
    ReduceScatter,
    ReduceScatterV,
    Scatter,
}

impl Kind {
    pub(crate) const ALL: [Self; 12] = [
        Self::AllGather,
        Self::AllGatherV,
        Self::AllReduce,
        Self::AllToAll,
        Self::AllToAllV,
        Self::Broadcast,
        Self::Gather,
        Self::Permute,
        Self::Reduce,
        Self::ReduceScatter,
        Self::ReduceScatterV,
        Self::Scatter,
    ];

    pub(crate) fn reduces(self) -> bool {
        use Kind::{AllReduce, Reduce, ReduceScatter, ReduceScatterV};
        matches!(self, AllReduce | Reduce | ReduceScatter | ReduceScatterV)
    }

    fn has_in_place(self) -> bool {
        use Kind::{AllGather, AllGatherV, AllReduce, Broadcast, Reduce, ReduceScatter};
        matches!(self, AllGather | AllGatherV | AllReduce | Broadcast | Reduce | ReduceScatter)
    }
}

/// Elements beyond each end of a buffer, which nobody may write.
const GUARD: usize = 3;

#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) kind: Kind,
    pub(crate) dtype: DType,
    pub(crate) op: ReduceOp,
    pub(crate) ranks: usize,
    /// Elements of a chunk, or about as many where they differ.
    pub(crate) count: usize,
    pub(crate) root: usize,
    pub(crate) in_place: bool,
    /// Any bits, or else numbers that are near each other.
    pub(crate) any_bits: bool,
    pub(crate) seed: u64,
}

/// How the ranks make their calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Callers {
    /// One thread holds every rank.
    One,
    /// One thread holds every rank, and waits after it has let go of nothing.
    OneLater,
    /// A thread a rank.
    Threads,
}

impl Case {
    /// How many elements chunk `at` of a vector variant has: some have none.
    fn count_of(&self, at: usize) -> usize {
        match mix(self.seed ^ at as u64) % 4 {
            0 => 0,
            1 => self.count,
            _ => mix(self.seed ^ (at as u64) << 8) as usize % (self.count + 1),
        }
    }

    fn counts(&self) -> Vec<u64> {
        let number = match self.kind {
            Kind::AllToAllV => self.ranks * self.ranks,
            Kind::AllGatherV | Kind::ReduceScatterV => self.ranks,
            _ => 0,
        };
        (0..number).map(|at| self.count_of(at) as u64).collect()
    }

    fn total(&self) -> usize {
        (0..self.ranks).map(|it| self.count_of(it)).sum()
    }

    /// The receiver of each rank's message.
    fn receiver(&self, rank: usize) -> usize {
        let (ranks, seed) = (self.ranks, self.seed as usize);
        // A rotation, or a reflection, in which some send to themselves.
        if seed.is_multiple_of(2) {
            (rank + seed) % ranks
        } else {
            (seed % ranks + ranks - rank) % ranks
        }
    }

    fn sender(&self, rank: usize) -> usize {
        (0..self.ranks).find(|&it| self.receiver(it) == rank).unwrap()
    }

    /// How many elements the rank's source has, if it has one.
    fn source(&self, rank: usize) -> Option<usize> {
        let at_root = rank == self.root;
        match self.kind {
            Kind::AllGather | Kind::AllReduce | Kind::Gather | Kind::Permute | Kind::Reduce => {
                Some(self.count)
            }
            Kind::AllGatherV => Some(self.count_of(rank)),
            Kind::AllToAll | Kind::ReduceScatter => Some(self.count * self.ranks),
            Kind::AllToAllV => Some((0..self.ranks).map(|it| self.between(rank, it)).sum()),
            Kind::Broadcast => at_root.then_some(self.count),
            Kind::ReduceScatterV => Some(self.total()),
            Kind::Scatter => at_root.then_some(self.count * self.ranks),
        }
    }

    fn destination(&self, rank: usize) -> Option<usize> {
        let at_root = rank == self.root;
        match self.kind {
            Kind::AllGather | Kind::AllToAll => Some(self.count * self.ranks),
            Kind::AllGatherV => Some(self.total()),
            Kind::AllReduce
            | Kind::Broadcast
            | Kind::Permute
            | Kind::ReduceScatter
            | Kind::Scatter => Some(self.count),
            Kind::AllToAllV => Some((0..self.ranks).map(|it| self.between(it, rank)).sum()),
            Kind::Gather => at_root.then_some(self.count * self.ranks),
            Kind::Reduce => at_root.then_some(self.count),
            Kind::ReduceScatterV => Some(self.count_of(rank)),
        }
    }

    fn between(&self, from: usize, to: usize) -> usize {
        self.count_of(from * self.ranks + to)
    }

    fn is_in_place(&self, rank: usize) -> bool {
        let at_root = rank == self.root || !matches!(self.kind, Kind::Broadcast | Kind::Reduce);
        self.in_place && self.kind.has_in_place() && at_root
    }

    /// The rank's source: every element tells its rank and its position.
    fn data(&self, rank: usize) -> Vec<u8> {
        let count = self.source(rank).unwrap_or(0);
        (0..count)
            .flat_map(|at| {
                let it = mix(self.seed ^ mix((rank as u64) << 40 ^ at as u64));
                let bytes = match (self.any_bits, self.dtype) {
                    (_, DType::Bool) => it & 1,
                    (false, DType::F32) => u64::from((it as i16 as f32 / 64.0).to_bits()),
                    (false, DType::F64) => (it as i16 as f64 / 64.0).to_bits(),
                    // Zeros, infinities, NaN and numbers of like size in the formats of 16 and 8 bits.
                    (false, DType::F16) => 0x3800 | it & 0x87ff,
                    (false, DType::BF16) => 0x3f00 | it & 0x80ff,
                    (false, _) => it & 0x3f3f_3f3f_3f3f_3f3f,
                    (true, _) if it >> 60 == 0 => 0,
                    (true, _) => it,
                };
                bytes.to_le_bytes()[..self.dtype.size()].to_vec()
            })
            .collect()
    }

    /// What each rank's destination holds afterwards.
    fn expected(&self) -> Vec<Option<Vec<u8>>> {
        let size = self.dtype.size();
        let data: Vec<Vec<u8>> = (0..self.ranks).map(|it| self.data(it)).collect();
        let all: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let reduced = || reference::reduce(self.dtype, self.op, &all);
        let chunk =
            |of: &[u8], at: usize| of[at * self.count * size..][..self.count * size].to_vec();
        let one = |rank: usize| -> Vec<u8> {
            match self.kind {
                Kind::AllGather | Kind::AllGatherV | Kind::Gather => all.concat(),
                Kind::AllReduce | Kind::Reduce => reduced(),
                Kind::AllToAll => (0..self.ranks).flat_map(|it| chunk(all[it], rank)).collect(),
                Kind::AllToAllV => (0..self.ranks)
                    .flat_map(|from| {
                        let before: usize = (0..rank).map(|to| self.between(from, to)).sum();
                        all[from][before * size..][..self.between(from, rank) * size].to_vec()
                    })
                    .collect(),
                Kind::Broadcast => data[self.root].clone(),
                Kind::Permute => data[self.sender(rank)].clone(),
                Kind::ReduceScatter => chunk(&reduced(), rank),
                Kind::ReduceScatterV => {
                    let before: usize = (0..rank).map(|it| self.count_of(it)).sum();
                    reduced()[before * size..][..self.count_of(rank) * size].to_vec()
                }
                Kind::Scatter => chunk(&data[self.root], rank),
            }
        };
        (0..self.ranks).map(|rank| self.destination(rank).map(|_| one(rank))).collect()
    }

    /// Makes the call and compares, bit for bit.
    pub(crate) fn check(&self, callers: Callers, config: &GroupConfig) {
        let devices = Device::cpus(self.ranks as u32);
        let buffers = (0..self.ranks).map(|rank| Buffers::new(self, rank, &devices[rank], callers));
        let mut buffers: Vec<Buffers> = buffers.collect();
        let counts = self.counts();
        if callers == Callers::Threads {
            let given: Vec<_> =
                buffers.into_iter().map(|it| std::sync::Mutex::new(Some(it))).collect();
            buffers = threads(self.ranks, config, |rank, mut group: Group<Host>| {
                let mut own = given[rank].lock().unwrap().take().unwrap();
                group.run(self.request(rank, &counts, &mut own).unwrap()).unwrap();
                group.finish().unwrap();
                own
            });
        } else {
            let mut set = GroupSet::<Host>::join_with(&devices, config).unwrap();
            let requests = buffers.iter_mut().enumerate();
            let requests = requests.map(|(rank, it)| self.request(rank, &counts, it).unwrap());
            match callers {
                Callers::One => set.run(requests).unwrap(),
                _ => drop(set.submit(requests).unwrap()),
            }
            set.finish().unwrap();
        }
        for (rank, (own, expected)) in buffers.iter().zip(self.expected()).enumerate() {
            let Some(expected) = expected else { continue };
            let found = own.found(self, rank);
            assert!(found == expected, "rank {rank} of {self:?} by {callers:?}");
            own.check_rest(self, rank);
        }
    }

    /// Makes the call as one rank of a group that others hold too, and compares, bit for bit.
    #[allow(dead_code, reason = "for the tests of ranks that are processes")]
    pub(crate) fn check_rank(&self, group: &mut Group<Host>) {
        let rank = group.rank();
        let mut own = Buffers::new(self, rank, group.device(), Callers::Threads);
        let counts = self.counts();
        group.run(self.request(rank, &counts, &mut own).unwrap()).unwrap();
        if let Some(expected) = self.expected().swap_remove(rank) {
            assert!(own.found(self, rank) == expected, "rank {rank} of {self:?}");
            own.check_rest(self, rank);
        }
    }

    fn request<'a>(
        &self,
        rank: usize,
        counts: &'a [u64],
        own: &'a mut Buffers,
    ) -> Result<Request<'a>> {
        let (dtype, op, root) = (self.dtype, self.op, self.root);
        let (src_range, dst_range) = (own.src_range.clone(), own.dst_range.clone());
        let dst = match &mut own.dst {
            Some(it) => Some(it.span_of_mut(dst_range, dtype)?),
            None => None,
        };
        let mut src = match &own.src {
            Some(it) => Some(it.span_of(src_range, dtype)?),
            None => None,
        };
        if let (Kind::Reduce, true, Some(dst)) = (self.kind, self.is_in_place(rank), &dst) {
            // SAFETY: both spans go into one request.
            src = Some(unsafe { dst.alias() });
        }
        Ok(match self.kind {
            Kind::AllGather => Request::AllGather { src, dst: dst.unwrap() },
            Kind::AllGatherV => Request::AllGatherV { src, dst: dst.unwrap(), counts },
            Kind::AllReduce => Request::AllReduce { src, dst: dst.unwrap(), op },
            Kind::AllToAll => Request::AllToAll { src: src.unwrap(), dst: dst.unwrap() },
            Kind::AllToAllV => Request::AllToAllV { src: src.unwrap(), dst: dst.unwrap(), counts },
            Kind::Broadcast => Request::Broadcast { src, dst: dst.unwrap(), root },
            Kind::Gather => Request::Gather { src: src.unwrap(), dst, root },
            Kind::Permute => {
                let send = Message::Send { src: src.unwrap(), peer: self.receiver(rank) };
                let recv = Message::Recv { dst: dst.unwrap(), peer: self.sender(rank) };
                Request::Batch([send, recv].into_iter().collect())
            }
            Kind::Reduce => Request::Reduce { src: src.unwrap(), dst, op, root },
            Kind::ReduceScatter if self.in_place => {
                Request::ReduceScatterInPlace { buffer: dst.unwrap(), op }
            }
            Kind::ReduceScatter => {
                Request::ReduceScatter { src: src.unwrap(), dst: dst.unwrap(), op }
            }
            Kind::ReduceScatterV => {
                Request::ReduceScatterV { src: src.unwrap(), dst: dst.unwrap(), counts, op }
            }
            Kind::Scatter => Request::Scatter { src, dst: dst.unwrap(), root },
        })
    }
}

type Range = std::ops::Range<usize>;

/// A chunk of these bytes, which a vector of bytes would not align for other types.
fn chunk(device: &Device, bytes: &[u8]) -> Chunk {
    let mut chunk = Chunk::allocate(device, bytes.len()).unwrap();
    chunk.slice_mut().unwrap().copy_from_slice(bytes);
    chunk
}

/// One rank's memory.
struct Buffers {
    src: Option<Chunk>,
    src_range: Range,
    dst: Option<Chunk>,
    dst_range: Range,
    /// What the destination's chunk held before.
    before: Vec<u8>,
}

impl Buffers {
    fn new(case: &Case, rank: usize, device: &Device, callers: Callers) -> Self {
        let size = case.dtype.size();
        // Every rank at another offset, and other ones for other callers.
        let offset = |what: usize| (GUARD + (rank * 5 + what + callers as usize * 3) % 8) * size;
        let (src_at, dst_at) = (offset(1), offset(2));
        let mut own =
            Self { src: None, src_range: 0..0, dst: None, dst_range: 0..0, before: vec![] };
        let data = case.data(rank);
        // In place, the destination holds the source; of a reduce_scatter, the other way round.
        let scatters = case.kind == Kind::ReduceScatter;
        let in_place = case.is_in_place(rank);
        if let Some(count) = case.destination(rank) {
            let bytes = if in_place && scatters { data.len() } else { count * size };
            own.before =
                (0..dst_at + bytes + GUARD * size).map(|it| mix(it as u64) as u8).collect();
            own.dst_range = dst_at..dst_at + bytes;
            if in_place {
                let chunk: usize = match case.kind {
                    Kind::AllGather => rank * case.count,
                    Kind::AllGatherV => (0..rank).map(|it| case.count_of(it)).sum(),
                    _ => 0,
                };
                own.before[dst_at + chunk * size..][..data.len()].copy_from_slice(&data);
            }
            own.dst = Some(chunk(device, &own.before));
        }
        if case.source(rank).is_some() && !in_place {
            let mut bytes = vec![0xA5; src_at];
            bytes.extend(data);
            own.src_range = src_at..bytes.len();
            own.src = Some(chunk(device, &bytes));
        }
        own
    }

    /// Where the rank's result lies within the destination's chunk.
    fn result(&self, case: &Case, rank: usize) -> Range {
        if case.kind == Kind::ReduceScatter && case.in_place {
            let bytes = case.count * case.dtype.size();
            return self.dst_range.start + rank * bytes..self.dst_range.start + (rank + 1) * bytes;
        }
        self.dst_range.clone()
    }

    fn found(&self, case: &Case, rank: usize) -> Vec<u8> {
        let bytes: &[u8] = self.dst.as_ref().unwrap().slice().unwrap();
        bytes[self.result(case, rank)].to_vec()
    }

    fn check_rest(&self, case: &Case, rank: usize) {
        let bytes: &[u8] = self.dst.as_ref().unwrap().slice().unwrap();
        let result = self.result(case, rank);
        assert!(
            bytes[..result.start] == self.before[..result.start],
            "before rank {rank}: {case:?}"
        );
        assert!(bytes[result.end..] == self.before[result.end..], "behind rank {rank}: {case:?}");
    }
}
