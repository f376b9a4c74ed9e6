//! What a call costs beside the memory that it moves: `cargo bench -p aether-benches`.
#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]
#![allow(clippy::unwrap_used, reason = "a benchmark that fails stops")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use aether::{
    Chunk, Device, GroupSet, Host, PartitionSpec, ReduceOp, Stream, View, copy_async,
    partition_view,
};
use criterion::{Criterion, criterion_group, criterion_main};

fn partition(c: &mut Criterion) {
    let batch = vec![0f32; 64 * 1000];
    let batch = View::new(&batch, [64, 1000]).unwrap();
    let spec = PartitionSpec::new(4);
    c.bench_function("partition_view", |b| {
        b.iter(|| partition_view(black_box(&batch), black_box(spec), black_box(2)).unwrap());
    });
}

fn copies(c: &mut Criterion) {
    let devices = Device::cpus(2);
    let source = Chunk::allocate(&devices[0], 64).unwrap();
    let mut target = Chunk::allocate(&devices[1], 64).unwrap();
    let stream = Stream::new(&devices[0]).unwrap();
    c.bench_function("copy_async of 64 bytes and wait", |b| {
        b.iter(|| copy_async(&mut target, &source, &stream).unwrap().wait().unwrap());
    });
}

fn collectives(c: &mut Criterion) {
    for ranks in [1u32, 2, 8] {
        let devices = Device::cpus(ranks);
        let mut set = GroupSet::<Host>::join(&devices).unwrap();
        let chunk = |it| Chunk::allocate(it, 16).unwrap();
        let mut chunks: Vec<Chunk> = devices.iter().map(chunk).collect();
        let name = format!("all_reduce of 16 bytes, {ranks} ranks, one caller");
        c.bench_function(&name, |b| {
            b.iter(|| {
                let views = chunks.iter_mut().map(|it| it.view_mut::<f32, 1>([4]));
                let mut views: Vec<_> = views.collect::<Result<_, _>>().unwrap();
                set.all_reduce_in_place(&mut views, ReduceOp::Sum).unwrap();
            });
        });
    }
}

/// What it takes to put a collective on its stream, without its work: of no bytes, of which nothing is on
/// record, and of 16 from one chunk to another. The difference is what tracking two ranges takes.
fn enqueue(c: &mut Criterion) {
    let devices = Device::cpus(1);
    let mut set = GroupSet::<Host>::join(&devices).unwrap();
    for count in [0, 4] {
        let source = Chunk::allocate(&devices[0], 4 * count).unwrap();
        let mut target = Chunk::allocate(&devices[0], 4 * count).unwrap();
        let name = format!("enqueue of an all_reduce of {} bytes", 4 * count);
        c.bench_function(&name, |b| {
            b.iter_custom(|calls| {
                let source = [source.view::<f32, 1>([count]).unwrap()];
                let mut target = [target.view_mut::<f32, 1>([count]).unwrap()];
                let mut taken = Duration::ZERO;
                for _ in 0..calls {
                    let began = Instant::now();
                    let work = set.all_reduce_async(&source, &mut target, ReduceOp::Sum).unwrap();
                    taken += began.elapsed();
                    work.wait().unwrap();
                }
                taken
            });
        });
    }
}

criterion_group!(benches, partition, copies, collectives, enqueue);
criterion_main!(benches);
