//! Slicing views along their samples: real extent, padded stride.
#![allow(clippy::unwrap_used, clippy::panic)]

use aether_core::{Chunk, Device, ErrorKind, View, ViewMut};
use aether_residency::{
    PartitionSpec, padded_block_samples, partition_view, partition_view_mut, partition_views_mut,
};
use proptest::prelude::*;

#[test]
fn blocks_are_rounded_up_to_the_padding() {
    let padded = |samples, parts, pad_to| {
        padded_block_samples(samples, PartitionSpec::new(parts).pad_to(pad_to)).unwrap()
    };
    assert_eq!(padded(100, 3, 32), 64);
    assert_eq!(padded(96, 3, 32), 32);
    assert_eq!(padded_block_samples(10, PartitionSpec::new(4)).unwrap(), 32);
    assert_eq!(padded(10, 4, 4), 4);
    assert_eq!(padded(10, 4, 1), 3);
    assert_eq!(padded(0, 4, 32), 0);
    assert_eq!(PartitionSpec::new(4), PartitionSpec { parts: 4, pad_to: 32 });
}

#[test]
fn a_hundred_samples_in_four_parts_begin_at_multiples_of_thirty_two() {
    let samples: Vec<u32> = (0..200).collect();
    let view = View::new(&samples, [2, 100]).unwrap();
    let expected = [(0, 32), (32, 32), (64, 32), (96, 4)];
    for (rank, (start, extent)) in expected.into_iter().enumerate() {
        let block = partition_view(&view, PartitionSpec::new(4), rank).unwrap();
        assert_eq!((block.shape(), block.strides()), ([2, extent], [100, 1]));
        assert_eq!(block.address().addr() - view.address().addr(), start * 4);
        for row in 0..2 {
            let all: Vec<u32> = (0..extent).map(|it| (row * 100 + start + it) as u32).collect();
            assert_eq!(block.lane([row, 0]).unwrap(), all);
        }
    }
}

#[test]
fn blocks_without_samples_are_empty_and_stay_within_the_view() {
    let samples = [1u8, 2, 3];
    let view = View::new(&samples, [3]).unwrap();
    for rank in 1..8 {
        let block = partition_view(&view, PartitionSpec::new(8), rank).unwrap();
        assert!(block.is_empty());
        let offset = block.address().addr() - view.address().addr();
        assert!(offset <= 3, "rank {rank} is at {offset}");
        assert_eq!(block.as_slice().unwrap(), [0; 0]);
    }
    let empty = View::<u8, 1>::new(&[], [0]).unwrap();
    assert!(partition_view(&empty, PartitionSpec::new(2), 1).unwrap().is_empty());
}

#[test]
fn bad_partitions_are_refused_by_kind() {
    let samples = [0f32; 10];
    let view = View::new(&samples, [10]).unwrap();
    let kind = |spec, rank| partition_view(&view, spec, rank).unwrap_err().kind();
    assert_eq!(kind(PartitionSpec::new(0), 0), ErrorKind::InvalidArgument);
    assert_eq!(kind(PartitionSpec::new(2).pad_to(0), 0), ErrorKind::InvalidArgument);
    assert_eq!(kind(PartitionSpec::new(2), 2), ErrorKind::OutOfBounds);
    assert_eq!(kind(PartitionSpec::new(2), usize::MAX), ErrorKind::OutOfBounds);
    assert_eq!(kind(PartitionSpec::new(1).pad_to(usize::MAX), 1), ErrorKind::OutOfBounds);
    for pad_to in [32, 7] {
        let spec = PartitionSpec::new(1).pad_to(pad_to);
        let overflow = padded_block_samples(usize::MAX, spec);
        assert_eq!(overflow.unwrap_err().kind(), ErrorKind::Overflow);
    }
    let point = View::new(&samples, []).unwrap();
    let error = partition_view(&point, PartitionSpec::new(1), 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);

    let mut samples = samples;
    for (spec, expected) in [
        (PartitionSpec::new(0), ErrorKind::InvalidArgument),
        (PartitionSpec::new(2).pad_to(0), ErrorKind::InvalidArgument),
    ] {
        let view = ViewMut::new(&mut samples, [10]).unwrap();
        assert_eq!(partition_views_mut(view, spec).unwrap_err().kind(), expected);
    }
    let view = ViewMut::new(&mut samples, [10]).unwrap();
    let error = partition_view_mut(view, PartitionSpec::new(2), 2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfBounds);
}

#[test]
fn a_padding_so_large_that_starts_overflow_leaves_later_blocks_empty() {
    let samples = [1u8; 10];
    let view = View::new(&samples, [10]).unwrap();
    // Twice the pitch is 0 to whoever lets it wrap.
    let spec = PartitionSpec::new(4).pad_to(1 << (usize::BITS - 1));
    let extents: Vec<_> =
        (0..4).map(|rank| partition_view(&view, spec, rank).unwrap().len()).collect();
    assert_eq!(extents, [10, 0, 0, 0]);
}

#[test]
fn a_block_of_a_chunk_is_written_in_place() {
    let mut chunk = Chunk::allocate(&Device::cpu(0), 100 * 2).unwrap();
    let mut view = chunk.view_mut::<u16, 2>([2, 50]).unwrap();
    let spec = PartitionSpec::new(4).pad_to(16);
    for rank in 0..4 {
        let mut block = partition_view_mut(view.reborrow(), spec, rank).unwrap();
        for row in 0..2 {
            block.lane_mut([row, 0]).unwrap().fill((row * 10 + rank) as u16);
        }
    }
    for (at, value) in chunk.slice::<u16>().unwrap().iter().enumerate() {
        assert_eq!(usize::from(*value), at / 50 * 10 + at % 50 / 16, "element {at}");
    }
}

#[test]
fn all_blocks_are_written_at_the_same_time() {
    let mut samples = vec![0u32; 3 * 70];
    let view = ViewMut::new(&mut samples, [3, 70]).unwrap();
    let blocks = partition_views_mut(view, PartitionSpec::new(5).pad_to(8)).unwrap();
    assert_eq!(blocks.iter().map(|it| it.shape()[1]).collect::<Vec<_>>(), [16, 16, 16, 16, 6]);
    std::thread::scope(|scope| {
        for (rank, mut block) in blocks.into_iter().enumerate() {
            scope.spawn(move || {
                for row in 0..3 {
                    block.lane_mut([row, 0]).unwrap().fill((row * 10 + rank + 1) as u32);
                }
            });
        }
    });
    for (at, &value) in samples.iter().enumerate() {
        assert_eq!(value as usize, at / 70 * 10 + at % 70 / 16 + 1, "element {at}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn blocks_cover_every_sample_once_and_begin_at_multiples_of_the_pitch(
        samples in 0usize..2000,
        parts in 1usize..40,
        pad_to in 1usize..100,
    ) {
        let spec = PartitionSpec::new(parts).pad_to(pad_to);
        let pitch = padded_block_samples(samples, spec).unwrap();
        prop_assert_eq!(pitch % pad_to, 0);
        prop_assert!(pitch * parts >= samples);
        prop_assert!(pitch < samples.div_ceil(parts) + pad_to);
        let mut owners = vec![0; samples];
        for rank in 0..parts {
            let block = spec.block(samples, rank).unwrap();
            prop_assert!(block.len() <= pitch);
            prop_assert!(block.is_empty() || block.start == rank * pitch);
            owners[block].iter_mut().for_each(|it| *it += 1);
        }
        prop_assert!(owners.iter().all(|&it| it == 1));
    }

    #[test]
    fn a_block_is_what_the_indices_of_the_view_say(
        shape in (1usize..4, 1usize..4, 0usize..60),
        gap in 0usize..5,
        parts in 1usize..7,
        pad_to in 1usize..9,
    ) {
        let shape = [shape.0, shape.1, shape.2];
        let row = shape[2] + gap;
        let strides = [row * shape[1], row, 1];
        let data: Vec<u32> = (0..(shape[0] * shape[1] * row).max(1) as u32).collect();
        let view = View::strided(&data, shape, strides).unwrap();
        let spec = PartitionSpec::new(parts).pad_to(pad_to);
        let mut seen = 0;
        for rank in 0..parts {
            let range = spec.block(shape[2], rank).unwrap();
            let block = partition_view(&view, spec, rank).unwrap();
            prop_assert_eq!(block.strides(), strides);
            prop_assert_eq!(block.shape(), [shape[0], shape[1], range.len()]);
            for i in 0..shape[0] {
                for j in 0..shape[1] {
                    for (k, sample) in range.clone().enumerate() {
                        let index = block.at([i, j, k]).unwrap();
                        prop_assert_eq!(index, view.at([i, j, sample]).unwrap());
                        seen += 1;
                    }
                }
            }
        }
        prop_assert_eq!(seen, view.len());
    }

    #[test]
    fn blocks_to_write_are_the_blocks_to_read(
        samples in 0usize..300,
        parts in 1usize..9,
        pad_to in 1usize..40,
    ) {
        let mut data = vec![0u16; 2 * samples];
        let spec = PartitionSpec::new(parts).pad_to(pad_to);
        let view = View::new(&data, [2, samples]).unwrap();
        let read: Vec<_> = (0..parts)
            .map(|rank| partition_view(&view, spec, rank).unwrap())
            .map(|it| (it.shape(), it.strides(), it.address(), it.is_empty()))
            .collect();
        let view = ViewMut::new(&mut data, [2, samples]).unwrap();
        let written = partition_views_mut(view, spec).unwrap();
        prop_assert_eq!(written.len(), parts);
        for (block, (shape, strides, address, empty)) in written.iter().zip(read) {
            prop_assert_eq!((block.shape(), block.strides()), (shape, strides));
            prop_assert!(empty || block.as_view().address() == address);
        }
    }
}
