//! Aether's own ranks in processes, by `aether bench --mode processes`, as a contender.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::build;
use crate::cell::Cell;
use crate::contender::{Contender, Took};
use crate::failure::{Failure, Result};

/// What the ranks' buffers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffers {
    /// Chunks of the heap that the processes share.
    Heap,
    /// Vectors of each process, which are staged.
    Ordinary,
}

/// A program that is started anew for each turn.
pub struct Processes {
    program: PathBuf,
    buffers: Buffers,
    ranks: usize,
}

impl Buffers {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Heap, Self::Ordinary];

    /// The contender's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Heap => "aether processes",
            Self::Ordinary => "aether processes, ordinary memory",
        }
    }

    fn argument(self) -> &'static str {
        match self {
            Self::Heap => "chunks",
            Self::Ordinary => "ordinary",
        }
    }
}

impl Processes {
    /// Builds the program. The text says why it can't be.
    ///
    /// # Errors
    /// If it doesn't build.
    pub fn build() -> Result<Result<PathBuf, String>> {
        build::aether()
    }

    /// So many ranks, if the program has such a mode; the text says why it hasn't.
    pub fn new(program: &Path, buffers: Buffers, ranks: usize) -> Result<Self, String> {
        let processes = Self { program: program.to_owned(), buffers, ranks };
        let cell = Cell { op: crate::cell::Op::AllReduce, ranks, bytes: 8 * ranks };
        match processes.run(&cell, 1, 1) {
            Ok(_) => Ok(processes),
            Err(why) => Err(format!("{} with {ranks} ranks: {why}", buffers.name())),
        }
    }

    fn run(&self, cell: &Cell, warmup: u32, iterations: u32) -> Result<Took> {
        let mut command = Command::new(&self.program);
        command.args([
            "bench",
            cell.op.name(),
            "--mode",
            "processes",
            "--format",
            "csv",
            "-c",
            "0",
        ]);
        command.args(["--memory", self.buffers.argument(), "--ranks", &cell.ranks.to_string()]);
        command.args(["-b", &cell.bytes.to_string(), "-e", &cell.bytes.to_string()]);
        command.args(["-n", &iterations.to_string(), "-w", &warmup.to_string()]);
        let output = command
            .stdin(Stdio::null())
            .output()
            .map_err(|error| Failure::new(format!("start aether: {error}")))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.lines().find(|line| !line.trim().is_empty());
            return Err(Failure::new(said.unwrap_or("aether ended without a word").trim()));
        }
        read(&output.stdout)
    }
}

impl Contender for Processes {
    fn name(&self) -> &str {
        self.buffers.name()
    }

    fn takes(&self, cell: &Cell) -> bool {
        cell.ranks == self.ranks
    }

    /// The program times several rounds and tells the best, so that a fifth of the operations in each makes
    /// a turn as long as anybody's.
    fn sample(&mut self, cell: &Cell, warmup: u32, iterations: u32) -> Result<Took> {
        self.run(cell, warmup, iterations.div_ceil(5))
    }
}

/// The microseconds of the one row.
fn read(text: &[u8]) -> Result<Took> {
    let mut rows = csv::Reader::from_reader(text);
    let wrong = |why: &str| Failure::new(format!("aether's table has {why}"));
    let head = rows.headers().map_err(|error| wrong(&error.to_string()))?;
    let column = head.iter().position(|it| it == "usec").ok_or_else(|| wrong("no column usec"))?;
    let row = rows.records().next().ok_or_else(|| wrong("no row"))?;
    let row = row.map_err(|error| wrong(&error.to_string()))?;
    match row.get(column).map(str::parse::<f64>) {
        Some(Ok(micros)) if micros > 0.0 && micros.is_finite() => Ok(Took::micros(micros)),
        _ => Err(wrong("no time")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_found_by_the_name_of_its_column() {
        let text = b"op,ranks,bytes,usec,algbw\nall_reduce,2,16,1.250,0.0\n";
        assert_eq!(read(text).unwrap(), Took::micros(1.25));
    }

    #[test]
    fn a_table_without_a_time_is_an_error() {
        for (text, why) in [
            ("", "no column usec"),
            ("op,usec\n", "no row"),
            ("op,usec\nall_reduce,soon\n", "no time"),
            ("op,usec\nall_reduce,0\n", "no time"),
        ] {
            assert_eq!(
                read(text.as_bytes()).unwrap_err().to_string(),
                format!("aether's table has {why}")
            );
        }
    }

    #[test]
    fn a_program_without_the_mode_is_skipped_with_what_it_says() {
        let why = Processes::new(Path::new("false"), Buffers::Heap, 2).err().unwrap();
        assert_eq!(why, "aether processes with 2 ranks: aether ended without a word");
    }
}
