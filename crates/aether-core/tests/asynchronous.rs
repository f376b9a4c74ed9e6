//! A device that runs by itself and that the host can't reach: what is issued there has not ended.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod common;

use std::time::Duration;

use aether_core::{
    Chunk, DType, Device, ErrorKind, HostBackend, Link, Status, Stream, copy, copy_async, fill,
    fill_async,
};
use common::{Held, Manual, Owner, bytes, eventually, look_hard, numbers, reads, soon, writes};

/// Waits until so many commands are on the device. Who enqueues issues the work unless another thread
/// that looks is just at the stream, and then that one does.
#[track_caller]
fn until_issued(lead: &Manual, commands: usize) {
    soon("it is issued", || lead.queued() == commands);
}

#[test]
fn what_was_issued_has_ended_only_when_the_device_says_so() {
    let (device, lead) = Manual::device();
    let source = Chunk::from_vec(&Device::cpu(0), numbers(16)).unwrap();
    let mut there = Chunk::allocate(&device, 64).unwrap();
    let mut back = Chunk::allocate(&Device::cpu(1), 64).unwrap();
    let stream = Stream::new(&device).unwrap();
    let up = copy_async(&mut there, &source, &stream).unwrap();
    until_issued(&lead, 2);
    let down = copy_async(&mut back, &there, &stream).unwrap();
    until_issued(&lead, 4);
    look_hard();
    assert!(!up.is_done() && !down.is_done());
    assert!(!down.wait_timeout(Duration::from_millis(2)).unwrap());
    while !up.is_done() {
        assert!(lead.step());
    }
    assert!(!down.is_done());
    lead.run();
    down.wait().unwrap();
    assert_eq!(back.slice::<u32>().unwrap(), numbers(16));
    lead.check();
}

#[test]
fn streams_of_one_device_are_ordered_by_the_device() {
    let (device, lead) = Manual::device();
    let source = Chunk::from_vec(&Device::cpu(0), numbers(16)).unwrap();
    let mut chunks: Vec<_> = (0..5).map(|_| Chunk::allocate(&device, 64).unwrap()).collect();
    let streams: Vec<_> = (0..5).map(|_| Stream::new(&device).unwrap()).collect();
    copy_async(&mut chunks[0], &source, &streams[0]).unwrap();
    for at in 1..5 {
        let (before, after) = chunks.split_at_mut(at);
        copy_async(&mut after[0], &before[at - 1], &streams[at]).unwrap();
        fill_async(&mut before[at - 1], at as u32, &streams[at - 1]).unwrap();
    }
    // All is issued, although nothing has run: nobody waits on the host.
    soon("all is issued", || lead.queued() >= 9 * 2);
    assert!(!streams[4].last().is_done());
    let _pump = lead.pump();
    assert_eq!(chunks[4].to_vec::<u32>().unwrap(), numbers(16));
    for at in 1..5 {
        assert_eq!(chunks[at - 1].to_vec::<u32>().unwrap(), vec![at as u32; 16]);
    }
    lead.check();
}

#[test]
fn host_memory_and_device_memory_wait_for_each_other() {
    let (device, lead) = Manual::device();
    let _pump = lead.pump();
    let mut host = Chunk::from_vec(&Device::cpu(0), numbers(16)).unwrap();
    let mut there = Chunk::allocate(&device, 64).unwrap();
    let (on_device, on_host) =
        (Stream::new(&device).unwrap(), Stream::new(&Device::cpu(0)).unwrap());
    for round in 0..if cfg!(miri) { 3 } else { 100u32 } {
        fill_async(&mut host, round, &on_host).unwrap();
        copy_async(&mut there, &host, &on_device).unwrap();
        host.slice_mut::<u32>().unwrap()[5] = round + 1;
        assert_eq!(there.to_vec::<u32>().unwrap(), [round; 16]);
    }
    lead.check();
}

#[test]
fn memory_is_freed_after_the_device_let_go_of_it() {
    let (device, lead) = Manual::device();
    let (owner, counts) = Owner::new(bytes(64, 1));
    let source = Chunk::from_owner(&Device::cpu(0), owner).unwrap();
    let mut there = Chunk::allocate(&device, 64).unwrap();
    let stream = Stream::new(&device).unwrap();
    copy_async(&mut there, &source, &stream).unwrap();
    drop((source, there, stream));
    look_hard();
    assert_eq!((lead.live(), counts.dropped()), (1, 0));
    until_issued(&lead, 2);
    lead.run();
    eventually("both go", || lead.live() == 0 && counts.dropped() == 1);
    lead.check();
}

#[test]
fn a_stream_closes_when_its_last_handle_and_its_work_are_gone() {
    let (device, lead) = Manual::device();
    let mut there = Chunk::allocate(&device, 64).unwrap();
    let stream = Stream::new(&device).unwrap();
    let work = fill_async(&mut there, 1u8, &stream).unwrap();
    drop(stream);
    assert_eq!(lead.streams(), 1);
    until_issued(&lead, 2);
    lead.run();
    work.wait().unwrap();
    drop((work, there));
    // Workers delist a queue that was idle for a while; a miri run has none.
    if !cfg!(miri) {
        eventually("it is closed", || lead.streams() == 0);
    }
    lead.check();
}

#[test]
fn fills_and_empty_copies_work() {
    let (device, lead) = Manual::device();
    let _pump = lead.pump();
    let mut there = Chunk::allocate(&device, 24).unwrap();
    fill(&mut there, 0x0102_0304_0506_0708u64).unwrap();
    fill(&mut there.span_of_mut(2..4, DType::U16).unwrap(), 0xabcdu16).unwrap();
    let mut expected = 0x0102_0304_0506_0708u64.to_ne_bytes().repeat(3);
    expected[2..4].copy_from_slice(&0xabcdu16.to_ne_bytes());
    assert_eq!(there.to_vec::<u8>().unwrap(), expected);
    let mut nothing = Chunk::allocate(&device, 0).unwrap();
    copy(&mut nothing, &Chunk::allocate(&Device::cpu(0), 0).unwrap()).unwrap();
    assert_eq!(nothing.to_vec::<u8>().unwrap(), []);
    assert_eq!(there.slice::<u8>().unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(there.slice_mut::<u8>().unwrap_err().kind(), ErrorKind::Unsupported);
    let view = there.view::<u8, 1>([24]).unwrap();
    assert_eq!(view.as_slice().unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(view.at([0]).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(view.pack().unwrap_err().kind(), ErrorKind::Unsupported);
    lead.check();
}

#[test]
fn vectors_go_through_staging_where_host_memory_does_not_reach() {
    let pinned = Device::new("902:0".parse().unwrap(), std::sync::Arc::new(HostBackend::new()));
    let (device, lead) = Manual::with_links(Link::None, Some(pinned.clone()));
    let _pump = lead.pump();
    let mut there = Chunk::from_vec(&device, numbers(100)).unwrap();
    assert_eq!(there.to_vec::<u32>().unwrap(), numbers(100));
    let host = Chunk::from_vec(&Device::cpu(0), numbers(100)).unwrap();
    let error = copy(&mut there, &host).unwrap_err();
    assert_eq!((error.kind(), error.bytes()), (ErrorKind::IllegalPair, Some(400)));
    assert_eq!(error.place(), Some("cpu:0 to 901:0"));
    let mut staged = Chunk::allocate(&pinned, 400).unwrap();
    copy(&mut staged, &host).unwrap();
    copy(&mut there, &staged).unwrap();
    let (nowhere, _lead) = Manual::with_links(Link::None, None);
    let refused = Chunk::from_vec(&nowhere, numbers(100)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::IllegalPair);
    lead.check();
}

#[test]
fn a_pair_that_only_blocks_is_refused_on_streams() {
    let (device, lead) = Manual::with_links(Link::Blocking, None);
    let _pump = lead.pump();
    let host = Chunk::from_vec(&Device::cpu(0), bytes(8, 3)).unwrap();
    let mut there = Chunk::allocate(&device, 8).unwrap();
    let stream = Stream::new(&device).unwrap();
    let error = copy_async(&mut there, &host, &stream).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::IllegalPair);
    copy(&mut there, &host).unwrap();
    assert_eq!(there.to_vec::<u8>().unwrap(), bytes(8, 3));
    lead.check();
}

#[test]
fn a_copy_that_the_device_refuses_has_failed() {
    let (device, lead) = Manual::device();
    let mut there = Chunk::allocate(&device, 64).unwrap();
    let mut next = Chunk::allocate(&device, 64).unwrap();
    let host = Chunk::from_vec(&Device::cpu(0), bytes(64, 3)).unwrap();
    let streams = [Stream::new(&device).unwrap(), Stream::new(&device).unwrap()];
    fill_async(&mut there, 1u8, &streams[0]).unwrap();
    lead.fail_copies(1);
    let failed = copy_async(&mut there, &host, &streams[0]).unwrap();
    // Issued behind it before the host could know: it inherits the failure when both have ended.
    let inherits = copy_async(&mut next, &there, &streams[1]).unwrap();
    let _pump = lead.pump();
    assert_eq!(inherits.wait().unwrap_err().reason(), "the device was told to fail");
    assert_eq!(failed.wait().unwrap_err().attempted(), "copy");
    assert!(there.to_vec::<u8>().is_err() && next.to_vec::<u8>().is_err());
    copy_async(&mut there, &host, &streams[0]).unwrap().wait().unwrap();
    assert_eq!(there.to_vec::<u8>().unwrap(), bytes(64, 3));
    drop((there, next));
    eventually("both are freed", || lead.live() == 0);
    lead.check();
}

#[test]
fn a_backend_that_panics_fails_its_operation_only() {
    let (device, lead) = Manual::device();
    let mut there = Chunk::allocate(&device, 64).unwrap();
    let host = Chunk::from_vec(&Device::cpu(0), bytes(64, 3)).unwrap();
    let stream = Stream::new(&device).unwrap();
    lead.panic_copies(1);
    let failed = copy_async(&mut there, &host, &stream).unwrap();
    let _pump = lead.pump();
    assert_eq!(failed.wait().unwrap_err().kind(), ErrorKind::Panicked);
    copy_async(&mut there, &host, &stream).unwrap().wait().unwrap();
    assert_eq!(there.to_vec::<u8>().unwrap(), bytes(64, 3));
    lead.check();
}

#[test]
fn a_wait_that_the_device_refuses_fails_what_was_to_be_ordered() {
    let (device, lead) = Manual::device();
    let mut there = Chunk::allocate(&device, 64).unwrap();
    let streams = [Stream::new(&device).unwrap(), Stream::new(&device).unwrap()];
    let host = Chunk::from_vec(&Device::cpu(0), bytes(64, 3)).unwrap();
    copy_async(&mut there, &host, &streams[0]).unwrap();
    lead.fail_waits(1);
    let refused = fill_async(&mut there, 7u8, &streams[1]).unwrap();
    look_hard();
    // Its end tells that of the copy before it, so it can't be over yet.
    assert!(matches!(refused.status(), Status::Pending));
    let _pump = lead.pump();
    assert_eq!(refused.wait().unwrap_err().attempted(), "wait");
    assert!(there.to_vec::<u8>().is_err());
    fill(&mut there, 7u8).unwrap();
    assert_eq!(there.to_vec::<u8>().unwrap(), [7; 64]);
    lead.check();
}

#[test]
fn a_wait_that_the_device_refused_is_not_asked_for_again() {
    let (device, lead) = Manual::device();
    let mut there = Chunk::allocate(&device, 64).unwrap();
    let streams = [Stream::new(&device).unwrap(), Stream::new(&device).unwrap()];
    let host = Chunk::from_vec(&Device::cpu(0), bytes(64, 3)).unwrap();
    copy_async(&mut there, &host, &streams[0]).unwrap();
    lead.fail_waits(100);
    let refused = fill_async(&mut there, 7u8, &streams[1]).unwrap();
    eventually("it is asked for", || lead.waits_to_fail() == 99);
    look_hard();
    assert!(matches!(refused.status(), Status::Pending));
    assert_eq!(lead.waits_to_fail(), 99);
    let _pump = lead.pump();
    assert_eq!(refused.wait().unwrap_err().attempted(), "wait");
    lead.check();
}

/// Drops a chunk that aether has to leak. Miri would report that, so there it is kept instead.
fn drop_or_keep(chunk: Chunk) {
    static KEPT: std::sync::Mutex<Vec<Chunk>> = std::sync::Mutex::new(Vec::new());
    if cfg!(miri) {
        KEPT.lock().unwrap().push(chunk);
    }
}

#[test]
fn nothing_is_issued_behind_a_refused_write_before_the_readers_it_stands_for_have_ended() {
    let (device, lead) = Manual::device();
    let mut there = Chunk::allocate(&device, 64).unwrap();
    let mut other = Chunk::allocate(&device, 64).unwrap();
    let streams = [Stream::new(&device).unwrap(), Stream::new(&device).unwrap()];
    let on_host = [(); 2].map(|()| Stream::new(&Device::cpu(0)).unwrap());
    let (reader, writer) = (Held::new(), Held::new());
    reads(&on_host[0], &there, 0..64, &reader);
    writes(&on_host[1], &mut other, 0..64, &writer);
    let refused = copy_async(&mut there, &other, &streams[0]).unwrap();
    let next = fill_async(&mut there, 7u8, &streams[1]).unwrap();
    writer.fail();
    look_hard();
    assert_eq!(lead.queued(), 0);
    reader.open();
    let _pump = lead.pump();
    next.wait().unwrap();
    assert_eq!(refused.wait().unwrap_err().reason(), "told to fail");
    assert_eq!(there.to_vec::<u8>().unwrap(), [7; 64]);
    lead.check();
}

#[test]
fn memory_of_work_that_a_device_lost_is_never_freed() {
    let (device, lead) = Manual::device();
    let (owner, counts) = Owner::new(bytes(64, 1));
    let host = Chunk::from_owner(&Device::cpu(0), owner).unwrap();
    let mut there = Chunk::allocate(&device, 64).unwrap();
    let fine = Chunk::allocate(&device, 64).unwrap();
    let stream = Stream::new(&device).unwrap();
    let work = copy_async(&mut there, &host, &stream).unwrap();
    lead.lose();
    assert_eq!(work.wait().unwrap_err().reason(), "the device is lost");
    let later = fill_async(&mut there, 1u8, &stream).unwrap_err();
    assert_eq!(later.reason(), "the device is lost");
    drop((there, fine));
    look_hard();
    // What the copy touches stays; what it doesn't goes.
    assert_eq!(lead.live(), 1);
    let mut host = host;
    assert_eq!(host.slice::<u8>().unwrap(), bytes(64, 1));
    assert_eq!(host.slice_mut::<u8>().unwrap_err().reason(), "the device is lost");
    drop_or_keep(host);
    look_hard();
    assert_eq!(counts.dropped(), 0);
    drop((work, stream));
    lead.check();
    lead.free_leaked();
}

#[test]
fn doubt_about_an_end_goes_on_to_what_was_ordered_behind_it() {
    let (device, lead) = Manual::device();
    let mut host = Chunk::from_vec(&Device::cpu(0), bytes(64, 1)).unwrap();
    let mut there = Chunk::allocate(&device, 64).unwrap();
    let stream = Stream::new(&device).unwrap();
    let on_host = Stream::new(&Device::cpu(0)).unwrap();
    let held = Held::open_already();
    copy_async(&mut there, &host, &stream).unwrap();
    // Its record replaces that of the copy, which reads the same bytes.
    let behind = writes(&on_host, &mut host, 0..64, &held);
    lead.lose();
    assert_eq!(behind.wait().unwrap_err().reason(), "the device is lost");
    assert!(!held.has_begun());
    assert_eq!(host.slice::<u8>().unwrap_err().reason(), "the device is lost");
    drop_or_keep(host);
    drop(there);
    look_hard();
    assert_eq!(lead.live(), 1);
    lead.free_leaked();
}

#[test]
fn doubt_goes_on_to_what_the_device_had_ordered_behind_it_already() {
    let (device, lead) = Manual::device();
    let mut there = Chunk::allocate(&device, 64).unwrap();
    let streams = [Stream::new(&device).unwrap(), Stream::new(&device).unwrap()];
    fill_async(&mut there, 1u8, &streams[0]).unwrap();
    let behind = fill_async(&mut there, 2u8, &streams[1]).unwrap();
    // Both are on the device, which goes on to tell of the second stream alone.
    until_issued(&lead, 5);
    lead.lose_stream(streams[0].native());
    lead.run();
    assert_eq!(behind.wait().unwrap_err().reason(), "the device is lost");
    drop(there);
    look_hard();
    assert_eq!(lead.live(), 1);
    lead.free_leaked();
}

#[test]
fn an_end_is_told_only_when_it_is_known_how_what_was_read_came_out() {
    for _ in 0..if cfg!(miri) { 2 } else { 50 } {
        let (device, lead) = Manual::device();
        let host = Chunk::from_vec(&Device::cpu(0), bytes(64, 3)).unwrap();
        let mut chunks: Vec<_> = (0..3).map(|_| Chunk::allocate(&device, 64).unwrap()).collect();
        let streams: Vec<_> = (0..3).map(|_| Stream::new(&device).unwrap()).collect();
        fill_async(&mut chunks[0], 1u8, &streams[0]).unwrap();
        lead.fail_copies(1);
        copy_async(&mut chunks[0], &host, &streams[0]).unwrap();
        let (first, rest) = chunks.split_at_mut(1);
        copy_async(&mut rest[0], &first[0], &streams[1]).unwrap();
        let (middle, last) = rest.split_at_mut(1);
        let end = copy_async(&mut last[0], &middle[0], &streams[2]).unwrap();
        until_issued(&lead, 9);
        lead.run();
        // The device is done with all three, and the host has looked at none but the last.
        assert!(!matches!(end.status(), Status::Done));
        assert_eq!(end.wait().unwrap_err().reason(), "the device was told to fail");
        lead.check();
    }
}

#[test]
fn an_operation_whose_mark_fails_has_failed_and_its_memory_stays() {
    let (device, lead) = Manual::device();
    let host = Chunk::from_vec(&Device::cpu(0), bytes(64, 1)).unwrap();
    let mut there = Chunk::allocate(&device, 64).unwrap();
    let mut other = Chunk::allocate(&device, 64).unwrap();
    let streams = [Stream::new(&device).unwrap(), Stream::new(&device).unwrap()];
    lead.fail_marks(1);
    let work = copy_async(&mut there, &host, &streams[0]).unwrap();
    assert_eq!(work.wait().unwrap_err().attempted(), "mark");
    assert_eq!(lead.queued(), 1);
    // Nothing could be ordered behind it, so what conflicts is refused at once.
    assert_eq!(copy_async(&mut other, &there, &streams[1]).unwrap_err().attempted(), "mark");
    assert_eq!(fill_async(&mut there, 1u8, &streams[1]).unwrap_err().attempted(), "mark");
    // The stream itself goes on.
    let next = fill_async(&mut other, 5u8, &streams[0]).unwrap();
    until_issued(&lead, 3);
    lead.run();
    next.wait().unwrap();
    drop((there, other));
    eventually("the other is freed", || lead.live() == 1);
    look_hard();
    assert_eq!(lead.live(), 1);
    drop_or_keep(host);
    lead.check();
    lead.free_leaked();
}

#[test]
fn a_call_on_the_host_waits_for_the_device_and_the_device_for_the_call() {
    let (device, lead) = Manual::device();
    let mut host = Chunk::from_vec(&Device::cpu(0), bytes(64, 1)).unwrap();
    let mut there = Chunk::allocate(&device, 64).unwrap();
    let (stream, on_host) = (Stream::new(&device).unwrap(), Stream::new(&Device::cpu(0)).unwrap());
    copy_async(&mut there, &host, &stream).unwrap();
    let held = Held::new();
    let call = writes(&on_host, &mut host, 0..64, &held);
    let end = copy_async(&mut there, &host, &stream).unwrap();
    until_issued(&lead, 2);
    look_hard();
    assert!(!held.has_begun() && lead.queued() == 2);
    lead.run();
    eventually("the call begins", || held.has_begun());
    assert!(!call.is_done() && lead.queued() == 0);
    held.open();
    call.wait().unwrap();
    eventually("the copy is issued", || lead.queued() == 2);
    lead.run();
    end.wait().unwrap();
    let _more = reads(&stream, &there, 0..1, &Held::open_already());
    lead.run();
    lead.check();
}
