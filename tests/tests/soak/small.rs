//! Many small calls: what a process holds grows neither in memory nor in handles.

use std::time::{Duration, Instant};

use aether::{
    AsSpan, AsSpanMut, Chunk, Device, Directory, Group, GroupConfig, Host, ReduceOp, Request,
};

use crate::usage::Held;
use crate::worker::{Part, Role, Worker, say};

const RANKS: usize = 2;

/// How many calls a process makes before it is measured: what is made once is there then.
const WARM: u64 = 2_000;

/// How much more memory a process may hold at the end, in KiB: allocators keep some.
const GROWTH: u64 = 4 << 10;

pub(crate) fn in_threads_shortly() -> Result<(), String> {
    in_threads(20_000).map(drop)
}

pub(crate) fn in_processes_shortly() -> Result<(), String> {
    in_processes(20_000).map(drop)
}

/// So many calls between threads of one process, in words.
pub(crate) fn in_threads(calls: u64) -> Result<String, String> {
    let part = Part {
        role: Role::SmallInThreads,
        rank: 0,
        ranks: RANKS,
        number: calls,
        place: "-".into(),
    };
    let mut worker = Worker::start(&part)?;
    let (_, held) = worker.expect("held", patience(calls))?;
    worker.end(Duration::from_secs(30))?;
    Ok(format!("threads: {held}"))
}

/// So many calls between processes, in words.
pub(crate) fn in_processes(calls: u64) -> Result<String, String> {
    let place = std::env::temp_dir().join(format!("aether-soak-{}-small", std::process::id()));
    let outcome = play_all(calls, &place.display().to_string());
    drop(std::fs::remove_dir_all(&place));
    outcome
}

fn play_all(calls: u64, place: &str) -> Result<String, String> {
    let part = |rank| Part {
        role: Role::SmallInProcesses,
        rank,
        ranks: RANKS,
        number: calls,
        place: place.to_owned(),
    };
    let workers = (0..RANKS).map(|rank| Worker::start(&part(rank)));
    let mut workers = workers.collect::<Result<Vec<_>, String>>()?;
    let mut words = Vec::new();
    for worker in &mut workers {
        let (_, held) = worker.expect("held", patience(calls))?;
        words.push(format!("processes, rank {}: {held}", worker.rank));
    }
    workers.into_iter().try_for_each(|it| it.end(Duration::from_secs(30)))?;
    Ok(words.join("\n"))
}

fn patience(calls: u64) -> Duration {
    Duration::from_secs(60) + Duration::from_micros(100) * u32::try_from(calls).unwrap_or(u32::MAX)
}

/// All ranks in this process.
pub(crate) fn play_in_threads(part: &Part) -> Result<(), String> {
    let devices = Device::cpus(part.ranks as u32);
    let config = GroupConfig::default();
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..part.ranks)
            .map(|rank| {
                let (devices, config) = (&devices, &config);
                scope.spawn(move || {
                    let joined = Group::<Host>::join_with(devices, &devices[rank], config);
                    let mut group = joined.map_err(|error| format!("{error:?}"))?;
                    calls(&mut group, WARM)?;
                    calls(&mut group, part.number)
                })
            })
            .collect();
        let joined = Group::<Host>::join_with(&devices, &devices[0], &config);
        let mut group = joined.map_err(|error| format!("{error:?}"))?;
        measured(&mut group, part.number)?;
        let join =
            |it: std::thread::ScopedJoinHandle<'_, _>| it.join().map_err(|_| "a rank panicked")?;
        others.into_iter().try_for_each(join)
    })
}

/// One rank in this process.
pub(crate) fn play_in_processes(part: &Part) -> Result<(), String> {
    let joined = Directory::new(&part.place, part.rank, part.ranks).and_then(|at| {
        Group::<Host>::join_at(&at, &Device::cpu(part.rank as u32), &GroupConfig::default())
    });
    let mut group = joined.map_err(|error| format!("can't join: {error:?}"))?;
    measured(&mut group, part.number)?;
    group.finish().map_err(|error| format!("{error:?}"))
}

/// Makes the calls, and says what was held before and after.
fn measured(group: &mut Group<Host>, number: u64) -> Result<(), String> {
    calls(group, WARM)?;
    let (before, since) = (Held::now()?, Instant::now());
    calls(group, number)?;
    let (after, took) = (Held::now()?, since.elapsed());
    let each = took.as_secs_f64() * 1e6 / number.max(1) as f64;
    say(&format!("held {before:?} before and {after:?} after {number} calls of {each:.2} µs"));
    let grew = after.kibibytes.saturating_sub(before.kibibytes);
    if grew > GROWTH || after.handles != before.handles {
        return Err(format!("{number} calls grew {before:?} to {after:?}"));
    }
    Ok(())
}

/// Calls of 1 to 16 elements, on memory of a chunk and on borrowed memory, with their results.
fn calls(group: &mut Group<Host>, number: u64) -> Result<(), String> {
    let (rank, ranks) = (group.rank() as u64, group.ranks() as u64);
    let mut chunk =
        Chunk::from_vec(group.device(), vec![0u64; 16]).map_err(|it| format!("{it:?}"))?;
    let source = [rank; 16];
    let mut failed = Ok(());
    for call in 0..number {
        let count = 1 + call as usize % 16;
        let called = match call % 2 {
            0 => chunk.span_of_mut(..count * 8, aether::DType::U64).and_then(|dst| {
                let src = Some(source[..count].span()?);
                group.run(Request::AllReduce { src, dst, op: ReduceOp::Sum })
            }),
            _ => {
                let mut target = [0u64; 16];
                target[..count].copy_from_slice(&source[..count]);
                let called = target[..count].span_mut().and_then(|dst| {
                    group.run(Request::AllReduce { src: None, dst, op: ReduceOp::Sum })
                });
                if called.is_ok() && target[count - 1] != ranks * (ranks - 1) / 2 {
                    return Err(format!("call {call} gave {target:?}"));
                }
                called
            }
        };
        if let Err(error) = called {
            failed = Err(format!("call {call}: {error:?}"));
            break;
        }
    }
    failed
}
