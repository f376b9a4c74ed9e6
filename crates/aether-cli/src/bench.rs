//! `aether bench`: collectives over a sweep of sizes, timed and checked.

mod bandwidth;
mod case;
mod driver;
mod measure;
mod memory;
mod movers;
mod number;
mod op;
mod output;
mod pattern;
#[cfg(test)]
mod plain;
mod processes;
mod rank;
mod sweep;
mod threads;
mod worker;

use std::io::Write;

use crate::cli::BenchArgs;
use crate::failure::{Failure, Result};
use crate::progress::Progress;
use case::Case;
use driver::{Driver, Plan};
pub(crate) use op::{Op, Selection};
use output::{Row, Writer};
use sweep::sizes;

/// Times and checks what was asked for, prints a row for each size, and fails if any element was
/// wrong.
pub(crate) fn run(args: &BenchArgs, out: &mut dyn Write) -> Result<()> {
    if args.worker {
        return worker::run(args, &mut std::io::stdin().lock(), out);
    }
    sweep(&mut *driver::open(args)?, args, out)
}

fn sweep(driver: &mut dyn Driver, args: &BenchArgs, out: &mut dyn Write) -> Result<()> {
    let sizes: Vec<u64> = sizes(args.min_bytes, args.largest(), args.factor).collect();
    let plan = Plan::of(args);
    let total = args.op.parts().len() * sizes.len();
    let mut progress = Progress::start("bench", "size", total as u64);
    let mut writer = Writer::new(args.format);
    let mut wrong = 0_u64;
    for op in args.op.parts() {
        for size in &sizes {
            let case = Case::new(*op, args, *size)?;
            let row = Row::new(&case, args, &driver.run(&case, plan)?);
            wrong = wrong.saturating_add(row.wrong.unwrap_or(0));
            progress.suspend(|| writer.row(out, row))?;
            progress.advance(&format!("{op} of {} bytes", case.layout.bytes));
        }
    }
    writer.finish(out)?;
    if wrong > 0 {
        return Err(Failure::new(format!("bench: {wrong} elements are wrong")));
    }
    Ok(())
}

#[cfg(test)]
#[path = "bench/tests.rs"]
mod tests;
