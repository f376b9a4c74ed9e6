//! The kernels against the reference: every type and reduction, and every way they are compiled.

mod inputs;

use aether_collective::ReduceOp;
use aether_core::{DType, Stores};
use proptest::prelude::*;

use super::instructions::InstructionSet;
use super::{Kernel, reference};
use inputs::elements;

/// Cases per type and reduction.
const CASES: u32 = if cfg!(miri) { 1 } else { 64 };
/// The most elements; more than two blocks, so that there is a first, a middle and a last one.
const COUNT: usize = if cfg!(miri) { 40 } else { 700 };

fn reducible() -> impl Iterator<Item = (DType, ReduceOp)> {
    DType::ALL
        .into_iter()
        .filter(|it| *it != DType::Bool)
        .flat_map(|dtype| ReduceOp::ALL.map(|op| (dtype, op)))
}

/// Memory of some elements, at an address that is a multiple of their size and of no more.
struct Memory {
    words: Vec<u64>,
    start: usize,
    length: usize,
}

impl Memory {
    /// `offset` elements past an address that is aligned to a line of the cache.
    fn new(bytes: &[u8], size: usize, offset: usize) -> Self {
        // One word more, so that there is a byte past the end to look at.
        let length = 64 + offset * size + bytes.len();
        let mut words = vec![u64::from_ne_bytes([GUARD; 8]); length / 8 + 2];
        let base = words.as_mut_ptr().cast::<u8>();
        let start = base.addr().next_multiple_of(64) - base.addr() + offset * size;
        // SAFETY: the vector has at least that many bytes.
        let base = unsafe { base.add(start) };
        // SAFETY: as above; a new vector does not overlap `bytes`.
        unsafe { base.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Self { words, start, length: bytes.len() }
    }

    fn pointer(&mut self) -> *mut u8 {
        self.words.as_mut_ptr().cast::<u8>().wrapping_add(self.start)
    }

    fn bytes(&self) -> Vec<u8> {
        let all: Vec<u8> = self.words.iter().flat_map(|it| it.to_ne_bytes()).collect();
        let (before, rest) = all.split_at(self.start);
        let (bytes, after) = rest.split_at(self.length);
        assert!(before.iter().all(|it| *it == GUARD), "bytes before the memory were written");
        assert!(after.iter().all(|it| *it == GUARD), "bytes past the memory were written");
        bytes.to_vec()
    }
}

const GUARD: u8 = 0xa5;

/// Where the results go.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// Apart from the sources, so many times.
    Apart(usize),
    /// Over this source, as reduce_scatter in place does.
    Over(usize),
    /// Over every source, as all_reduce in place does.
    OverAll,
}

/// How the memory lies and is written.
#[derive(Clone, Copy, Debug)]
struct Manner {
    /// Elements from a line of the cache to the first destination.
    offset: usize,
    /// All destinations lie like the first.
    together: bool,
    stores: Stores,
}

/// Through the cache, and each destination lying differently.
fn plainly(offset: usize) -> Manner {
    Manner { offset, together: false, stores: Stores::Ordinary }
}

/// What the kernel leaves in each destination.
fn run(
    kernel: Kernel,
    size: usize,
    sources: &[Vec<u8>],
    ranks: usize,
    place: Place,
    manner: Manner,
) -> Vec<Vec<u8>> {
    let Manner { offset, together, stores } = manner;
    let count = sources[0].len() / size;
    let mut inputs: Vec<Memory> = sources
        .iter()
        .enumerate()
        .map(|(rank, bytes)| Memory::new(bytes, size, (offset + 3 * rank) % 11))
        .collect();
    let apart = if let Place::Apart(apart) = place { apart } else { 0 };
    let mut outputs: Vec<Memory> = (0..apart)
        .map(|index| if together { offset } else { (offset + 5 * index) % 7 })
        .map(|offset| Memory::new(&vec![0x5a; count * size], size, offset))
        .collect();
    let pointers: Vec<*mut u8> = inputs.iter_mut().map(Memory::pointer).collect();
    let destinations: Vec<*mut u8> = match place {
        Place::Apart(_) => outputs.iter_mut().map(Memory::pointer).collect(),
        Place::Over(source) => vec![pointers[source]],
        Place::OverAll => pointers.clone(),
    };
    let constant: Vec<*const u8> = pointers.iter().map(|it| it.cast_const()).collect();
    // SAFETY: every memory has `count` elements at an address that is a multiple of their size;
    // they are separate vectors, and those that are used twice are used as they are.
    unsafe { kernel.reduce(&constant, &destinations, count, ranks, stores) };
    stores.settle();
    let inputs: Vec<Vec<u8>> = inputs.iter().map(Memory::bytes).collect();
    let overwritten = |rank: usize| match place {
        Place::Apart(_) => false,
        Place::Over(source) => source == rank,
        Place::OverAll => true,
    };
    for (rank, bytes) in inputs.iter().enumerate() {
        assert!(overwritten(rank) || *bytes == sources[rank], "source {rank} was written");
    }
    match place {
        Place::Apart(_) => outputs.iter().map(Memory::bytes).collect(),
        Place::Over(source) => vec![inputs[source].clone()],
        Place::OverAll => inputs,
    }
}

/// What the selected kernel makes of the sources, one of each rank.
pub(super) fn reduced(dtype: DType, op: ReduceOp, sources: &[Vec<u8>]) -> Vec<u8> {
    let kernel = Kernel::select(dtype, op).unwrap();
    run(kernel, dtype.size(), sources, sources.len(), Place::Apart(1), plainly(0)).remove(0)
}

#[derive(Clone, Debug)]
struct Case {
    sources: usize,
    count: usize,
    place: Place,
    offset: usize,
    together: bool,
    seed: u64,
    density: u64,
}

fn case() -> impl Strategy<Value = Case> {
    // Half of the cases are short: there the tails of the vector loops are most of the work.
    let count = prop_oneof![0..40_usize, 0..COUNT];
    (1..=9_usize, count, 0..9_usize, 0..9_usize, 0..70_usize, any::<u64>(), 0..=9_u64).prop_map(
        |(sources, count, kind, which, offset, seed, kinds)| {
            let place = match kind {
                0..=3 => Place::Apart(1 + which % 3),
                4..=5 => Place::Over(which % sources),
                _ => Place::OverAll,
            };
            let (density, together) = (kinds / 2, kinds % 2 == 0);
            Case { sources, count, place, offset, together, seed, density }
        },
    )
}

#[test]
fn every_reduction_of_every_type_is_the_references_whatever_the_instructions() {
    for (dtype, op) in reducible() {
        let config =
            ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() };
        proptest!(config, |(case in case())| {
            let sources: Vec<Vec<u8>> = (0..case.sources as u64)
                .map(|rank| elements(dtype, case.count, case.seed ^ rank << 32, case.density))
                .collect();
            let expected = reference::reduce(dtype, op, &sources, case.sources);
            for set in InstructionSet::available() {
                for stores in [Stores::Ordinary, Stores::Streaming] {
                    let kernel = Kernel::select_for(set, dtype, op).unwrap();
                    let (size, place) = (dtype.size(), case.place);
                    let manner = Manner { offset: case.offset, together: case.together, stores };
                    let results = run(kernel, size, &sources, case.sources, place, manner);
                    for (index, found) in results.iter().enumerate() {
                        let differs = found
                            .chunks(size)
                            .zip(expected.chunks(size))
                            .position(|(found, expected)| found != expected);
                        prop_assert!(
                            differs.is_none(),
                            "{op} of {dtype} by {set:?}, destination {index}: element {differs:?}"
                        );
                    }
                }
            }
        });
    }
}

#[test]
#[cfg_attr(miri, ignore = "exhaustive, and about values rather than memory")]
fn every_code_of_8_and_16_bits_is_decoded_whatever_the_instructions() {
    // Nothing changes by a sum with -0, so that each code comes back, or the canonical NaN does.
    for (dtype, top, nan) in [
        (DType::BF16, 0x7f80_u16, 0x7fc0_u16),
        (DType::F16, 0x7c00, 0x7e00),
        (DType::F8E4M3, 0x7e, 0x7f),
        (DType::F8E5M2, 0x7c, 0x7e),
    ] {
        let sign = if dtype.size() == 1 { 0x80 } else { 0x8000 };
        let bytes = |codes: Vec<u16>| -> Vec<u8> {
            match dtype.size() {
                1 => codes.into_iter().map(|code| code as u8).collect(),
                _ => codes.into_iter().flat_map(u16::to_ne_bytes).collect(),
            }
        };
        let codes: Vec<u16> = (0..sign).chain(sign..=sign | (sign - 1)).collect();
        let zeros = vec![sign; codes.len()];
        let expected =
            codes.iter().map(|code| if code & !sign > top { nan } else { *code }).collect();
        let (codes, zeros, expected) = (bytes(codes), bytes(zeros), bytes(expected));
        for set in InstructionSet::available() {
            let kernel = Kernel::select_for(set, dtype, ReduceOp::Sum).unwrap();
            let sources = [codes.clone(), zeros.clone()];
            let found = run(kernel, dtype.size(), &sources, 2, Place::OverAll, plainly(0));
            assert!(found.iter().all(|it| *it == expected), "{dtype} by {set:?}");
        }
    }
}

#[test]
fn the_best_instructions_of_this_processor_are_among_those_tested() {
    assert!(InstructionSet::available().contains(&InstructionSet::best()));
    #[cfg(target_arch = "x86_64")]
    assert_eq!(
        InstructionSet::available().contains(&InstructionSet::Avx2),
        std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("f16c")
    );
}

#[test]
fn bool_is_never_reduced() {
    for op in ReduceOp::ALL {
        assert!(Kernel::select(DType::Bool, op).is_none());
    }
}

fn bytes_of<const N: usize>(elements: &[[u8; N]]) -> Vec<u8> {
    elements.concat()
}

fn singles(values: &[f32]) -> Vec<u8> {
    bytes_of(&values.iter().map(|it| it.to_ne_bytes()).collect::<Vec<_>>())
}

#[test]
fn one_rank_keeps_the_payload_of_nan_in_place_and_apart() {
    for (dtype, op) in reducible() {
        let source = elements(dtype, 37, 5, 4);
        let kernel = Kernel::select(dtype, op).unwrap();
        for place in [Place::Apart(2), Place::OverAll] {
            for found in
                run(kernel, dtype.size(), std::slice::from_ref(&source), 1, place, plainly(1))
            {
                assert_eq!(found, source, "{op} of {dtype}");
            }
        }
    }
}

#[test]
fn a_sum_goes_in_rank_order() {
    // (1 + 2^24) - 2^24 loses the 1 that (2^24 - 2^24) + 1 keeps.
    let (one, large, negative) = (singles(&[1.0]), singles(&[16777216.0]), singles(&[-16777216.0]));
    let lost = reduced(DType::F32, ReduceOp::Sum, &[one.clone(), large.clone(), negative.clone()]);
    let kept = reduced(DType::F32, ReduceOp::Sum, &[large, negative, one]);
    assert_eq!((lost, kept), (singles(&[0.0]), singles(&[1.0])));
}

#[test]
fn halves_are_rounded_once_and_not_at_every_rank() {
    // At 2048 the last place of f16 is 2, so that each 1 alone would be rounded away.
    let half = |value: f32| half::f16::from_f32(value).to_bits().to_ne_bytes().to_vec();
    let sources = [half(2048.0), half(1.0), half(1.0), half(1.0), half(1.0)];
    assert_eq!(reduced(DType::F16, ReduceOp::Sum, &sources), half(2052.0));
    // A sum past the largest f16 still has its mean.
    let sources = [half(60000.0), half(60000.0)];
    assert_eq!(reduced(DType::F16, ReduceOp::Mean, &sources), half(60000.0));
}

#[test]
fn eighths_overflow_to_nan_and_to_infinity() {
    let e4m3 = |bits: u8| vec![bits; 3];
    // 448 + 16 = 464 is a tie that goes to 448; 448 + 32 = 480 is beyond.
    assert_eq!(reduced(DType::F8E4M3, ReduceOp::Sum, &[e4m3(0x7e), e4m3(0x58)]), e4m3(0x7e));
    assert_eq!(reduced(DType::F8E4M3, ReduceOp::Sum, &[e4m3(0x7e), e4m3(0x60)]), e4m3(0x7f));
    assert_eq!(reduced(DType::F8E4M3, ReduceOp::Sum, &[e4m3(0xfe), e4m3(0xfe)]), e4m3(0x7f));
    // 57344 + 57344 is beyond.
    assert_eq!(reduced(DType::F8E5M2, ReduceOp::Sum, &[e4m3(0xfb), e4m3(0xfb)]), e4m3(0xfc));
}

#[test]
fn nan_wins_at_whichever_rank_and_negative_zero_is_the_smaller() {
    for op in [ReduceOp::Min, ReduceOp::Max] {
        for holder in 0..5 {
            let mut sources = vec![singles(&[f32::INFINITY, f32::NEG_INFINITY, 1.0]); 5];
            sources[holder] = singles(&[f32::from_bits(0xff80_0001); 3]);
            let expected = singles(&[f32::from_bits(0x7fc0_0000); 3]);
            assert_eq!(reduced(DType::F32, op, &sources), expected, "{op}, rank {holder}");
        }
    }
    let sources = [singles(&[0.0, -0.0]), singles(&[-0.0, 0.0])];
    assert_eq!(reduced(DType::F32, ReduceOp::Min, &sources), singles(&[-0.0, -0.0]));
    assert_eq!(reduced(DType::F32, ReduceOp::Max, &sources), singles(&[0.0, 0.0]));
}

#[test]
fn an_integer_mean_is_exact_at_the_extremes_and_truncates_toward_zero() {
    let longs =
        |values: &[i64]| bytes_of(&values.iter().map(|it| it.to_ne_bytes()).collect::<Vec<_>>());
    let sources = [longs(&[i64::MAX, i64::MIN, -3]), longs(&[i64::MAX, i64::MIN, -4])];
    let expected = longs(&[i64::MAX, i64::MIN, -3]);
    assert_eq!(reduced(DType::I64, ReduceOp::Mean, &sources), expected);
    let words = |value: i32| value.to_ne_bytes().to_vec();
    let sources = [words(i32::MIN), words(i32::MIN), words(i32::MIN)];
    assert_eq!(reduced(DType::I32, ReduceOp::Mean, &sources), words(i32::MIN));
    let sources = [words(i32::MIN), words(i32::MIN + 1), words(i32::MIN)];
    assert_eq!(reduced(DType::I32, ReduceOp::Mean, &sources), words(i32::MIN + 1));
}

#[test]
fn a_mean_divides_by_the_ranks_it_is_given() {
    for ranks in [2, 1 << 20, (1 << 20) + 1, usize::MAX >> 1] {
        for dtype in [DType::I8, DType::U16, DType::I32, DType::U32, DType::I64, DType::U64] {
            let sources = vec![elements(dtype, 50, 11, 4), elements(dtype, 50, 12, 4)];
            let kernel = Kernel::select(dtype, ReduceOp::Mean).unwrap();
            let found =
                run(kernel, dtype.size(), &sources, ranks, Place::Apart(1), plainly(0)).remove(0);
            let expected = reference::reduce(dtype, ReduceOp::Mean, &sources, ranks);
            assert_eq!(found, expected, "mean of {dtype} over {ranks}");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "millions of sources")]
fn an_integer_mean_is_exact_over_more_ranks_than_f64_can_sum() {
    // The mean is less than the largest u32 by 2^-22, which f64 would round up to it.
    let ranks = 1 << 22;
    let (largest, less) = (u32::MAX, u32::MAX - 1);
    let mut sources = vec![(&raw const largest).cast::<u8>(); ranks];
    sources[ranks / 3] = (&raw const less).cast();
    let mut found = 0_u32;
    let kernel = Kernel::select(DType::U32, ReduceOp::Mean).unwrap();
    // SAFETY: each source is one u32 on the stack, and so is the destination, which is none of them.
    unsafe { kernel.reduce(&sources, &[(&raw mut found).cast()], 1, ranks, Stores::Ordinary) };
    assert_eq!(found, less);
}

#[test]
fn no_sources_no_elements_and_no_destinations_touch_nothing() {
    let kernel = Kernel::select(DType::F32, ReduceOp::Sum).unwrap();
    // More than a tile and a block.
    let mut kept = singles(&[7.0; 300]);
    let written = [kept.as_mut_ptr()];
    // SAFETY: there are no sources, so that nothing is written.
    unsafe { kernel.reduce(&[], &written, 300, 1, Stores::Streaming) };
    let dangling = std::ptr::dangling::<f32>().cast::<u8>();
    // SAFETY: of no elements none is accessed.
    unsafe { kernel.reduce(&[dangling; 2], &[dangling.cast_mut()], 0, 2, Stores::Streaming) };
    let source = kept.as_ptr();
    // SAFETY: the sources are one element each, and only read.
    unsafe { kernel.reduce(&[source; 3], &[], 1, 3, Stores::Streaming) };
    assert_eq!(kept, singles(&[7.0; 300]));
}
