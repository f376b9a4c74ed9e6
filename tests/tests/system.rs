//! Residency and collectives on the same memory, at once: everything is asynchronous, driven from one
//! thread on watched devices, and nothing may race.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

use std::sync::Arc;
use std::time::Duration;

use aether::{
    Chunk, Completion, Device, DeviceKind, GroupConfig, GroupSet, Host, HostBackend, PartitionSpec,
    PartitionedArray, ReduceOp, ReplicaSet, Stream, StreamTransport, View, copy_async,
    partition_view,
};
use aether_conformance::checked::Checked;
use aether_conformance::doubles::Scrambled;

/// Host devices behind real asynchronous streams, under the detector.
fn watched(ranks: u32, seed: u64) -> (Arc<Checked>, Vec<Device>) {
    let scrambled = Scrambled::new(Arc::new(HostBackend::new()), seed).unwrap();
    let checked = Checked::around(scrambled);
    let devices = checked.devices(DeviceKind::CPU, ranks);
    (checked, devices)
}

fn numbers(rank: usize, count: usize) -> Vec<f32> {
    (0..count).map(|at| (at % 31) as f32 + 64.0 * rank as f32).collect()
}

#[test]
fn a_training_step_without_one_wait_in_between_is_ordered() {
    for seed in 0..5 {
        let (checked, devices) = watched(4, seed);
        let config = GroupConfig::default().with_deadline(Duration::from_secs(30));
        let mut members = GroupSet::<Host>::join_with(&devices, &config).unwrap();
        let streams: Vec<Stream> = devices.iter().map(|it| Stream::new(it).unwrap()).collect();
        let count = 1003;
        let source = Chunk::from_vec(&devices[0], numbers(9, count)).unwrap();
        let mut weights = ReplicaSet::new(&devices, count * 4).unwrap();
        let mut gradients: Vec<Chunk> =
            devices.iter().map(|it| Chunk::allocate(it, count * 4).unwrap()).collect();
        let mut last: Option<Completion> = None;
        for step in 0..3 {
            // Weights to everybody, each replica copied to its gradient, the gradients summed, and the
            // sum copied back over the weights: each reads what the one before writes.
            if step == 0 {
                weights.broadcast_async(&source, &streams).unwrap();
            }
            for (rank, gradient) in gradients.iter_mut().enumerate() {
                copy_async(gradient, weights.chunk(rank).unwrap(), &streams[rank]).unwrap();
            }
            let views = gradients.iter_mut().map(|it| it.view_mut::<f32, 1>([count]).unwrap());
            let mut views: Vec<_> = views.collect();
            drop(members.all_reduce_in_place_async(&mut views, ReduceOp::Sum).unwrap());
            drop(views);
            for (rank, gradient) in gradients.iter().enumerate() {
                // On another stream than the one that wrote it.
                let stream = &streams[(rank + 1) % 4];
                last =
                    Some(copy_async(weights.chunk_mut(rank).unwrap(), gradient, stream).unwrap());
            }
        }
        drop(last);
        let want: Vec<f32> = numbers(9, count).iter().map(|it| it * 64.0).collect();
        for rank in (0..4).rev() {
            let found = weights.chunk(rank).unwrap().slice::<f32>().unwrap();
            // Not `assert_eq`: a thousand numbers help nobody.
            assert!(
                found == want,
                "seed {seed}, rank {rank}: {:?}",
                found.iter().zip(&want).next()
            );
        }
        weights.ensure_identical().unwrap();
        drop((weights, gradients, source));
        members.finish().unwrap();
        checked.verdict().unwrap();
    }
}

#[test]
fn a_batch_is_scattered_summed_by_blocks_and_gathered() {
    let devices = Device::cpus(3);
    let samples = 100;
    let mut array = PartitionedArray::<f32, 2>::new(&devices, [2, samples]).unwrap();
    let batch = numbers(1, 2 * samples);
    array.host_mut().unwrap().as_slice_mut().unwrap().copy_from_slice(&batch);
    array.scatter().unwrap();
    let whole = View::new(&batch, [2, samples]).unwrap();
    let spec = PartitionSpec::new(3);
    // Each rank's sum of its block, over a view of the batch and over its own block.
    let mut sums = [0f32; 3];
    for (rank, sum) in sums.iter_mut().enumerate() {
        let sliced = partition_view(&whole, spec, rank).unwrap().pack().unwrap();
        assert!(array.block(rank).unwrap().pack().unwrap() == sliced);
        *sum = sliced.iter().sum();
    }
    let mut members = GroupSet::<Host>::join(&devices).unwrap();
    let mut each: Vec<Chunk> =
        (0..3).map(|rank| Chunk::from_vec(&devices[rank], vec![sums[rank]]).unwrap()).collect();
    let views = each.iter_mut().map(|it| it.view_mut::<f32, 1>([1]).unwrap());
    members.all_reduce_in_place(&mut views.collect::<Vec<_>>(), ReduceOp::Sum).unwrap();
    let total: f32 = batch.iter().sum();
    assert!(each.iter().all(|it| it.slice::<f32>().unwrap() == [total]));
    array.host_mut().unwrap().as_slice_mut().unwrap().fill(0.0);
    array.gather().unwrap();
    assert!(array.host().unwrap().as_slice().unwrap() == batch);
}

#[test]
fn staging_always_gives_what_the_direct_way_gives() {
    let devices = Device::cpus(2);
    let source = Chunk::from_vec(&devices[0], numbers(3, 10_007)).unwrap();
    let transport = StreamTransport::new().staging_always();
    let mut staged = ReplicaSet::with_transport(&devices, source.size(), transport).unwrap();
    let mut direct = ReplicaSet::new(&devices, source.size()).unwrap();
    staged.broadcast(&source).unwrap();
    direct.broadcast(&source).unwrap();
    for rank in 0..2 {
        let (one, two) = (staged.chunk(rank).unwrap(), direct.chunk(rank).unwrap());
        assert!(one.slice::<f32>().unwrap() == two.slice::<f32>().unwrap());
    }
}
