//! Every pair of devices works, by the route that fits it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use aether_core::{
    AsSpan, AsSpanMut, Chunk, DType, Device, ErrorKind, Link, Rows, Span, SpanMut, Stream,
};
use aether_residency::{Route, StreamTransport, Transport};
use common::{REMOTE, REMOTE_HOST, Remote, Setting, bytes, chunk_of};

/// Larger than a few pieces of 64, and not a multiple of one.
const SIZE: usize = 64 * 5 + 17;

fn small_pieces() -> StreamTransport {
    StreamTransport::new().piece_bytes(64)
}

/// Every kind of device there is: of the host, remote, staging, and remote of another backend.
fn all_kinds(setting: Setting) -> Vec<Device> {
    let (one, other) = (Remote::new(setting), Remote::new(setting));
    vec![
        Device::cpu(0),
        Device::cpu(1),
        one.device(0),
        one.device(1),
        one.staging_device(),
        other.device(0),
        other.staging_device(),
    ]
}

fn pairs(devices: &[Device]) -> Vec<(&Device, &Device)> {
    devices.iter().flat_map(|from| devices.iter().map(move |to| (from, to))).collect()
}

#[test]
fn routes_are_decided_by_links() {
    let near = Remote::new(Setting { peers: Link::Direct, ..Setting::PLAIN });
    let far = Remote::new(Setting { peers: Link::Indirect, ..Setting::PLAIN });
    let bare =
        Remote::new(Setting { peers: Link::Indirect, staging: Link::None, ..Setting::PLAIN });
    let transport = StreamTransport::new();
    let route = |from: &Device, to: &Device| transport.route(from, to).unwrap();
    let cpus = Device::cpus(2);
    assert_eq!(route(&cpus[0], &cpus[0]), Route::Same);
    assert_eq!(route(&cpus[0], &cpus[1]), Route::Host);
    assert_eq!(route(&near.device(0), &near.device(0)), Route::Same);
    assert_eq!(route(&near.device(0), &near.device(1)), Route::Peer);
    assert_eq!(route(&near.staging_device(), &near.device(1)), Route::Host);
    assert_eq!(route(&cpus[0], &near.staging_device()), Route::Host);
    assert_eq!(route(&cpus[0], &near.device(0)), Route::Staged);
    assert_eq!(route(&near.device(0), &cpus[0]), Route::Staged);
    assert_eq!(route(&far.device(0), &far.device(1)), Route::Staged);
    assert_eq!(route(&bare.device(0), &bare.device(1)), Route::Peer);
    assert_eq!(transport.stops(&cpus[0], &near.device(0)).unwrap(), [near.staging_device()]);
    let two = [near.staging_device(), far.staging_device()];
    assert_eq!(transport.stops(&near.device(0), &far.device(0)).unwrap(), two);
    assert_eq!(Route::Staged.to_string(), "staged");
}

#[test]
fn a_transport_told_to_stage_stages_every_pair() {
    let remote = Remote::new(Setting { peers: Link::Direct, ..Setting::PLAIN });
    let transport = StreamTransport::new().staging_always();
    let devices = [
        Device::cpu(0),
        Device::cpu(1),
        remote.device(0),
        remote.device(1),
        remote.staging_device(),
    ];
    for (from, to) in pairs(&devices) {
        assert_eq!(transport.route(from, to).unwrap(), Route::Staged, "{from} to {to}");
        let source = chunk_of(from, &bytes(SIZE, 5));
        let mut target = Chunk::allocate(to, SIZE).unwrap();
        let transport = transport.clone().piece_bytes(64);
        transport.copy(target.span_mut().unwrap(), source.span().unwrap()).unwrap();
        assert_eq!(target.to_vec::<u8>().unwrap(), bytes(SIZE, 5), "{from} to {to}");
    }
}

#[test]
fn every_pair_copies_blocking_and_on_a_stream() {
    for setting in Setting::BOTH {
        let devices = all_kinds(setting);
        let transport = small_pieces();
        for (from, to) in pairs(&devices) {
            for size in [0, 1, 63, 64, 65, 128, SIZE] {
                let what = format!("{from} to {to}, {size} bytes");
                let source = chunk_of(from, &bytes(size, 1));
                let mut target = Chunk::allocate(to, size).unwrap();
                transport.copy(target.span_mut().unwrap(), source.span().unwrap()).expect(&what);
                assert_eq!(target.to_vec::<u8>().unwrap(), bytes(size, 1), "{what}");

                let source = chunk_of(from, &bytes(size, 2));
                let on = if from.host_addressable() { to } else { from };
                let stream = Stream::new(on).unwrap();
                let (dst, src) = (target.span_mut().unwrap(), source.span().unwrap());
                let work = transport.copy_async(dst, src, &stream).expect(&what);
                drop(source);
                stream.synchronize().expect(&what);
                assert!(work.has_ended(), "{what}");
                work.wait().expect(&what);
                assert_eq!(target.to_vec::<u8>().unwrap(), bytes(size, 2), "{what}");
            }
        }
    }
}

#[test]
fn rows_move_and_what_lies_between_them_stays() {
    // Rows shorter than a piece, as long, and longer.
    for (count, length) in [(7, 10), (3, 64), (3, 150), (1, 150), (0, 9), (5, 0)] {
        let rows = Rows { count, bytes: length, dst_pitch: length + 6, src_pitch: length + 11 };
        let size = (length + 11) * count.max(1);
        let (data, before) = (bytes(size, 3), bytes(size, 4));
        let mut expected = before.clone();
        for row in 0..count {
            let (to, from) = (row * rows.dst_pitch, row * rows.src_pitch);
            expected[to..to + length].copy_from_slice(&data[from..from + length]);
        }
        for setting in Setting::BOTH {
            let devices = all_kinds(setting);
            let transport = small_pieces();
            for (from, to) in pairs(&devices) {
                let what = format!("{from} to {to}, {rows:?}");
                let source = chunk_of(from, &data);
                let mut target = chunk_of(to, &before);
                let (dst, src) = (target.span_mut().unwrap(), source.span().unwrap());
                transport.copy_rows(dst, src, rows).expect(&what);
                assert_eq!(target.to_vec::<u8>().unwrap(), expected, "{what}");

                let mut target = chunk_of(to, &before);
                let on = if from.host_addressable() { to } else { from };
                let stream = Stream::new(on).unwrap();
                let (dst, src) = (target.span_mut().unwrap(), source.span().unwrap());
                let work = transport.copy_rows_async(dst, src, rows, &stream).expect(&what);
                work.wait().expect(&what);
                assert_eq!(target.to_vec::<u8>().unwrap(), expected, "{what}");
            }
        }
    }
}

#[test]
fn borrowed_memory_of_the_host_goes_into_blocking_copies_only() {
    for setting in Setting::BOTH {
        let remote = Remote::new(setting).device(0);
        let transport = small_pieces();
        let data = bytes(SIZE, 6);
        let mut there = Chunk::allocate(&remote, SIZE).unwrap();
        transport.copy(there.span_mut().unwrap(), data.span().unwrap()).unwrap();
        let mut back = vec![0u8; SIZE];
        transport.copy(back.span_mut().unwrap(), there.span().unwrap()).unwrap();
        assert_eq!(back, data);
        let stream = Stream::new(&remote).unwrap();
        let queued = transport.copy_async(there.span_mut().unwrap(), data.span().unwrap(), &stream);
        assert_eq!(queued.unwrap_err().kind(), ErrorKind::BorrowedMemory);
        let queued = transport.copy_async(back.span_mut().unwrap(), there.span().unwrap(), &stream);
        assert_eq!(queued.unwrap_err().kind(), ErrorKind::BorrowedMemory);
        let nothing = there.span_of_mut(..0, DType::U8).unwrap();
        let queued = transport.copy_async(nothing, data[..0].span().unwrap(), &stream);
        assert_eq!(queued.unwrap_err().kind(), ErrorKind::BorrowedMemory);
    }
}

#[test]
fn a_pair_without_any_way_is_refused_even_for_zero_bytes() {
    let remote = Remote::new(Setting { staging: Link::None, ..Setting::PLAIN }).device(0);
    for transport in [StreamTransport::new(), StreamTransport::new().staging_always()] {
        for size in [0, 8] {
            let source = Chunk::allocate(&Device::cpu(0), size).unwrap();
            let mut target = Chunk::allocate(&remote, size).unwrap();
            let (dst, src) = (target.span_mut().unwrap(), source.span().unwrap());
            let error = transport.copy(dst, src).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::IllegalPair);
            assert_eq!(error.place(), Some("cpu:0 to 77:0"));
            let stream = Stream::new(&remote).unwrap();
            let (dst, src) = (target.span_mut().unwrap(), source.span().unwrap());
            let error = transport.copy_async(dst, src, &stream).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::IllegalPair);
        }
    }
}

#[test]
fn staging_memory_that_takes_blocking_copies_only_serves_the_blocking_form() {
    let remote = Remote::new(Setting { staging: Link::Blocking, ..Setting::PLAIN }).device(0);
    let transport = small_pieces();
    let source = chunk_of(&Device::cpu(0), &bytes(SIZE, 7));
    let mut target = Chunk::allocate(&remote, SIZE).unwrap();
    transport.copy(target.span_mut().unwrap(), source.span().unwrap()).unwrap();
    assert_eq!(target.to_vec::<u8>().unwrap(), bytes(SIZE, 7));
    let stream = Stream::new(&remote).unwrap();
    let (dst, src) = (target.span_mut().unwrap(), source.span().unwrap());
    let error = transport.copy_async(dst, src, &stream).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::IllegalPair);
}

#[test]
fn bad_arguments_of_a_staged_copy_are_refused_by_kind() {
    let remote = Remote::new(Setting::PLAIN);
    let (device, transport) = (remote.device(0), small_pieces().staging_always());
    let source = chunk_of(&Device::cpu(0), &bytes(100, 8));
    let mut target = Chunk::allocate(&device, 99).unwrap();
    let stream = Stream::new(&device).unwrap();
    let error = transport.copy(target.span_mut().unwrap(), source.span().unwrap()).unwrap_err();
    assert_eq!((error.kind(), error.bytes()), (ErrorKind::SizeMismatch, Some(100)));
    let queued = transport.copy_async(target.span_mut().unwrap(), source.span().unwrap(), &stream);
    assert_eq!(queued.unwrap_err().kind(), ErrorKind::SizeMismatch);

    let part = source.span_of(..99, DType::U8).unwrap();
    let stranger = Stream::new(&Remote::new(Setting::PLAIN).device(0)).unwrap();
    let queued = transport.copy_async(target.span_mut().unwrap(), part, &stranger);
    assert_eq!(queued.unwrap_err().kind(), ErrorKind::WrongDevice);

    let mut only_read = Chunk::from_read_only_owner(&Device::cpu(0), vec![0u8; 100]).unwrap();
    // A chunk that may only be read gives no span to write.
    assert_eq!(only_read.span_mut().unwrap_err().kind(), ErrorKind::ReadOnly);

    let rows = |count, bytes, dst_pitch, src_pitch| Rows { count, bytes, dst_pitch, src_pitch };
    for (rows, kind) in [
        (rows(2, 50, 50, 51), ErrorKind::OutOfBounds),
        (rows(2, 50, 50, 50), ErrorKind::OutOfBounds),
        (rows(2, 10, 9, 10), ErrorKind::Overlap),
        (rows(2, 10, 10, 9), ErrorKind::Overlap),
        (rows(3, 10, usize::MAX, 10), ErrorKind::Overflow),
        (rows(usize::MAX, 10, 10, 10), ErrorKind::Overflow),
    ] {
        let (dst, src) = (target.span_mut().unwrap(), source.span().unwrap());
        assert_eq!(transport.copy_rows(dst, src, rows).unwrap_err().kind(), kind, "{rows:?}");
        let (dst, src) = (target.span_mut().unwrap(), source.span().unwrap());
        let error = transport.copy_rows_async(dst, src, rows, &stream).unwrap_err();
        assert_eq!(error.kind(), kind, "{rows:?}");
    }
    // Nothing was moved before it was refused.
    assert_eq!(target.to_vec::<u8>().unwrap(), [0; 99]);
}

#[test]
fn a_source_that_overlaps_the_destination_is_refused_on_staged_routes() {
    let transport = small_pieces().staging_always();
    let mut data = bytes(200, 1);
    let address = aether_core::Address::from_ptr(data.as_mut_ptr());
    // SAFETY: the vector is written and read through these two spans alone until they are gone.
    let src = unsafe { Span::from_raw(address, 100, DType::U8) };
    // SAFETY: as above; the two overlap, and are therefore refused before anything touches them.
    let dst = unsafe { SpanMut::from_raw(address.add(50), 100, DType::U8) };
    assert_eq!(transport.copy(dst, src).unwrap_err().kind(), ErrorKind::Overlap);
}

#[test]
fn a_route_is_asked_for_once_and_remembered() {
    let remote = Remote::new(Setting::PLAIN);
    let (one, other) = (remote.device(0), remote.device(1));
    let transport = small_pieces();
    let source = chunk_of(&one, &bytes(SIZE, 1));
    let mut target = Chunk::allocate(&other, SIZE).unwrap();
    remote.forget();
    for _ in 0..3 {
        transport.copy(target.span_mut().unwrap(), source.span().unwrap()).unwrap();
    }
    // The copies themselves go between each device and staging memory.
    assert_eq!(remote.asked.lock().unwrap()[&(one.id(), other.id())], 1);
    assert!(!remote.asked.lock().unwrap().contains_key(&(other.id(), one.id())));
    transport.route(&other, &one).unwrap();
    assert_eq!(remote.asked.lock().unwrap()[&(other.id(), one.id())], 1);
}

#[test]
fn devices_of_one_name_and_two_backends_have_routes_of_their_own() {
    let near = Remote::new(Setting { peers: Link::Direct, ..Setting::PLAIN });
    let far = Remote::new(Setting { peers: Link::None, ..Setting::PLAIN });
    let transport = StreamTransport::new();
    for _ in 0..2 {
        assert_eq!(transport.route(&near.device(0), &near.device(1)).unwrap(), Route::Peer);
        assert_eq!(transport.route(&far.device(0), &far.device(1)).unwrap(), Route::Staged);
    }
}

#[test]
fn host_memory_beside_staging_memory_is_copied_on_a_stream_by_the_processor() {
    let remote = Remote::new(Setting::ASYNCHRONOUS);
    let staging = remote.staging_device();
    let source = chunk_of(&Device::cpu(0), &bytes(SIZE, 9));
    let mut target = Chunk::allocate(&staging, SIZE).unwrap();
    let stream = Stream::new(&Device::cpu(0)).unwrap();
    // What core refuses, because no backend does it asynchronously:
    let refused = aether_core::copy_async(&mut target, &source, &stream);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::IllegalPair);
    let (dst, src) = (target.span_mut().unwrap(), source.span().unwrap());
    StreamTransport::new().copy_async(dst, src, &stream).unwrap().wait().unwrap();
    assert_eq!(target.slice::<u8>().unwrap(), bytes(SIZE, 9));
    assert!(remote.arrived(REMOTE_HOST) > 0 && remote.arrived(REMOTE) == 0);
}

#[test]
fn references_and_boxes_of_a_transport_are_transports() {
    fn moves(transport: impl Transport) {
        let source = chunk_of(&Device::cpu(0), &bytes(40, 1));
        let mut target = Chunk::allocate(&Device::cpu(1), 40).unwrap();
        transport.copy(target.span_mut().unwrap(), source.span().unwrap()).unwrap();
        assert_eq!(target.slice::<u8>().unwrap(), bytes(40, 1));
    }
    let transport = StreamTransport::new();
    moves(&transport);
    moves(std::sync::Arc::new(transport.clone()));
    moves(Box::new(transport) as Box<dyn Transport>);
}
