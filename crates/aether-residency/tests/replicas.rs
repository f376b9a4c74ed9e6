//! The same bytes on every device of a list.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use aether_core::{
    AsSpan, AsSpanMut, Chunk, Completion, DType, Device, ErrorKind, Link, Result, Span, SpanMut,
    Stream,
};
use aether_residency::{Replica, ReplicaSet, StreamTransport, Transport};
use common::{Held, REMOTE, Remote, Setting, bytes, chunk_of};

#[test]
fn one_chunk_for_each_device_with_the_requested_size() {
    let devices = Device::cpus(3);
    let set = ReplicaSet::new(&devices, 256).unwrap();
    assert_eq!(set.size(), 3);
    for (index, device) in devices.iter().enumerate() {
        let chunk = set.chunk(index).unwrap();
        assert_eq!(chunk.size(), 256);
        assert_eq!(chunk.device(), device);
        assert_ne!(chunk.data().addr(), 0);
        assert!(chunk.owns());
    }
    assert_eq!(set.chunk(3).unwrap_err().kind(), ErrorKind::OutOfBounds);
    assert!(set.devices().eq(&devices));
}

#[test]
fn an_empty_list_is_an_empty_set() {
    let mut set = ReplicaSet::new(&[], 16).unwrap();
    assert!(set.is_empty());
    set.broadcast(&[0u8; 16][..]).unwrap();
    assert_eq!(set.broadcast(&[0u8; 15][..]).unwrap_err().kind(), ErrorKind::SizeMismatch);
    assert_eq!(set.verify().unwrap(), [0; 0]);
    assert_eq!(set.chunk(0).unwrap_err().kind(), ErrorKind::OutOfBounds);
    assert_eq!(set.repair(0).unwrap_err().kind(), ErrorKind::OutOfBounds);
}

#[test]
fn a_device_that_stands_twice_holds_two_replicas() {
    let cpu = Device::cpu(4);
    let mut set = ReplicaSet::new(&[cpu.clone(), cpu], 64).unwrap();
    assert_ne!(set.chunk(0).unwrap().data(), set.chunk(1).unwrap().data());
    set.broadcast(&bytes(64, 1)[..]).unwrap();
    set.chunk_mut(0).unwrap().slice_mut::<u8>().unwrap()[5] ^= 1;
    assert_eq!(set.chunk(1).unwrap().slice::<u8>().unwrap(), bytes(64, 1));
}

fn mixed(setting: Setting) -> Vec<Device> {
    let remote = Remote::new(setting);
    let (cpu, there) = (Device::cpu(1), remote.device(0));
    vec![cpu.clone(), there.clone(), remote.device(1), remote.staging_device(), there, cpu]
}

#[test]
fn a_broadcast_is_bit_exact_from_chunks_views_and_slices() {
    for setting in Setting::BOTH {
        for size in [0, 1, 777] {
            let devices = mixed(setting);
            let mut set = ReplicaSet::new(&devices, size).unwrap();
            let same = |set: &ReplicaSet, data: Vec<u8>| {
                for index in 0..set.len() {
                    assert_eq!(set.chunk(index).unwrap().to_vec::<u8>().unwrap(), data);
                }
                assert_eq!(set.verify().unwrap(), [0; 0]);
                set.ensure_identical().unwrap();
            };
            for (seed, device) in devices.iter().enumerate() {
                let data = bytes(size, seed as u32);
                set.broadcast(&chunk_of(device, &data)).unwrap();
                same(&set, data);
            }
            set.broadcast(&bytes(size, 50)[..]).unwrap();
            same(&set, bytes(size, 50));
            let chunk = chunk_of(&devices[2], &bytes(size, 51));
            set.broadcast(&chunk.view::<u8, 1>([size]).unwrap()).unwrap();
            same(&set, bytes(size, 51));
        }
    }
}

#[test]
fn a_broadcast_on_streams_returns_before_its_source_is_written() {
    for setting in Setting::BOTH {
        let devices = mixed(setting);
        let mut set = ReplicaSet::new(&devices, 500).unwrap();
        let streams: Vec<_> = devices.iter().map(|it| Stream::new(it).unwrap()).collect();
        let mut source = chunk_of(&Device::cpu(0), &bytes(500, 1));
        let held = Held::on(source.span_mut().unwrap(), false);
        let works = set.broadcast_async(&source, &streams).unwrap();
        assert_eq!(works.len(), devices.len());
        assert!(!works.iter().any(Completion::is_done));
        held.let_go();
        for (work, stream) in works.iter().zip(&streams).rev() {
            work.wait().unwrap();
            stream.synchronize().unwrap();
        }
        for index in 0..set.len() {
            assert_eq!(set.chunk(index).unwrap().to_vec::<u8>().unwrap(), bytes(500, 1));
        }
    }
}

#[test]
fn bad_broadcasts_are_refused_by_kind_and_change_nothing() {
    let devices = Device::cpus(2);
    let mut set = ReplicaSet::new(&devices, 8).unwrap();
    set.broadcast(&bytes(8, 1)[..]).unwrap();
    let streams: Vec<_> = devices.iter().map(|it| Stream::new(it).unwrap()).collect();
    let long = chunk_of(&devices[0], &bytes(9, 2));
    let right = chunk_of(&devices[0], &bytes(8, 2));
    let error = set.broadcast(&long).unwrap_err();
    assert_eq!((error.kind(), error.bytes()), (ErrorKind::SizeMismatch, Some(9)));
    let kind = |it: Result<Vec<Completion>>| it.unwrap_err().kind();
    assert_eq!(kind(set.broadcast_async(&long, &streams)), ErrorKind::SizeMismatch);
    assert_eq!(kind(set.broadcast_async(&right, &streams[..1])), ErrorKind::SizeMismatch);
    let borrowed = bytes(8, 3);
    assert_eq!(kind(set.broadcast_async(&borrowed[..], &streams)), ErrorKind::BorrowedMemory);
    let gaps = long.view_strided::<u8, 1>([4], [2]).unwrap();
    assert_eq!(set.broadcast(&gaps).unwrap_err().kind(), ErrorKind::NotContiguous);
    for index in 0..2 {
        assert_eq!(set.chunk(index).unwrap().slice::<u8>().unwrap(), bytes(8, 1));
    }
}

#[test]
fn a_replica_with_a_flipped_bit_is_named_and_repaired() {
    for setting in Setting::BOTH {
        let devices = mixed(setting);
        let mut set = ReplicaSet::new(&devices, 300).unwrap();
        set.broadcast(&bytes(300, 1)[..]).unwrap();
        for index in [1, 5] {
            let mut wrong = bytes(300, 1);
            wrong[299] ^= 1 << index;
            let (chunk, wrong) = (set.chunk_mut(index).unwrap(), wrong);
            let transport = StreamTransport::new();
            transport.copy(chunk.span_mut().unwrap(), wrong.span().unwrap()).unwrap();
        }
        assert_eq!(set.verify().unwrap(), [1, 5]);
        let error = set.ensure_identical().unwrap_err();
        assert_eq!((error.kind(), error.ranks()), (ErrorKind::ReplicasDiffer, &[1, 5][..]));
        assert!(error.to_string().contains("1 on 77:0, 5 on cpu:1"), "{error}");
        assert_eq!(set.repair(0).unwrap(), [1, 5]);
        assert_eq!(set.verify().unwrap(), [0; 0]);
        assert_eq!(set.chunk(5).unwrap().to_vec::<u8>().unwrap(), bytes(300, 1));
        assert_eq!(set.repair(3).unwrap(), [0; 0]);
    }
}

#[test]
fn all_replicas_are_named_where_none_has_a_majority() {
    let mut set = ReplicaSet::new(&Device::cpus(4), 40).unwrap();
    for index in 0..4 {
        set.chunk_mut(index).unwrap().slice_mut::<u8>().unwrap()[39] = index as u8 / 2;
    }
    assert_eq!(set.verify().unwrap(), [0, 1, 2, 3]);
    let error = set.ensure_identical().unwrap_err();
    assert!(error.reason().contains("no bytes are those of more than half"), "{error}");
    assert_eq!(set.repair(2).unwrap(), [0, 1]);
    assert_eq!(set.chunk(0).unwrap().slice::<u8>().unwrap()[39], 1);
    assert_eq!(set.repair(4).unwrap_err().kind(), ErrorKind::OutOfBounds);
}

#[test]
fn verify_waits_for_pending_writes_and_gives_the_error_of_failed_ones() {
    let mut set = ReplicaSet::new(&Device::cpus(3), 64).unwrap();
    set.broadcast(&bytes(64, 1)[..]).unwrap();
    let source = chunk_of(&Device::cpu(0), &bytes(64, 1));
    // A write of the same bytes is pending; without waiting, verify would not see the held one.
    let held = Held::on(set.chunk_mut(1).unwrap().span_mut().unwrap(), false);
    let stream = Stream::new(&Device::cpu(1)).unwrap();
    let mut other = bytes(64, 1);
    other[0] ^= 1;
    let other = chunk_of(&Device::cpu(0), &other);
    aether_core::copy_async(set.chunk_mut(1).unwrap(), &other, &stream).unwrap();
    let verdict = std::thread::scope(|scope| {
        let verifying = scope.spawn(|| set.verify());
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert!(!verifying.is_finished());
        held.let_go();
        verifying.join().unwrap()
    });
    assert_eq!(verdict.unwrap(), [1]);

    let span = set.chunk_mut(1).unwrap().span_of_mut(10..20, DType::U8).unwrap();
    Held::on(span, true).let_go();
    assert_eq!(set.verify().unwrap_err().reason(), "told to fail");
    assert_eq!(set.repair(1).unwrap_err().reason(), "told to fail");
    assert_eq!(set.repair(0).unwrap(), [1]);
    assert_eq!(set.chunk(1).unwrap().slice::<u8>().unwrap(), source.slice::<u8>().unwrap());
}

#[test]
fn a_replica_that_can_t_be_written_is_the_error_and_the_others_are_written() {
    let remote = Remote::new(Setting::ASYNCHRONOUS);
    let devices = [remote.device(0), Device::cpu(0), Device::cpu(1)];
    let mut set = ReplicaSet::new(&devices, 64).unwrap();
    *remote.failing.lock().unwrap() = Some((REMOTE, 1));
    let source = chunk_of(&Device::cpu(2), &bytes(64, 1));
    assert_eq!(set.broadcast(&source).unwrap_err().reason(), "told to fail");
    *remote.failing.lock().unwrap() = None;
    assert_eq!(set.chunk(0).unwrap().to_vec::<u8>().unwrap_err().reason(), "told to fail");
    for index in 1..3 {
        assert_eq!(set.chunk(index).unwrap().slice::<u8>().unwrap(), bytes(64, 1));
    }
}

#[test]
fn a_replica_that_can_t_be_reached_is_the_error_and_the_others_are_written() {
    let alone = Remote::new(Setting { staging: Link::None, ..Setting::PLAIN });
    let devices = [alone.device(0), Device::cpu(0), Device::cpu(1)];
    for borrowed in [true, false] {
        let mut set = ReplicaSet::new(&devices, 64).unwrap();
        let outcome = match borrowed {
            true => set.broadcast(&bytes(64, 1)[..]),
            false => set.broadcast(&chunk_of(&Device::cpu(2), &bytes(64, 1))),
        };
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::IllegalPair);
        for index in 1..3 {
            assert_eq!(set.chunk(index).unwrap().slice::<u8>().unwrap(), bytes(64, 1));
        }
    }
}

#[test]
fn pairs_with_blocking_copies_only_are_broadcast_to_as_well() {
    let remote = Remote::new(Setting { staging: Link::Blocking, ..Setting::PLAIN });
    let devices = [Device::cpu(0), remote.device(0), remote.device(1)];
    let mut set = ReplicaSet::new(&devices, 64).unwrap();
    set.broadcast(&chunk_of(&Device::cpu(2), &bytes(64, 1))).unwrap();
    for index in 0..3 {
        assert_eq!(set.chunk(index).unwrap().to_vec::<u8>().unwrap(), bytes(64, 1));
    }
}

/// A transport of somebody else: it has the two required methods only, and counts.
#[derive(Default)]
struct Counting(std::cell::Cell<usize>);

impl Transport for Counting {
    fn copy(&self, mut dst: SpanMut<'_>, src: Span<'_>) -> Result<()> {
        self.0.set(self.0.get() + 1);
        aether_core::copy(&mut dst, &src)
    }

    fn copy_async(
        &self,
        mut dst: SpanMut<'_>,
        src: Span<'_>,
        stream: &Stream,
    ) -> Result<Completion> {
        self.0.set(self.0.get() + 1);
        aether_core::copy_async(&mut dst, &src, stream)
    }
}

#[test]
fn a_replica_counts_in_elements_over_any_transport() {
    let devices = Device::cpus(3);
    let counting = Counting::default();
    let mut replica = Replica::<f32, _>::with_transport(&devices, 10, &counting).unwrap();
    let values: Vec<f32> = (0..10).map(|it| it as f32 / 3.0).collect();
    replica.broadcast(&values[..]).unwrap();
    assert_eq!((replica.len(), replica.elements(), replica.set().bytes()), (3, 10, 40));
    assert_eq!(counting.0.get(), 3);
    for index in 0..3 {
        assert_eq!(replica.to_vec(index).unwrap(), values);
        assert_eq!(replica.view(index).unwrap().as_slice().unwrap(), values);
    }
    for (index, mut view) in replica.views_mut().unwrap().into_iter().enumerate() {
        view.as_slice_mut().unwrap()[0] = index as f32;
    }
    assert_eq!(replica.verify().unwrap(), [0, 1, 2]);
    assert_eq!(replica.repair(1).unwrap(), [0, 2]);
    replica.ensure_identical().unwrap();
    replica.view_mut(2).unwrap().as_slice_mut().unwrap()[9] = 0.0;
    let before = counting.0.get();
    assert_eq!(replica.repair(0).unwrap(), [2]);
    assert_eq!(counting.0.get() - before, 1, "only what differs is written");
    let refused = replica.broadcast(&[0u32; 10][..]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::DTypeMismatch);
    let refused = replica.broadcast(&values[..9]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::SizeMismatch);
    let huge = Replica::<f64>::new(&devices, usize::MAX / 4).unwrap_err();
    assert_eq!(huge.kind(), ErrorKind::Overflow);
}

#[test]
fn a_replica_is_broadcast_on_streams_and_read_from_any_device() {
    let devices = mixed(Setting::ASYNCHRONOUS);
    let streams: Vec<_> = devices.iter().map(|it| Stream::new(it).unwrap()).collect();
    let mut replica = Replica::<u16>::new(&devices, 33).unwrap();
    let values: Vec<u16> = (0..33).map(|it| it * 771).collect();
    let source = Chunk::from_vec(&devices[1], values.clone()).unwrap();
    let view = source.view::<u16, 1>([33]).unwrap();
    for work in replica.broadcast_async(&view, &streams).unwrap() {
        work.wait().unwrap();
    }
    for index in 0..replica.len() {
        assert_eq!(replica.to_vec(index).unwrap(), values);
    }
}
