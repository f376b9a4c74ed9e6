//! The program behind `cargo xtask bench`.

use std::process::ExitCode;
use std::time::Duration;

use aether::Device;
use aether_benches::aether::{Set, Threads};
use aether_benches::cell::{Cell, Op, sizes};
use aether_benches::contender::Contender;
use aether_benches::failure::Result;
use aether_benches::limit::{Limit, Stores};
use aether_benches::memory::Memory;
use aether_benches::turns::{Plan, measure};
use clap::Parser;

/// Measures aether and the limit of this machine's memory in turns.
#[derive(Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
struct Cli {
    /// Measure only cells whose name holds one of these, such as `all_reduce` or `ranks 2 bytes 16`.
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Measure between so many ranks.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "2,4,8")]
    ranks: Vec<usize>,
    /// Measure arrays of at most so many bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20)]
    max: usize,
    /// Give each contender so many turns.
    #[arg(long, value_name = "N", default_value_t = 15)]
    turns: usize,
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("bench: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<()> {
    let plan = Plan { turns: cli.turns, span: Duration::from_millis(4) };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for &ranks in &cli.ranks {
        let devices = Device::cpus(ranks as u32);
        let memory = Memory::new(&devices, cli.max)?;
        std::thread::scope(|scope| {
            let mut contenders: Vec<Box<dyn Contender + '_>> = vec![
                Box::new(Limit::new(&memory, cores, Stores::Ordinary)),
                Box::new(Threads::new(scope, &memory, &devices)?),
                Box::new(Limit::new(&memory, cores, Stores::NonTemporal)),
                Box::new(Set::new(&memory, &devices)?),
            ];
            println!(
                "{:<16}{:>6}{:>10}{:>12}{:>12}{:>10}{:>12}{:>12}",
                "op",
                "ranks",
                "bytes",
                "limit us",
                "aether us",
                "of limit",
                "GroupSet us",
                "of threads"
            );
            for op in Op::ALL {
                for bytes in sizes(ranks, cli.max) {
                    let cell = Cell { op, ranks, bytes };
                    let name = cell.to_string();
                    if !cli.only.is_empty() && !cli.only.iter().any(|it| name.contains(it)) {
                        continue;
                    }
                    let row = measure(&cell, &mut contenders, plan)?;
                    let number = |it: Option<f64>| {
                        it.map_or_else(|| "-".to_owned(), |it| format!("{it:.3}"))
                    };
                    let (limit, threads, set) =
                        (row.limit(), row.of(Threads::NAME), row.of(Set::NAME));
                    let ratio = limit.zip(threads).and_then(|(l, t)| t.ratio_to(l));
                    let of_threads = threads.zip(set).and_then(|(t, s)| s.ratio_to(t));
                    println!(
                        "{op:<16}{ranks:>6}{bytes:>10}{:>12}{:>12}{:>10}{:>12}{:>12}",
                        number(limit.map(|it| it.median())),
                        number(threads.map(|it| it.median())),
                        number(ratio),
                        number(set.map(|it| it.median())),
                        number(of_threads),
                    );
                }
            }
            Ok::<_, aether_benches::failure::Failure>(())
        })?;
    }
    Ok(())
}
