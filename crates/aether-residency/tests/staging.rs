//! Staged copies: pieces, overlap of their legs, failures, and copies that wait for others.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use aether_core::{AsSpan, AsSpanMut, Chunk, DType, Device, ErrorKind, Rows, Stream};
use aether_residency::{StreamTransport, Transport};
use common::{Held, REMOTE, REMOTE_HOST, Remote, Setting, bytes, chunk_of, settle, until};

const PIECE: usize = 64;
const PIECES: usize = 6;
const SIZE: usize = PIECE * (PIECES - 1) + 17;

fn transport() -> StreamTransport {
    StreamTransport::new().piece_bytes(PIECE)
}

/// The sources from which a remote device is reached in two legs.
fn sources(remote: &Arc<Remote>) -> [Device; 2] {
    [Device::cpu(0), remote.device(1)]
}

#[test]
fn the_next_piece_is_filled_while_the_one_before_is_emptied_and_no_third() {
    for source in 0..2 {
        let remote = Remote::new(Setting::ASYNCHRONOUS);
        let from = &sources(&remote)[source];
        let source = chunk_of(from, &bytes(SIZE, 1));
        let target_device = remote.device(0);
        let mut target = Chunk::allocate(&target_device, SIZE).unwrap();
        remote.forget();
        remote.hold(&target_device);
        let stream = Stream::new(&target_device).unwrap();
        let (dst, src) = (target.span_mut().unwrap(), source.span().unwrap());
        let work = transport().copy_async(dst, src, &stream).unwrap();
        // The second leg is held at the first piece; the first leg goes on to the second.
        until("two pieces are filled", || remote.arrived(REMOTE_HOST) == 2);
        settle();
        assert_eq!((remote.arrived(REMOTE_HOST), remote.arrived(REMOTE)), (2, 0));
        assert_eq!(remote.staged_most.load(Ordering::SeqCst), 2 * PIECE);
        assert!(!work.is_done());
        remote.release();
        work.wait().unwrap();
        assert_eq!((remote.arrived(REMOTE_HOST), remote.arrived(REMOTE)), (PIECES, PIECES));
        assert_eq!(target.to_vec::<u8>().unwrap(), bytes(SIZE, 1));
    }
}

#[test]
fn the_blocking_form_overlaps_its_legs_as_well() {
    for source in 0..2 {
        let remote = Remote::new(Setting::ASYNCHRONOUS);
        let from = &sources(&remote)[source];
        let source = chunk_of(from, &bytes(SIZE, 2));
        let target_device = remote.device(0);
        let mut target = Chunk::allocate(&target_device, SIZE).unwrap();
        remote.forget();
        remote.hold(&target_device);
        std::thread::scope(|scope| {
            let (dst, src) = (target.span_mut().unwrap(), source.span().unwrap());
            let copying = scope.spawn(move || transport().copy(dst, src));
            until("two pieces are filled", || remote.arrived(REMOTE_HOST) == 2);
            assert_eq!(remote.arrived(REMOTE), 0);
            assert!(!copying.is_finished());
            remote.release();
            copying.join().unwrap().unwrap();
        });
        assert_eq!(remote.staged_most.load(Ordering::SeqCst), 2 * PIECE);
        assert_eq!(target.to_vec::<u8>().unwrap(), bytes(SIZE, 2));
    }
}

#[test]
fn the_blocking_form_hands_over_a_piece_before_it_fills_the_next() {
    let remote = Remote::new(Setting::ASYNCHRONOUS);
    let data = bytes(SIZE, 3);
    let mut target = Chunk::allocate(&remote.device(0), SIZE).unwrap();
    remote.forget();
    transport().copy(target.span_mut().unwrap(), data.span().unwrap()).unwrap();
    let ((_, filled), (handed_over, emptied)) = (remote.times(REMOTE_HOST), remote.times(REMOTE));
    assert_eq!((filled.len(), emptied.len()), (PIECES, PIECES));
    for piece in 1..PIECES {
        assert!(handed_over[piece - 1] < filled[piece], "piece {piece}");
    }
    assert_eq!(target.to_vec::<u8>().unwrap(), data);
}

#[test]
fn the_blocking_form_asks_for_a_piece_before_it_reads_the_one_before() {
    let remote = Remote::new(Setting::ASYNCHRONOUS);
    let device = remote.device(0);
    let source = chunk_of(&device, &bytes(SIZE, 3));
    let mut back = vec![0u8; SIZE];
    remote.forget();
    remote.hold(&device);
    std::thread::scope(|scope| {
        let (dst, src) = (back.span_mut().unwrap(), source.span().unwrap());
        let copying = scope.spawn(move || transport().copy(dst, src));
        // It waits for the first piece, which is held, and has asked for the second.
        until("two pieces are asked for", || remote.times(REMOTE_HOST).0.len() == 2);
        remote.release();
        copying.join().unwrap().unwrap();
    });
    assert_eq!(back, bytes(SIZE, 3));
    assert_eq!(remote.staged_most.load(Ordering::SeqCst), 2 * PIECE);
    assert_eq!(remote.arrived(REMOTE_HOST), PIECES);
}

#[test]
fn pieces_are_kept_for_the_next_copy_and_can_be_released() {
    for setting in Setting::BOTH {
        let remote = Remote::new(setting);
        let source = chunk_of(&Device::cpu(0), &bytes(SIZE, 4));
        let mut target = Chunk::allocate(&remote.device(0), SIZE).unwrap();
        let transport = transport();
        let stream = Stream::new(&remote.device(0)).unwrap();
        for _ in 0..50 {
            transport.copy(target.span_mut().unwrap(), source.span().unwrap()).unwrap();
            let (dst, src) = (target.span_mut().unwrap(), source.span().unwrap());
            transport.copy_async(dst, src, &stream).unwrap().wait().unwrap();
        }
        assert_eq!(remote.staged_most.load(Ordering::SeqCst), 2 * PIECE);
        assert_eq!(transport.kept_bytes(), 2 * PIECE);
        transport.release();
        assert_eq!(transport.kept_bytes(), 0);
        assert_eq!(remote.staged_now.load(Ordering::SeqCst), 0);
    }
}

#[test]
fn copies_under_way_have_two_pieces_each_and_few_are_kept() {
    const COPIES: usize = 20;
    let remote = Remote::new(Setting::ASYNCHRONOUS);
    let device = remote.device(0);
    let transport = transport();
    let source = chunk_of(&Device::cpu(0), &bytes(SIZE, 5));
    let stream = Stream::new(&device).unwrap();
    let mut targets: Vec<_> =
        (0..COPIES).map(|_| Chunk::allocate(&device, SIZE).unwrap()).collect();
    remote.hold(&device);
    for target in &mut targets {
        let (dst, src) = (target.span_mut().unwrap(), source.span().unwrap());
        transport.copy_async(dst, src, &stream).unwrap();
    }
    assert_eq!(remote.staged_most.load(Ordering::SeqCst), COPIES * 2 * PIECE);
    remote.release();
    stream.synchronize().unwrap();
    for target in &targets {
        assert_eq!(target.to_vec::<u8>().unwrap(), bytes(SIZE, 5));
    }
    assert!(transport.kept_bytes() <= 8 * 2 * PIECE);
    until("the rest is freed", || {
        remote.staged_now.load(Ordering::SeqCst) == transport.kept_bytes()
    });
}

#[test]
fn a_copy_that_waits_for_its_source_keeps_no_other_waiting() {
    for setting in Setting::BOTH {
        let remote = Remote::new(setting);
        let (cpu, device) = (Device::cpu(0), remote.device(0));
        let transport = transport();
        let mut late = chunk_of(&cpu, &bytes(SIZE, 6));
        let ready = chunk_of(&cpu, &bytes(SIZE, 7));
        let mut targets =
            [Chunk::allocate(&device, SIZE).unwrap(), Chunk::allocate(&device, SIZE).unwrap()];
        let streams = [Stream::new(&device).unwrap(), Stream::new(&device).unwrap()];
        let held = Held::on(late.span_mut().unwrap(), false);
        let [first, second] = &mut targets;
        let (dst, src) = (first.span_mut().unwrap(), late.span().unwrap());
        let waiting = transport.copy_async(dst, src, &streams[0]).unwrap();
        let (dst, src) = (second.span_mut().unwrap(), ready.span().unwrap());
        transport.copy_async(dst, src, &streams[1]).unwrap().wait().unwrap();
        assert_eq!(second.to_vec::<u8>().unwrap(), bytes(SIZE, 7));
        transport.copy(second.span_mut().unwrap(), ready.span().unwrap()).unwrap();
        assert!(!waiting.is_done());
        held.let_go();
        waiting.wait().unwrap();
        assert_eq!(first.to_vec::<u8>().unwrap(), bytes(SIZE, 6));
    }
}

#[test]
fn everything_may_be_dropped_while_a_staged_copy_is_under_way() {
    let remote = Remote::new(Setting::ASYNCHRONOUS);
    let device = remote.device(0);
    let source = chunk_of(&Device::cpu(0), &bytes(SIZE, 8));
    let mut target = Chunk::allocate(&device, SIZE).unwrap();
    remote.hold(&device);
    let (transport, stream) = (transport(), Stream::new(&device).unwrap());
    let (dst, src) = (target.span_mut().unwrap(), source.span().unwrap());
    drop(transport.copy_async(dst, src, &stream).unwrap());
    drop((transport, stream, source));
    remote.release();
    assert_eq!(target.to_vec::<u8>().unwrap(), bytes(SIZE, 8));
    until("staging memory is freed", || remote.staged_now.load(Ordering::SeqCst) == 0);
}

#[test]
fn a_leg_that_fails_is_the_failure_of_the_copy_and_of_what_it_should_have_written() {
    for setting in Setting::BOTH {
        for at in [REMOTE, REMOTE_HOST] {
            for blocking in [true, false] {
                // The fourth copy of that leg; the first leg goes from a device, by copies.
                let remote = Remote::new(setting);
                let source = chunk_of(&remote.device(1), &bytes(SIZE, 9));
                let mut target = chunk_of(&remote.device(0), &[0; SIZE]);
                let stream = Stream::new(&remote.device(0)).unwrap();
                *remote.failing.lock().unwrap() = Some((at, 4));
                let (dst, src) = (target.span_mut().unwrap(), source.span().unwrap());
                let outcome = match blocking {
                    true => transport().copy(dst, src),
                    false => transport().copy_async(dst, src, &stream).and_then(|it| it.wait()),
                };
                let what = format!("{at} blocking {blocking} {:?}", setting.asynchronous);
                assert_eq!(outcome.unwrap_err().reason(), "told to fail", "{what}");
                *remote.failing.lock().unwrap() = None;
                let error = target.to_vec::<u8>().expect_err(&what);
                assert_eq!(error.reason(), "told to fail", "{what}");
                transport().copy(target.span_mut().unwrap(), source.span().unwrap()).unwrap();
                assert_eq!(target.to_vec::<u8>().unwrap(), bytes(SIZE, 9), "{what}");
            }
        }
    }
}

#[test]
fn a_source_whose_write_failed_fails_the_copy_before_or_after() {
    for fails_first in [true, false] {
        let remote = Remote::new(Setting::ASYNCHRONOUS);
        let device = remote.device(0);
        let mut source = chunk_of(&Device::cpu(0), &bytes(SIZE, 1));
        let mut target = chunk_of(&device, &[7; SIZE]);
        let stream = Stream::new(&device).unwrap();
        // The last piece fails, when the others may be there already.
        let held = Held::on(source.span_of_mut(SIZE - 5.., DType::U8).unwrap(), true);
        if fails_first {
            held.let_go();
            settle();
        }
        let (dst, src) = (target.span_mut().unwrap(), source.span().unwrap());
        let work = transport().copy_async(dst, src, &stream).unwrap();
        held.let_go();
        assert_eq!(work.wait().unwrap_err().reason(), "told to fail");
        assert_eq!(target.to_vec::<u8>().unwrap_err().reason(), "told to fail");
    }
}

#[test]
fn a_failed_blocking_copy_of_rows_marks_the_rows_and_not_what_lies_between() {
    let remote = Remote::new(Setting::PLAIN);
    let source = chunk_of(&remote.device(1), &bytes(300, 1));
    let mut target = chunk_of(&Device::cpu(0), &[7; 300]);
    *remote.failing.lock().unwrap() = Some((REMOTE_HOST, 3));
    let rows = Rows { count: 3, bytes: 64, dst_pitch: 100, src_pitch: 100 };
    let (dst, src) = (target.span_mut().unwrap(), source.span().unwrap());
    let error = transport().copy_rows(dst, src, rows).unwrap_err();
    assert_eq!((error.kind(), error.reason()), (ErrorKind::Backend, "told to fail"));
    for row in 0..3 {
        let mut part = vec![0u8; 64];
        let span = target.span_of(row * 100..row * 100 + 64, DType::U8).unwrap();
        let read = aether_core::copy(part.as_mut_slice(), &span);
        assert_eq!(read.unwrap_err().reason(), "told to fail", "row {row}");
        let mut gap = vec![0u8; 36];
        let span = target.span_of(row * 100 + 64..row * 100 + 100, DType::U8).unwrap();
        aether_core::copy(gap.as_mut_slice(), &span).unwrap();
        assert_eq!(gap, [7; 36]);
    }
}
