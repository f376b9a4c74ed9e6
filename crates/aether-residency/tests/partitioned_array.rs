//! One array on the host and its blocks on devices.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use aether_core::{
    AsSpan, AsSpanMut, Chunk, Completion, DType, Device, ErrorKind, Result, Span, SpanMut, Stream,
};
use aether_residency::{PartitionedArray, StreamTransport, Transport};
use common::{Held, REMOTE, Remote, Setting, until};
use proptest::prelude::*;

fn numbers(count: usize, seed: u32) -> Vec<u32> {
    (0..count as u32).map(|it| it.wrapping_mul(2_654_435_761) ^ seed).collect()
}

/// The whole of the array becomes these numbers.
fn fill<const R: usize, Tr: Transport>(array: &mut PartitionedArray<u32, R, Tr>, seed: u32) {
    let mut host = array.host_mut().unwrap();
    let count = host.len();
    host.as_slice_mut().unwrap().copy_from_slice(&numbers(count, seed));
}

fn whole<const R: usize, Tr: Transport>(array: &PartitionedArray<u32, R, Tr>) -> Vec<u32> {
    array.host().unwrap().as_slice().unwrap().to_vec()
}

/// Every element of the chunk of a block, padding and all, becomes the same number.
fn paint<const R: usize>(array: &mut PartitionedArray<u32, R>, rank: usize, with: u32) {
    let chunk = array.chunk_mut(rank).unwrap();
    let all = vec![with; chunk.size() / 4];
    let transport = StreamTransport::new();
    transport.copy(chunk.span_mut().unwrap(), all.span().unwrap()).unwrap();
}

/// What a block's chunk holds: the samples of the whole by the indices of both, and `padding` in
/// between.
fn expected_block(
    data: &[u32],
    [rows, samples]: [usize; 2],
    pitch: usize,
    start: usize,
    extent: usize,
    padding: u32,
) -> Vec<u32> {
    let mut block = vec![padding; rows * pitch];
    for row in 0..rows {
        for at in 0..extent {
            block[row * pitch + at] = data[row * samples + start + at];
        }
    }
    block
}

fn devices(setting: Setting, choice: &[usize]) -> Vec<Device> {
    let remote = Remote::new(setting);
    let all = [Device::cpu(0), Device::cpu(1), remote.device(0), remote.device(1)];
    choice.iter().map(|&it| all[it % all.len()].clone()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        cases: 64,
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_is_scattered_lies_in_blocks_and_comes_back(
        leading in (0usize..4, 1usize..4),
        samples in 0usize..150,
        pad_to in prop::sample::select(vec![1usize, 3, 8, 32]),
        choice in prop::collection::vec(0usize..4, 1..6),
        asynchronous in any::<bool>(),
        on_streams in any::<bool>(),
    ) {
        let setting = if asynchronous { Setting::ASYNCHRONOUS } else { Setting::PLAIN };
        let devices = devices(setting, &choice);
        let shape = [leading.0, leading.1, samples];
        let rows = leading.0 * leading.1;
        let mut array = PartitionedArray::<u32, 3>::padded(&devices, shape, pad_to).unwrap();
        prop_assert_eq!(array.ranks(), devices.len());
        let streams: Vec<_> = devices.iter().map(|it| Stream::new(it).unwrap()).collect();
        fill(&mut array, 1);
        for rank in 0..devices.len() {
            paint(&mut array, rank, 0xAAAA);
        }
        if on_streams {
            for work in array.scatter_async(&streams).unwrap() {
                work.wait().unwrap();
            }
        } else {
            array.scatter().unwrap();
        }
        let data = numbers(rows * samples, 1);
        let pitch = samples.div_ceil(devices.len()).next_multiple_of(pad_to);
        for rank in 0..devices.len() {
            let start = (rank * pitch).min(samples);
            let extent = pitch.min(samples - start);
            prop_assert_eq!(array.block(rank).unwrap().shape(), [shape[0], shape[1], extent]);
            let found = array.chunk(rank).unwrap().to_vec::<u32>().unwrap();
            let expected =
                expected_block(&data, [rows, samples], pitch, start, extent, 0xAAAA);
            prop_assert_eq!(found, expected);
        }
        // The whole is overwritten, so that what comes back was in the blocks.
        array.host_mut().unwrap().as_slice_mut().unwrap().fill(0xBBBB);
        if on_streams {
            for work in array.gather_async(&streams).unwrap() {
                work.wait().unwrap();
            }
        } else {
            array.gather().unwrap();
        }
        prop_assert_eq!(whole(&array), data);
    }

    #[test]
    fn blocks_that_move_and_change_places_keep_their_samples(
        rows in 1usize..4,
        pitch in 1usize..12,
        choice in prop::collection::vec(0usize..4, 2..5),
        target in 0usize..4,
        asynchronous in any::<bool>(),
    ) {
        let setting = if asynchronous { Setting::ASYNCHRONOUS } else { Setting::PLAIN };
        let devices = devices(setting, &choice);
        // Whole blocks, with padding: `pitch` samples each at a distance that is a multiple of 5.
        let pad_to = 5;
        let full = pitch.next_multiple_of(pad_to);
        let samples = full * (devices.len() - 1) + pitch;
        let shape = [rows, samples];
        let mut array = PartitionedArray::<u32, 2>::padded(&devices, shape, pad_to).unwrap();
        fill(&mut array, 7);
        array.scatter().unwrap();
        let last = devices.len() - 1;
        let to = Device::cpu(target as u32);
        array.move_to(last, &to).unwrap();
        prop_assert_eq!(array.chunk(last).unwrap().device(), &to);
        array.host_mut().unwrap().as_slice_mut().unwrap().fill(0);
        array.gather().unwrap();
        prop_assert_eq!(whole(&array), numbers(rows * samples, 7));

        if devices.len() > 2 {
            array.exchange(0, 1).unwrap();
            prop_assert_eq!(array.chunk(0).unwrap().device(), &devices[0]);
            array.gather().unwrap();
            let mut expected = numbers(rows * samples, 7);
            for row in expected.chunks_mut(samples) {
                let (front, back) = row.split_at_mut(full);
                front.swap_with_slice(&mut back[..full]);
            }
            prop_assert_eq!(whole(&array), expected);
        }
    }
}

#[test]
fn the_whole_lies_in_the_staging_memory_of_the_devices() {
    let remote = Remote::new(Setting::PLAIN);
    let array = PartitionedArray::<u32, 1>::new(&[Device::cpu(0), remote.device(0)], [40]).unwrap();
    assert_eq!(array.host_chunk().device(), &remote.staging_device());
    let array = PartitionedArray::<u32, 1>::new(&Device::cpus(2), [40]).unwrap();
    assert_eq!(array.host_chunk().device(), &Device::cpu(0));
    assert_eq!(whole(&array), [0; 40]);
    assert_eq!(array.spec().pad_to, 32);
    assert_eq!(array.shape(), [40]);
}

#[test]
fn more_devices_than_samples_leave_blocks_empty() {
    let mut array = PartitionedArray::<u32, 2>::padded(&Device::cpus(5), [3, 2], 1).unwrap();
    fill(&mut array, 1);
    array.scatter().unwrap();
    let extents: Vec<_> = (0..5).map(|it| array.block(it).unwrap().shape()[1]).collect();
    assert_eq!(extents, [1, 1, 0, 0, 0]);
    assert_eq!(array.block(1).unwrap().pack().unwrap(), [1, 3, 5].map(|at| numbers(6, 1)[at]));
    assert!(array.block(4).unwrap().is_empty());
    array.exchange(2, 4).unwrap();
    array.move_to(3, &Device::cpu(9)).unwrap();
    array.gather().unwrap();
    assert_eq!(whole(&array), numbers(6, 1));
}

#[test]
fn a_block_is_changed_in_place_and_gathered() {
    let mut array = PartitionedArray::<u32, 2>::padded(&Device::cpus(3), [2, 10], 4).unwrap();
    for rank in 0..3 {
        let mut block = array.block_mut(rank).unwrap();
        for row in 0..2 {
            block.lane_mut([row, 0]).unwrap().fill((row * 10 + rank) as u32);
        }
    }
    array.gather().unwrap();
    let row = |row: u32| [0, 0, 0, 0, 1, 1, 1, 1, 2, 2].map(|it| row * 10 + it);
    assert_eq!(whole(&array), [row(0), row(1)].concat());
}

#[test]
fn exchange_swaps_whole_blocks_and_refuses_blocks_that_differ() {
    let mut array = PartitionedArray::<u32, 3>::padded(&Device::cpus(3), [2, 1, 11], 4).unwrap();
    for rank in 0..3 {
        paint(&mut array, rank, rank as u32);
    }
    array.exchange(0, 1).unwrap();
    assert_eq!(array.exchange(0, 2).unwrap_err().kind(), ErrorKind::SizeMismatch);
    array.exchange(2, 2).unwrap();
    for (rank, with) in [(0, 1), (1, 0), (2, 2)] {
        assert_eq!(array.chunk(rank).unwrap().slice::<u32>().unwrap(), [with; 8]);
        assert_eq!(array.chunk(rank).unwrap().device(), &Device::cpu(rank as u32));
    }
}

#[test]
fn move_to_leaves_the_block_where_it_was_when_it_fails() {
    let remote = Remote::new(Setting::PLAIN);
    let mut array = PartitionedArray::<u32, 1>::padded(&Device::cpus(2), [10], 1).unwrap();
    fill(&mut array, 1);
    array.scatter().unwrap();
    *remote.failing.lock().unwrap() = Some((REMOTE, 1));
    let error = array.move_to(1, &remote.device(0)).unwrap_err();
    assert_eq!(error.reason(), "told to fail");
    assert_eq!(array.chunk(1).unwrap().device(), &Device::cpu(1));
    assert_eq!(array.block(1).unwrap().as_slice().unwrap(), &numbers(10, 1)[5..]);
    let here = array.chunk(1).unwrap().data();
    array.move_to(1, &Device::cpu(1)).unwrap();
    assert_eq!(array.chunk(1).unwrap().data(), here);
}

#[test]
fn bad_arrays_and_calls_are_refused_by_kind() {
    let kind = |it: Result<PartitionedArray<u32, 2>>| it.unwrap_err().kind();
    let cpus = Device::cpus(2);
    assert_eq!(kind(PartitionedArray::new(&[], [2, 2])), ErrorKind::Empty);
    assert_eq!(kind(PartitionedArray::padded(&cpus, [2, 2], 0)), ErrorKind::InvalidArgument);
    assert_eq!(kind(PartitionedArray::new(&cpus, [usize::MAX, 2])), ErrorKind::Overflow);
    assert_eq!(kind(PartitionedArray::new(&cpus, [2, usize::MAX - 3])), ErrorKind::Overflow);
    assert_eq!(kind(PartitionedArray::new(&cpus, [1, usize::MAX / 4])), ErrorKind::Overflow);
    assert_eq!(kind(PartitionedArray::padded(&cpus, [2, 9], usize::MAX / 8)), ErrorKind::Overflow);
    let point = PartitionedArray::<u32, 0>::new(&cpus, []).unwrap_err();
    assert_eq!(point.kind(), ErrorKind::InvalidArgument);
    // Nothing is there, however long its empty rows are.
    assert!(whole(&PartitionedArray::<u32, 2>::new(&cpus, [0, 1 << 40]).unwrap()).is_empty());

    let mut array = PartitionedArray::<u32, 2>::new(&cpus, [2, 70]).unwrap();
    let stream = Stream::new(&cpus[0]).unwrap();
    let few = [stream];
    assert_eq!(array.scatter_async(&few).unwrap_err().kind(), ErrorKind::SizeMismatch);
    assert_eq!(array.gather_async(&few).unwrap_err().kind(), ErrorKind::SizeMismatch);
    assert_eq!(array.block(2).unwrap_err().kind(), ErrorKind::OutOfBounds);
    assert_eq!(array.block_mut(2).unwrap_err().kind(), ErrorKind::OutOfBounds);
    assert_eq!(array.chunk(2).unwrap_err().kind(), ErrorKind::OutOfBounds);
    assert_eq!(array.move_to(2, &cpus[0]).unwrap_err().kind(), ErrorKind::OutOfBounds);
    assert_eq!(array.exchange(0, 2).unwrap_err().kind(), ErrorKind::OutOfBounds);
    assert_eq!(array.exchange(2, 2).unwrap_err().kind(), ErrorKind::OutOfBounds);
    assert_eq!(array.exchange(0, 1).unwrap_err().kind(), ErrorKind::SizeMismatch);
}

#[test]
fn asynchronous_scatter_and_gather_follow_each_other_without_waits() {
    for setting in Setting::BOTH {
        let devices = devices(setting, &[0, 2, 3, 2]);
        let streams: Vec<_> = devices.iter().map(|it| Stream::new(it).unwrap()).collect();
        let mut array = PartitionedArray::<u32, 2>::padded(&devices, [3, 50], 8).unwrap();
        fill(&mut array, 5);
        let held =
            Held::on(array.chunk_mut(1).unwrap().span_of_mut(.., DType::U32).unwrap(), false);
        let out = array.scatter_async(&streams).unwrap();
        let back = array.gather_async(&streams).unwrap();
        assert!(!out[1].is_done() && !back[1].is_done());
        held.let_go();
        assert_eq!(whole(&array), numbers(150, 5));
        assert!(out.iter().chain(&back).all(Completion::is_done));
    }
}

/// It has the two required methods only: rows go one by one.
struct Plain;

impl Transport for Plain {
    fn copy(&self, mut dst: SpanMut<'_>, src: Span<'_>) -> Result<()> {
        aether_core::copy(&mut dst, &src)
    }

    fn copy_async(&self, mut dst: SpanMut<'_>, src: Span<'_>, on: &Stream) -> Result<Completion> {
        aether_core::copy_async(&mut dst, &src, on)
    }
}

#[test]
fn a_transport_with_the_two_required_methods_moves_blocks_as_well() {
    let devices = Device::cpus(3);
    let streams: Vec<_> = devices.iter().map(|it| Stream::new(it).unwrap()).collect();
    let mut array =
        PartitionedArray::<u32, 2, _>::with_transport(&devices, [3, 20], 8, Plain).unwrap();
    fill(&mut array, 3);
    array.scatter().unwrap();
    assert_eq!(array.block(2).unwrap().pack().unwrap().len(), 3 * 4);
    array.host_mut().unwrap().as_slice_mut().unwrap().fill(0);
    for work in array.gather_async(&streams).unwrap() {
        work.wait().unwrap();
    }
    assert_eq!(whole(&array), numbers(60, 3));
    // The last row alone would not tell that the first is held.
    let block = array.chunk_mut(0).unwrap().span_of_mut(..8, DType::U8).unwrap();
    let held = Held::on(block, true);
    let works = array.gather_async(&streams).unwrap();
    assert!(!works[0].is_done());
    held.let_go();
    assert_eq!(works[0].wait().unwrap_err().reason(), "told to fail");
}

#[test]
fn a_rank_that_has_to_wait_keeps_no_other_from_being_gathered() {
    let devices = Device::cpus(3);
    let streams: Vec<_> = devices.iter().map(|it| Stream::new(it).unwrap()).collect();
    let mut array = PartitionedArray::<u32, 2>::padded(&devices, [3, 20], 8).unwrap();
    fill(&mut array, 6);
    array.scatter().unwrap();
    // Twice: the second is behind the first rank by rank, and not as a whole.
    let block = array.chunk_mut(1).unwrap().span_of_mut(.., DType::U8).unwrap();
    let held = Held::on(block, false);
    for _ in 0..2 {
        let works = array.gather_async(&streams).unwrap();
        until("the others are gathered", || works[0].is_done() && works[2].is_done());
        assert!(!works[1].has_ended());
    }
    held.let_go();
    assert_eq!(whole(&array), numbers(60, 6));
}

#[test]
fn a_rank_that_fails_to_gather_fails_the_whole_until_it_is_gathered_again() {
    for blocking in [true, false] {
        let devices = Device::cpus(3);
        let streams: Vec<_> = devices.iter().map(|it| Stream::new(it).unwrap()).collect();
        let mut array = PartitionedArray::<u32, 2>::padded(&devices, [3, 20], 8).unwrap();
        fill(&mut array, 4);
        array.scatter().unwrap();
        // The rank before the others fails: their rows lie between its rows, and are written later.
        let block = array.chunk_mut(0).unwrap().span_of_mut(.., DType::U8).unwrap();
        let held = Held::on(block, true);
        if blocking {
            held.let_go();
            assert_eq!(array.gather().unwrap_err().reason(), "told to fail");
        } else {
            let works = array.gather_async(&streams).unwrap();
            held.let_go();
            assert_eq!(works[0].wait().unwrap_err().reason(), "told to fail");
            works[1].wait().unwrap();
        }
        for row in 0..3 {
            let error = array.host().unwrap().at([row, 0]).unwrap_err();
            assert_eq!(error.reason(), "told to fail", "row {row}");
        }
        assert_eq!(array.host().unwrap().as_slice().unwrap_err().reason(), "told to fail");
        let healed = chunk_of_numbers(array.chunk(0).unwrap().size() / 4);
        aether_core::copy(array.chunk_mut(0).unwrap(), &healed).unwrap();
        array.gather().unwrap();
        let found = whole(&array);
        assert_eq!(found[8..20], numbers(60, 4)[8..20]);
    }
}

#[test]
fn a_block_that_moved_between_backends_is_scattered_on_a_stream_of_its_new_device() {
    let remote = Remote::new(Setting::ASYNCHRONOUS);
    let devices = [remote.device(0), Device::cpu(0)];
    let mut array = PartitionedArray::<u32, 1>::padded(&devices, [10], 1).unwrap();
    array.scatter().unwrap();
    array.move_to(1, &remote.device(1)).unwrap();
    fill(&mut array, 2);
    array.scatter().unwrap();
    assert_eq!(array.chunk(1).unwrap().to_vec::<u32>().unwrap(), &numbers(10, 2)[5..]);
}

fn chunk_of_numbers(count: usize) -> Chunk {
    Chunk::from_vec(&Device::cpu(0), numbers(count, 6)).unwrap()
}
