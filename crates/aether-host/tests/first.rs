//! The calls of a group in their simplest forms.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

use std::time::Duration;

use aether_collective::{Group, GroupConfig, GroupSet, ReduceOp};
use aether_core::{Chunk, Device, ErrorKind, View, ViewMut};
use aether_host::Host;

fn data(rank: usize, count: usize) -> Vec<f32> {
    (0..count).map(|it| (it % 97) as f32 + 1000.0 * rank as f32).collect()
}

#[test]
fn one_caller_reduces_slices_of_all_members() {
    let devices = Device::cpus(4);
    let mut set = GroupSet::<Host>::join(&devices).unwrap();
    for count in [0, 1, 7, 1000, 300_001] {
        let mut buffers: Vec<Vec<f32>> = (0..4).map(|rank| data(rank, count)).collect();
        let want: Vec<f32> = (0..count).map(|it| (0..4).map(|r| buffers[r][it]).sum()).collect();
        let mut views: Vec<_> =
            buffers.iter_mut().map(|it| ViewMut::new(it, [count]).unwrap()).collect();
        set.all_reduce_in_place(&mut views, ReduceOp::Sum).unwrap();
        drop(views);
        for buffer in &buffers {
            assert_eq!(buffer, &want);
        }
    }
    set.finish().unwrap();
}

#[test]
fn threads_gather_and_send() {
    let devices = Device::cpus(3);
    std::thread::scope(|scope| {
        for (rank, device) in devices.iter().enumerate() {
            let devices = &devices;
            scope.spawn(move || {
                let mut group = Group::<Host>::join(devices, device).unwrap();
                assert_eq!(group.rank(), rank);
                let src = data(rank, 5);
                let mut dst = vec![0f32; 15];
                group
                    .all_gather(
                        &View::new(&src, [5]).unwrap(),
                        &mut ViewMut::new(&mut dst, [15]).unwrap(),
                    )
                    .unwrap();
                let want: Vec<f32> = (0..3).flat_map(|rank| data(rank, 5)).collect();
                assert_eq!(dst, want);
                let mut got = vec![0f32; 5];
                group
                    .send_recv(
                        &View::new(&src, [5]).unwrap(),
                        (rank + 1) % 3,
                        &mut ViewMut::new(&mut got, [5]).unwrap(),
                        (rank + 2) % 3,
                    )
                    .unwrap();
                assert_eq!(got, data((rank + 2) % 3, 5));
                group.finish().unwrap();
            });
        }
    });
}

#[test]
fn one_thread_drives_members_whose_last_is_waited_for_first() {
    let devices = Device::cpus(8);
    let mut set = GroupSet::<Host>::join(&devices).unwrap();
    let mut chunks: Vec<Chunk> =
        (0..8).map(|rank| Chunk::from_vec(&devices[rank], data(rank, 1000)).unwrap()).collect();
    let mut views: Vec<_> =
        chunks.iter_mut().map(|it| it.view_mut::<f32, 1>([1000]).unwrap()).collect();
    let work = set.all_reduce_in_place_async(&mut views, ReduceOp::Max).unwrap();
    drop(views);
    for part in work.completions().iter().rev() {
        part.wait().unwrap();
    }
    for chunk in &chunks {
        assert_eq!(chunk.slice::<f32>().unwrap(), data(7, 1000));
    }
}

#[test]
fn an_absent_rank_is_named_at_the_deadline() {
    let devices = Device::cpus(2);
    let config = GroupConfig::default().with_deadline(Duration::from_millis(100));
    std::thread::scope(|scope| {
        let absent = scope.spawn(|| {
            let group = Group::<Host>::join_with(&devices, &devices[1], &config).unwrap();
            std::thread::sleep(Duration::from_millis(400));
            drop(group);
        });
        let mut group = Group::<Host>::join_with(&devices, &devices[0], &config).unwrap();
        let mut buffer = [1f32; 4];
        let error = group
            .all_reduce_in_place(&mut ViewMut::new(&mut buffer, [4]).unwrap(), ReduceOp::Sum)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeadlineExceeded, "{error}");
        assert_eq!(error.ranks(), [1]);
        let again = group.barrier().unwrap_err();
        assert_eq!(again.kind(), ErrorKind::GroupBroken, "{again}");
        absent.join().unwrap();
    });
}

#[test]
fn ranks_that_disagree_are_told_so() {
    let devices = Device::cpus(2);
    std::thread::scope(|scope| {
        for (rank, device) in devices.iter().enumerate() {
            let devices = &devices;
            scope.spawn(move || {
                let config = GroupConfig::default().named("disagree");
                let mut group = Group::<Host>::join_with(devices, device, &config).unwrap();
                let mut buffer = vec![1f32; 4 + rank];
                let error = group
                    .all_reduce_in_place(
                        &mut ViewMut::new(&mut buffer, [4 + rank]).unwrap(),
                        ReduceOp::Sum,
                    )
                    .unwrap_err();
                assert_eq!(error.kind(), ErrorKind::RankMismatch, "{error}");
            });
        }
    });
}
