//! The doubles behave as the devices that they stand for.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

use std::sync::Arc;
use std::time::Duration;

use aether_conformance::doubles::{Remote, Scrambled};
use aether_core::{
    Backend, Chunk, DType, Device, DeviceId, DeviceKind, ErrorKind, HostBackend, Link, Region,
    Stream, copy, copy_async, fill, fill_async, link,
};

fn numbers(count: u32) -> Vec<u32> {
    (0..count).map(|it| it * 5 + 1).collect()
}

#[test]
fn remote_memory_is_reached_only_by_way_of_its_host_memory() {
    let remote = Remote::builder().devices(2).peers(Link::None).build().unwrap();
    let devices = remote.devices();
    let (host, cpu) = (remote.host(), Device::cpu(0));
    assert_eq!(link(&devices[0], &cpu), Link::None);
    assert_eq!(link(&cpu, &devices[0]), Link::None);
    assert_eq!(link(&devices[0], &devices[1]), Link::None);
    assert_eq!(link(&devices[0], &devices[0]), Link::Direct);
    assert_eq!(link(&devices[0], &host), Link::Direct);
    assert_eq!(link(&cpu, &host), Link::Blocking);
    assert_eq!(devices[0].backend().staging(devices[0].id()), Some(host.clone()));
    assert_eq!(devices[0].to_string(), "remote:0");
    assert_eq!(host.to_string(), "remote_host:0");
    // Up and down through the staging memory.
    let chunk = Chunk::from_vec(&devices[0], numbers(100)).unwrap();
    assert_eq!(chunk.to_vec::<u32>().unwrap(), numbers(100));
    assert_eq!(chunk.slice::<u32>().unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn peers_are_linked_as_the_matrix_says() {
    let built = Remote::builder().devices(3).peers(Link::Indirect).pair(2, 0, Link::None);
    let devices = built.host_link(Link::Indirect).build().unwrap().devices();
    assert_eq!(link(&devices[0], &devices[1]), Link::Indirect);
    assert_eq!(link(&devices[0], &devices[2]), Link::None);
    assert_eq!(link(&devices[2], &devices[0]), Link::None);
    let staging = devices[1].backend().staging(devices[1].id()).unwrap();
    assert_eq!(link(&devices[1], &staging), Link::Indirect);
}

#[test]
fn a_copy_that_leaves_its_allocation_is_an_error() {
    let remote = Remote::builder().build().unwrap();
    let device = &remote.devices()[0];
    let (one, two) = (Chunk::allocate(device, 64).unwrap(), Chunk::allocate(device, 64).unwrap());
    let region = |it: &Chunk, bytes| Region { device: device.id(), address: it.data(), bytes };
    let stream = remote.open_stream(device.id()).unwrap();
    // SAFETY: both chunks live, and the double refuses what leaves them.
    let refused = unsafe { remote.copy(stream, region(&one, 65), region(&two, 65)) }.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::OutOfBounds);
    let gone = region(&one, 64);
    drop(one);
    // SAFETY: the double refuses what is not allocated any more.
    let refused = unsafe { remote.fill(stream, gone, &[1]) }.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::OutOfBounds);
}

#[test]
fn memory_has_a_limit_and_comes_back() {
    let remote = Remote::builder().limit(1000).build().unwrap();
    let devices = remote.devices();
    let first = Chunk::allocate(&devices[0], 600).unwrap();
    assert_eq!(remote.used(devices[0].id()), 600);
    let refused = Chunk::allocate(&devices[0], 401).unwrap_err();
    assert_eq!((refused.kind(), refused.bytes()), (ErrorKind::OutOfMemory, Some(401)));
    let other = Chunk::allocate(&devices[1], 1000).unwrap();
    drop(first);
    assert_eq!(remote.used(devices[0].id()), 0);
    assert_eq!(remote.memory_info(devices[1].id()).unwrap().free, 0);
    Chunk::allocate(&devices[0], 1000).unwrap();
    drop(other);
}

#[test]
fn what_it_is_told_to_fail_fails_once() {
    let remote = Remote::builder().build().unwrap();
    let device = &remote.devices()[0];
    remote.fail_allocation_after(2);
    let outcomes: Vec<bool> = (0..5).map(|_| Chunk::allocate(device, 8).is_ok()).collect();
    assert_eq!(outcomes, [true, true, false, true, true]);
    let mut chunk = Chunk::allocate(device, 8).unwrap();
    remote.fail_copy_after(1);
    let outcomes: Vec<bool> = (0..4).map(|it| fill(&mut chunk, it as u8).is_ok()).collect();
    assert_eq!(outcomes, [true, false, true, true]);
}

#[test]
fn a_scrambled_backend_runs_nothing_while_it_is_held() {
    let scrambled = Scrambled::new(Arc::new(HostBackend::new()), 1).unwrap();
    let devices: Vec<Device> =
        (0..2).map(|it| scrambled.device(DeviceId::new(DeviceKind::CPU, it))).collect();
    let (one, two) = (Stream::new(&devices[0]).unwrap(), Stream::new(&devices[1]).unwrap());
    let source = Chunk::from_vec(&devices[0], numbers(1000)).unwrap();
    let mut middle = Chunk::allocate(&devices[0], 4000).unwrap();
    let mut last = Chunk::allocate(&devices[1], 4000).unwrap();
    scrambled.hold();
    copy_async(&mut middle, &source, &one).unwrap();
    let end = copy_async(&mut last, &middle, &two).unwrap();
    drop((source, middle));
    assert!(!end.wait_timeout(Duration::from_millis(30)).unwrap());
    scrambled.release();
    end.wait().unwrap();
    assert_eq!(last.slice::<u32>().unwrap(), numbers(1000));
}

#[test]
fn a_scrambled_backend_orders_streams_on_the_device() {
    let scrambled = Scrambled::new(Arc::new(HostBackend::new()), 2).unwrap();
    scrambled.slow_down(Duration::from_micros(50));
    let device = scrambled.device(DeviceId::new(DeviceKind::CPU, 0));
    let (one, two) = (Stream::new(&device).unwrap(), Stream::new(&device).unwrap());
    let mut chunk = Chunk::allocate(&device, 4096).unwrap();
    for round in 0..50_u8 {
        for step in 0..5 {
            fill_async(&mut chunk, round ^ step, &one).unwrap();
        }
        let half = &mut chunk.span_of_mut(2048.., DType::U8).unwrap();
        fill_async(half, round, &two).unwrap();
        let bytes = chunk.slice::<u8>().unwrap();
        assert_eq!((bytes[0], bytes[2047], bytes[2048]), (round ^ 4, round ^ 4, round));
    }
}

#[test]
fn what_is_asynchronous_already_is_not_made_so_again() {
    let once = Scrambled::new(Arc::new(HostBackend::new()), 1).unwrap();
    assert_eq!(Scrambled::new(once, 1).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn a_failure_on_the_device_loses_it() {
    let remote = Remote::builder().build().unwrap();
    let scrambled = Scrambled::new(remote.clone(), 1).unwrap();
    let device = scrambled.device(DeviceId::new(Remote::KIND, 0));
    let mut chunk = Chunk::allocate(&device, 64).unwrap();
    remote.fail_copy_after(0);
    let stream = Stream::new(&device).unwrap();
    let failed = fill_async(&mut chunk, 1u8, &stream).unwrap().wait().unwrap_err();
    assert_eq!(failed.reason(), "the double was told to fail");
    let mut other = Chunk::allocate(&device, 64).unwrap();
    assert!(copy(&mut other, &chunk).is_err());
}
