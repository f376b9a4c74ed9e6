//! How long an all_reduce takes, by the number of ranks and of bytes: one thread a rank.
//!
//! `cargo run --release -p aether-host --example speed`

use std::time::{Duration, Instant};

use aether_collective::{Group, GroupConfig, GroupSet, ReduceOp};
use aether_core::{Chunk, Device, Result};
use aether_host::Host;

fn main() -> Result<()> {
    println!("ranks      bytes     threads      one caller");
    for ranks in [1usize, 2, 4, 8] {
        for bytes in [16usize, 4 << 10, 256 << 10, 4 << 20, 32 << 20] {
            let calls = (20_000_000 / (bytes + 1000)).clamp(10, 10_000);
            let (threads, one) = (by_threads(ranks, bytes, calls)?, by_one(ranks, bytes, calls)?);
            println!("{ranks:5} {bytes:10} {threads:>11.2?} {one:>15.2?}");
        }
    }
    let (from, mut to) = (vec![1u8; 32 << 20], vec![0u8; 32 << 20]);
    let copies: Vec<Duration> = (0..10)
        .map(|_| {
            let began = Instant::now();
            to.copy_from_slice(std::hint::black_box(&from));
            std::hint::black_box(&mut to);
            began.elapsed()
        })
        .collect();
    println!("a copy of 32 MiB: {:.2?}", copies.iter().min().unwrap_or(&Duration::ZERO));
    Ok(())
}

/// The time of one call: the best of many rounds, some of which have the machine for themselves.
fn best(calls: usize, mut call: impl FnMut() -> Result<()>) -> Result<Duration> {
    let mut best = Duration::MAX;
    let calls = calls.div_ceil(50);
    for _ in 0..200 {
        let began = Instant::now();
        for _ in 0..calls {
            call()?;
        }
        best = best.min(began.elapsed() / calls as u32);
    }
    Ok(best)
}

fn by_threads(ranks: usize, bytes: usize, calls: usize) -> Result<Duration> {
    let devices = Device::cpus(ranks as u32);
    let config = GroupConfig::default().named("by threads");
    let rank = |device: &Device| -> Result<Duration> {
        let mut group = Group::<Host>::join_with(&devices, device, &config)?;
        let mut chunk = Chunk::allocate(device, bytes)?;
        best(calls, || {
            let mut view = chunk.view_mut::<f32, 1>([bytes / 4])?;
            group.all_reduce_in_place(&mut view, ReduceOp::Sum)
        })
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = devices.iter().map(|it| scope.spawn(|| rank(it))).collect();
        let times = threads.into_iter().filter_map(|it| it.join().ok());
        times.collect::<Result<Vec<_>>>().map(|it| it.into_iter().max().unwrap_or_default())
    })
}

fn by_one(ranks: usize, bytes: usize, calls: usize) -> Result<Duration> {
    let devices = Device::cpus(ranks as u32);
    let mut set = GroupSet::<Host>::join(&devices)?;
    let chunks = devices.iter().map(|it| Chunk::allocate(it, bytes));
    let mut chunks = chunks.collect::<Result<Vec<_>>>()?;
    best(calls, || {
        let views = chunks.iter_mut().map(|it| it.view_mut::<f32, 1>([bytes / 4]));
        set.all_reduce_in_place(&mut views.collect::<Result<Vec<_>>>()?, ReduceOp::Sum)
    })
}
