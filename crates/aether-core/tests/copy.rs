//! Copies and fills: what they move, and what they refuse before anything moves.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod common;

use std::sync::Arc;

use aether_core::{
    AsSpan, Chunk, DType, Device, DeviceKind, ErrorKind, HostBackend, Link, Rows, Stream, copy,
    copy_async, copy_rows, copy_rows_async, fill, fill_async, link,
};
use common::{Manual, bytes, numbers};

fn chunk(count: usize) -> Chunk {
    Chunk::from_vec(&Device::cpu(0), numbers(count)).unwrap()
}

fn kind<T>(result: aether_core::Result<T>) -> ErrorKind {
    result.map(|_| ()).unwrap_err().kind()
}

#[test]
fn a_copy_moves_all_bytes_between_chunks_views_and_slices() {
    let source = chunk(20);
    let mut target = Chunk::allocate(&Device::cpu(1), 80).unwrap();
    copy(&mut target, &source).unwrap();
    assert_eq!(target.slice::<u32>().unwrap(), numbers(20));
    let mut plain = vec![0u32; 20];
    copy(&mut plain[..], &target).unwrap();
    assert_eq!(plain, numbers(20));
    let part = source.view::<u32, 2>([4, 5]).unwrap().narrow(0, 1, 2).unwrap();
    let mut whole = target.view_mut::<u32, 1>([20]).unwrap().narrow(0, 10, 10).unwrap();
    copy(&mut whole, &part).unwrap();
    assert_eq!(&target.slice::<u32>().unwrap()[10..], &numbers(20)[5..15]);
    copy(&mut target, &[7u32; 20][..]).unwrap();
    assert_eq!(target.slice::<u32>().unwrap(), [7; 20]);
    let mut bytes = [0u8; 4];
    copy(&mut bytes[..], &[0x0403_0201u32][..]).unwrap();
    assert_eq!(bytes, 0x0403_0201u32.to_ne_bytes());
}

#[test]
fn sizes_must_be_equal() {
    let source = chunk(20);
    let mut target = Chunk::allocate(&Device::cpu(1), 76).unwrap();
    let stream = Stream::new(&Device::cpu(0)).unwrap();
    let error = copy(&mut target, &source).unwrap_err();
    assert_eq!((error.kind(), error.bytes()), (ErrorKind::SizeMismatch, Some(80)));
    assert_eq!(
        error.to_string(),
        "copy on cpu:0 to cpu:1 (80 bytes): the destination has 76 bytes"
    );
    assert_eq!(kind(copy_async(&mut target, &source, &stream)), ErrorKind::SizeMismatch);
    assert_eq!(kind(copy(&mut target, &[0u8; 0][..])), ErrorKind::SizeMismatch);
    let mut nothing = Chunk::allocate(&Device::cpu(1), 0).unwrap();
    assert_eq!(kind(copy(&mut nothing, &source)), ErrorKind::SizeMismatch);
}

#[test]
fn an_illegal_pair_is_refused_also_for_zero_bytes() {
    let (there, lead) = Manual::with_links(Link::None, None);
    let host = Device::cpu(0);
    assert_eq!(link(&host, &there), Link::None);
    let stream = Stream::new(&there).unwrap();
    for size in [0, 16] {
        let mut here = Chunk::allocate(&host, size).unwrap();
        let mut other = Chunk::allocate(&there, size).unwrap();
        assert_eq!(kind(copy(&mut other, &here)), ErrorKind::IllegalPair, "{size}");
        assert_eq!(kind(copy(&mut here, &other)), ErrorKind::IllegalPair, "{size}");
        assert_eq!(kind(copy_async(&mut other, &here, &stream)), ErrorKind::IllegalPair);
        let rows = Rows { count: 0, bytes: 0, dst_pitch: 0, src_pitch: 0 };
        assert_eq!(kind(copy_rows(&mut other, &here, rows)), ErrorKind::IllegalPair);
    }
    // Two devices of two backends that know nothing of each other.
    let (elsewhere, _lead) = Manual::device();
    let source = Chunk::allocate(&elsewhere, 16).unwrap();
    let mut target = Chunk::allocate(&there, 16).unwrap();
    let error = copy(&mut target, &source).unwrap_err();
    assert_eq!((error.kind(), error.bytes()), (ErrorKind::IllegalPair, Some(16)));
    drop(target);
    lead.check();
}

#[test]
fn links_are_told_in_both_directions() {
    let (there, _lead) = Manual::device();
    let (cpu, one) = (Device::cpu(0), Device::cpu(1));
    assert_eq!((link(&cpu, &one), link(&cpu, &cpu)), (Link::Direct, Link::Direct));
    assert_eq!((link(&cpu, &there), link(&there, &cpu)), (Link::Indirect, Link::Indirect));
    assert_eq!(link(&there, &there), Link::Direct);
}

#[test]
fn overlapping_ranges_are_refused_and_touching_ones_are_not() {
    let device = Device::cpu(0);
    let mut memory = numbers(20);
    let address = aether_core::Address::from_ptr(memory.as_mut_ptr().cast());
    // SAFETY: all three only stand for the vector, which nobody else touches until they are gone.
    let mut low = unsafe { Chunk::borrow(&device, address, 40) };
    // SAFETY: as above.
    let middle = unsafe { Chunk::borrow(&Device::cpu(1), address.add(36), 40) };
    // SAFETY: as above.
    let high = unsafe { Chunk::borrow(&device, address.add(40), 40) };
    let stream = Stream::new(&device).unwrap();
    let error = copy(&mut low, &middle).unwrap_err();
    assert_eq!((error.kind(), error.bytes()), (ErrorKind::Overlap, Some(40)));
    assert_eq!(kind(copy_async(&mut low, &middle, &stream)), ErrorKind::Overlap);
    let rows = Rows { count: 2, bytes: 4, dst_pitch: 4, src_pitch: 4 };
    assert_eq!(kind(copy_rows(&mut low, &middle, rows)), ErrorKind::Overlap);
    copy(&mut low, &high).unwrap();
    assert_eq!(low.slice::<u32>().unwrap(), &numbers(20)[10..]);
}

#[test]
fn borrowed_memory_goes_into_blocking_calls_only() {
    let stream = Stream::new(&Device::cpu(0)).unwrap();
    let mut target = chunk(4);
    let error = copy_async(&mut target, &[1u32; 4][..], &stream).unwrap_err();
    assert_eq!((error.kind(), error.bytes()), (ErrorKind::BorrowedMemory, Some(16)));
    let mut plain = [0u32; 4];
    assert_eq!(kind(copy_async(&mut plain[..], &target, &stream)), ErrorKind::BorrowedMemory);
    assert_eq!(kind(fill_async(&mut plain[..], 1u32, &stream)), ErrorKind::BorrowedMemory);
    let rows = Rows { count: 1, bytes: 16, dst_pitch: 16, src_pitch: 16 };
    let refused = copy_rows_async(&mut plain[..], &target, rows, &stream);
    assert_eq!(kind(refused), ErrorKind::BorrowedMemory);
    copy_rows(&mut plain[..], &target, rows).unwrap();
    assert_eq!(plain.to_vec(), numbers(4));
    fill(&mut plain[1..3], 9u32).unwrap();
    assert_eq!(plain, [numbers(4)[0], 9, 9, numbers(4)[3]]);
    assert_eq!(stream.last().point().ticket, 0);
}

#[test]
fn a_stream_that_can_not_do_it_is_refused() {
    let (there, lead) = Manual::device();
    let (other, _lead) = Manual::device();
    let streams = [
        Stream::new(&Device::cpu(0)).unwrap(),
        Stream::new(&other).unwrap(),
        Stream::new(&there).unwrap(),
    ];
    let mut here = chunk(4);
    let mut up = Chunk::allocate(&there, 16).unwrap();
    for wrong in &streams[..2] {
        let error = copy_async(&mut up, &here, wrong).unwrap_err();
        assert_eq!((error.kind(), error.bytes()), (ErrorKind::WrongDevice, Some(16)));
        assert_eq!(kind(copy_async(&mut here, &up, wrong)), ErrorKind::WrongDevice);
        assert_eq!(kind(fill_async(&mut up, 1u8, wrong)), ErrorKind::WrongDevice);
    }
    let mut two = chunk(4);
    assert_eq!(kind(copy_async(&mut two, &here, &streams[2])), ErrorKind::WrongDevice);
    // Any stream of a host backend that serves one of both copies between host devices.
    let foreign = Device::new("78:0".parse().unwrap(), Arc::new(HostBackend::new()));
    let mut third = Chunk::allocate(&foreign, 16).unwrap();
    let on_foreign = Stream::new(&foreign).unwrap();
    copy_async(&mut third, &here, &streams[0]).unwrap().wait().unwrap();
    copy_async(&mut third, &here, &on_foreign).unwrap().wait().unwrap();
    assert_eq!(kind(copy_async(&mut two, &here, &on_foreign)), ErrorKind::WrongDevice);
    assert_eq!(kind(fill_async(&mut two, 1u8, &on_foreign)), ErrorKind::WrongDevice);
    assert_eq!(third.slice::<u32>().unwrap(), numbers(4));
    assert_eq!(foreign.kind(), DeviceKind(78));
    lead.check();
}

/// What rows should do, one byte at a time.
fn expected(dst: &[u8], src: &[u8], rows: Rows) -> Vec<u8> {
    let mut dst = dst.to_vec();
    for row in 0..if rows.bytes == 0 { 0 } else { rows.count } {
        for at in 0..rows.bytes {
            dst[row * rows.dst_pitch + at] = src[row * rows.src_pitch + at];
        }
    }
    dst
}

#[test]
fn rows_move_with_a_pitch_on_each_side_and_nothing_between_them() {
    let all = [
        Rows { count: 3, bytes: 5, dst_pitch: 7, src_pitch: 11 },
        Rows { count: 4, bytes: 5, dst_pitch: 5, src_pitch: 8 },
        Rows { count: 4, bytes: 5, dst_pitch: 9, src_pitch: 5 },
        Rows { count: 1, bytes: 37, dst_pitch: 0, src_pitch: usize::MAX },
        Rows { count: 0, bytes: 5, dst_pitch: 1, src_pitch: 1 },
        Rows { count: usize::MAX, bytes: 0, dst_pitch: 0, src_pitch: 0 },
    ];
    let (there, lead) = Manual::device();
    let _pump = lead.pump();
    for device in [Device::cpu(1), there] {
        for rows in all {
            let source = Chunk::from_vec(&Device::cpu(0), bytes(40, 1)).unwrap();
            let mut target = Chunk::from_vec(&device, bytes(38, 99)).unwrap();
            copy_rows(&mut target, &source, rows).unwrap();
            assert_eq!(
                target.to_vec::<u8>().unwrap(),
                expected(&bytes(38, 99), &bytes(40, 1), rows),
                "{rows:?}"
            );
            fill(&mut target, 3u8).unwrap();
            let stream = Stream::new(&device).unwrap();
            copy_rows_async(&mut target, &source, rows, &stream).unwrap();
            let found = target.to_vec::<u8>().unwrap();
            assert_eq!(found, expected(&[3; 38], &bytes(40, 1), rows), "{rows:?}");
        }
    }
    lead.check();
}

#[test]
fn rows_outside_of_their_span_are_refused() {
    let source = Chunk::from_vec(&Device::cpu(0), bytes(40, 1)).unwrap();
    let mut target = Chunk::from_vec(&Device::cpu(0), bytes(38, 9)).unwrap();
    let stream = Stream::new(&Device::cpu(0)).unwrap();
    let most = usize::MAX;
    for (count, bytes, dst_pitch, src_pitch, expected) in [
        (3, 10, 15, 10, ErrorKind::OutOfBounds),
        (3, 10, 10, 16, ErrorKind::OutOfBounds),
        (1, 39, 0, 0, ErrorKind::OutOfBounds),
        (2, 10, 9, 10, ErrorKind::Overlap),
        (2, 10, 10, 9, ErrorKind::Overlap),
        (3, 1, most, 1, ErrorKind::Overflow),
        (3, 1, 1, most / 2 + 1, ErrorKind::Overflow),
        (2, 5, most - 2, 5, ErrorKind::Overflow),
        (most, 1, 2, 2, ErrorKind::Overflow),
        (most, most, most, most, ErrorKind::Overflow),
    ] {
        let rows = Rows { count, bytes, dst_pitch, src_pitch };
        let error = copy_rows(&mut target, &source, rows).unwrap_err();
        assert_eq!(error.kind(), expected, "{rows:?}");
        assert_eq!((error.place(), error.bytes()), (Some("cpu:0 to cpu:0"), Some(40)));
        assert_eq!(kind(copy_rows_async(&mut target, &source, rows, &stream)), expected);
    }
    assert_eq!(target.slice::<u8>().unwrap(), bytes(38, 9));
}

#[test]
fn fills_repeat_every_width_of_pattern() {
    let device = Device::cpu(0);
    let mut target = Chunk::allocate(&device, 48).unwrap();
    fill(&mut target, 0x11u8).unwrap();
    assert_eq!(target.slice::<u8>().unwrap(), [0x11; 48]);
    fill(&mut target, 0x2233u16).unwrap();
    assert_eq!(target.slice::<u16>().unwrap(), [0x2233; 24]);
    fill(&mut target, 1.5f32).unwrap();
    assert_eq!(target.slice::<f32>().unwrap(), [1.5; 12]);
    fill(&mut target, -7i64).unwrap();
    assert_eq!(target.slice::<i64>().unwrap(), [-7; 6]);
    let stream = Stream::new(&device).unwrap();
    let mut part = target.span_of_mut(8..24, DType::U8).unwrap();
    fill_async(&mut part, 0x0102_0304u32, &stream).unwrap();
    let mut expected = (-7i64).to_ne_bytes().repeat(6);
    expected[8..24].copy_from_slice(&0x0102_0304u32.to_ne_bytes().repeat(4));
    assert_eq!(target.slice::<u8>().unwrap(), expected);
    let mut nothing = Chunk::allocate(&device, 0).unwrap();
    fill(&mut nothing, 1u64).unwrap();
    fill_async(&mut nothing, 1u64, &stream).unwrap().wait().unwrap();
}

#[test]
fn a_fill_that_leaves_a_remainder_or_begins_between_elements_is_refused() {
    let device = Device::cpu(0);
    let mut target = Chunk::from_vec(&device, bytes(14, 2)).unwrap();
    let stream = Stream::new(&device).unwrap();
    let error = fill(&mut target, 1u32).unwrap_err();
    assert_eq!((error.kind(), error.bytes()), (ErrorKind::PartialElement, Some(14)));
    assert_eq!(kind(fill_async(&mut target, 1u64, &stream)), ErrorKind::PartialElement);
    // One of two neighbours lies between elements.
    let odd = 1 + usize::from(target.data().addr() % 4 == 3);
    let mut part = target.span_of_mut(odd..odd + 8, DType::U8).unwrap();
    let error = fill(&mut part, 1u32).unwrap_err();
    assert_eq!((error.kind(), error.bytes()), (ErrorKind::Misaligned, Some(8)));
    assert_eq!(error.place(), Some("cpu:0"));
    assert_eq!(target.slice::<u8>().unwrap(), bytes(14, 2));
}

#[test]
fn the_region_of_plain_memory_is_that_of_the_first_host_device() {
    let plain = [1u8, 2, 3];
    let region = plain.span().unwrap().region();
    assert_eq!((region.device.to_string().as_str(), region.bytes), ("cpu:0", 3));
}

#[test]
fn vectors_and_arrays_are_memory_as_slices_are() {
    let mut chunk = Chunk::allocate(&Device::cpu(0), 12).unwrap();
    copy(&mut chunk, &vec![1u32, 2, 3]).unwrap();
    let mut array = [0u32; 3];
    copy(&mut array, &chunk).unwrap();
    assert_eq!(array, [1, 2, 3]);
    copy(&mut chunk, &[4u32, 5, 6]).unwrap();
    let mut vector = vec![0u32; 3];
    copy(&mut vector, &chunk).unwrap();
    assert_eq!(vector, [4, 5, 6]);
}
