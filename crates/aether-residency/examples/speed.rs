//! How long replicating, scattering, gathering, copying and staging take, as a multiple of a copy of the
//! same bytes by plain threads: both take turns in one process, and the medians of their ratios count.
//!
//! `cargo run --release -p aether-residency --example speed`

use std::sync::Barrier;
use std::time::{Duration, Instant};

use aether_core::{AsSpan, AsSpanMut, Chunk, Device, Result};
use aether_residency::{PartitionedArray, ReplicaSet, StreamTransport, Transport};

/// How often both have their turn.
const TURNS: usize = 21;

fn main() -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, |it| it.get());
    println!("the time of each, as a multiple of memcpy by 1 and by {cores} threads");
    println!("{:<14} {:>10} {:>10} {:>10} {:>12}", "what", "bytes", "by 1", "by all", "time");
    for bytes in [64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20] {
        copy(bytes, cores)?;
        for replicas in [2, 4, 8] {
            if bytes * replicas <= 256 << 20 {
                replicate(bytes, replicas, cores)?;
            }
        }
        for ranks in [2, 4] {
            partition(bytes, ranks, cores)?;
        }
        stage(bytes, cores)?;
    }
    Ok(())
}

fn copy(bytes: usize, cores: usize) -> Result<()> {
    let [host, other] = [Device::cpu(0), Device::cpu(1)];
    let from = Chunk::from_vec(&host, numbers(bytes))?;
    let mut to = Chunk::from_vec(&other, numbers(bytes))?;
    report("copy", bytes, 1, cores, || aether_core::copy(&mut to, &from))
}

fn replicate(bytes: usize, replicas: usize, cores: usize) -> Result<()> {
    let source = Chunk::from_vec(&Device::cpu(0), numbers(bytes))?;
    let mut set = ReplicaSet::new(&Device::cpus(replicas as u32), bytes)?;
    set.broadcast(&source)?;
    let name = format!("replicate {replicas}");
    report(&name, bytes, replicas, cores, || set.broadcast(&source))
}

fn partition(bytes: usize, ranks: usize, cores: usize) -> Result<()> {
    let shape = [16, bytes / 64];
    let mut array = PartitionedArray::<f32, 2>::new(&Device::cpus(ranks as u32), shape)?;
    array.scatter()?;
    report(&format!("scatter {ranks}"), bytes, 1, cores, || array.scatter())?;
    report(&format!("gather {ranks}"), bytes, 1, cores, || array.gather())
}

/// Two legs of memory to memory: a leg is a copy by one thread, so the first column is the one to see.
fn stage(bytes: usize, cores: usize) -> Result<()> {
    let from = Chunk::from_vec(&Device::cpu(1), numbers(bytes))?;
    let mut to = Chunk::from_vec(&Device::cpu(2), numbers(bytes))?;
    let transport = StreamTransport::new().staging_always();
    let mut staged = || transport.copy(to.span_mut()?, from.span()?);
    report("stage", bytes, 1, cores, &mut staged)
}

/// Prints the median of the ratios to a copy by one thread and by all.
fn report(
    name: &str,
    bytes: usize,
    times: usize,
    cores: usize,
    mut ours: impl FnMut() -> Result<()>,
) -> Result<()> {
    let from = numbers(bytes);
    let mut to: Vec<_> = (0..times).map(|_| numbers(bytes)).collect();
    let calls = ((4 << 20) / (bytes * times)).clamp(1, 32);
    let mut ratios: [Vec<f64>; 2] = [Vec::new(), Vec::new()];
    let mut all = Vec::new();
    ours()?;
    for _ in 0..TURNS {
        let began = Instant::now();
        for _ in 0..calls {
            ours()?;
        }
        let own = began.elapsed() / calls as u32;
        all.push(own.as_secs_f64());
        for (threads, ratios) in [1, cores].into_iter().zip(&mut ratios) {
            let limit = plain(&from, &mut to, threads, calls);
            ratios.push(own.as_secs_f64() / limit.as_secs_f64());
        }
    }
    let [one, many] = ratios.map(median);
    let time = Duration::from_secs_f64(median(all));
    println!("{name:<14} {bytes:>10} {one:>10.2} {many:>10.2} {time:>12.2?}");
    Ok(())
}

/// Copies the source to every destination by so many threads, each its part of all of them, which
/// begin at the same time: the waking of threads isn't counted.
fn plain(from: &[u8], to: &mut [Vec<u8>], threads: usize, calls: usize) -> Duration {
    let part = from.len().div_ceil(threads);
    let mut shares: Vec<Vec<_>> = (0..threads).map(|_| Vec::new()).collect();
    for to in to {
        for ((to, from), share) in to.chunks_mut(part).zip(from.chunks(part)).zip(&mut shares) {
            share.push((to, from));
        }
    }
    let barrier = Barrier::new(threads);
    let run = |share: &mut Vec<(&mut [u8], &[u8])>| {
        barrier.wait();
        let began = Instant::now();
        for _ in 0..calls {
            for (to, from) in share.iter_mut() {
                to.copy_from_slice(std::hint::black_box(from));
                std::hint::black_box(to);
            }
        }
        began.elapsed() / calls as u32
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = shares.iter_mut().map(|share| scope.spawn(|| run(share))).collect();
        others.into_iter().filter_map(|it| it.join().ok()).max().unwrap_or_default()
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn numbers(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|it| (it % 251) as u8).collect()
}
