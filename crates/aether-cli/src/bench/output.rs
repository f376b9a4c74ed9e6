//! The rows, in three formats.

use std::io::Write;
use std::time::Duration;

use serde::Serialize;

use super::bandwidth;
use super::case::Case;
use super::driver::Outcome;
use crate::cli::{BenchArgs, Format};
use crate::failure::{Failure, Result};

/// What is printed of one size. The names are those of the columns, which scripts rely on.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    op: &'static str,
    ranks: usize,
    bytes: usize,
    usec: f64,
    /// GB/s.
    algbw: f64,
    /// GB/s.
    busbw: f64,
    /// Absent if nothing was checked.
    pub(super) wrong: Option<u64>,
    dtype: &'static str,
    /// Absent where nothing is reduced.
    redop: Option<&'static str>,
    in_place: bool,
    mode: &'static str,
    memory: &'static str,
    /// Of the operations of one more round, timed one by one: half of them took no longer than this, on
    /// the rank where each took longest.
    p50_usec: f64,
    /// And 99 of 100 no longer than this.
    p99_usec: f64,
}

impl Row {
    pub(super) fn new(case: &Case, args: &BenchArgs, outcome: &Outcome) -> Self {
        let time = outcome.time();
        let algbw = bandwidth::algorithm(case.layout.bytes as u64, time);
        Self {
            op: case.op.name(),
            ranks: case.ranks,
            bytes: case.layout.bytes,
            usec: usec(time),
            algbw,
            busbw: algbw * bandwidth::bus_factor(case.op, case.ranks),
            wrong: outcome.wrong,
            dtype: case.dtype.name(),
            redop: case.op.reduces().then(|| case.reduction.name()),
            in_place: case.in_place,
            mode: args.mode.name(),
            memory: args.memory.name(),
            p50_usec: usec(outcome.percentile(50)),
            p99_usec: usec(outcome.percentile(99)),
        }
    }

    /// As in nccl-tests, what was not checked is not 0.
    fn wrong_text(&self) -> String {
        self.wrong.map_or_else(|| "N/A".to_owned(), |it| it.to_string())
    }
}

/// Prints rows as they come, or all at the end where the format needs it.
pub(super) struct Writer {
    format: Format,
    started: bool,
    kept: Vec<Row>,
}

impl Writer {
    pub(super) fn new(format: Format) -> Self {
        Self { format, started: false, kept: Vec::new() }
    }

    pub(super) fn row(&mut self, out: &mut dyn Write, row: Row) -> Result<()> {
        let first = !std::mem::replace(&mut self.started, true);
        match self.format {
            Format::Csv => {
                if first {
                    writeln!(
                        out,
                        "op,ranks,bytes,usec,algbw,busbw,wrong,dtype,redop,in_place,p50_usec,p99_usec,mode,\
                         memory"
                    )?;
                }
                let Row { op, ranks, bytes, usec, algbw, busbw, dtype, in_place, .. } = row;
                let Row { mode, memory, p50_usec, p99_usec, .. } = row;
                let wrong = row.wrong_text();
                let redop = row.redop.unwrap_or("none");
                writeln!(
                    out,
                    "{op},{ranks},{bytes},{usec:.3},{algbw:.4},{busbw:.4},{wrong},{dtype},{redop},\
                     {in_place},{p50_usec:.3},{p99_usec:.3},{mode},{memory}"
                )?;
            }
            Format::Json => self.kept.push(row),
            Format::Table => {
                if first {
                    writeln!(
                        out,
                        "{:<14} {:>5} {:>12} {:>12} {:>9} {:>9} {:>8}  {:<6} {:<5}",
                        "op", "ranks", "bytes", "usec", "algbw", "busbw", "wrong", "dtype", "redop",
                    )?;
                    writeln!(out, "{:>46} {:>9} {:>9}", "", "(GB/s)", "(GB/s)")?;
                }
                writeln!(
                    out,
                    "{:<14} {:>5} {:>12} {:>12.2} {:>9.2} {:>9.2} {:>8}  {:<6} {:<5}{}",
                    row.op,
                    row.ranks,
                    row.bytes,
                    row.usec,
                    row.algbw,
                    row.busbw,
                    row.wrong_text(),
                    row.dtype,
                    row.redop.unwrap_or("none"),
                    if row.in_place { " in place" } else { "" },
                )?;
            }
        }
        Ok(out.flush()?)
    }

    pub(super) fn finish(self, out: &mut dyn Write) -> Result<()> {
        if self.format == Format::Json {
            let text = serde_json::to_string_pretty(&self.kept)
                .map_err(|it| Failure::new(format!("bench: write JSON: {it}")))?;
            writeln!(out, "{text}")?;
        }
        Ok(())
    }
}

fn usec(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[cfg(test)]
#[path = "output_tests.rs"]
mod tests;
