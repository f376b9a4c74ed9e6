//! Other libraries as contenders, each in processes of its own that live as long as their turns last.
//!
//! What is not installed is left out and told in words; it is no failure.

mod build;
mod process;
mod processes;

use std::path::{Path, PathBuf};
use std::process::Command;

use process::Process;
pub use processes::{Buffers, Processes};

use crate::cell::{Cell, Op};
use crate::contender::{Contender, Took};
use crate::failure::Result;

/// One library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// Through `mpicc.openmpi` and `mpirun.openmpi`.
    OpenMpi,
    /// Through `mpicc.mpich` and `mpirun.mpich`.
    Mpich,
    /// The crate, which does all_reduce between the threads of one process.
    Burn,
}

impl Library {
    /// All, in the order of the tables.
    pub const ALL: [Self; 3] = [Self::OpenMpi, Self::Mpich, Self::Burn];

    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OpenMpi => "Open MPI",
            Self::Mpich => "MPICH",
            Self::Burn => "burn-collective",
        }
    }

    /// Why it has no turn between so many ranks, if it hasn't.
    pub fn refuses(self, ranks: usize, cores: usize) -> Option<String> {
        let name = self.name();
        (self == Self::Mpich && ranks > cores).then(|| {
            format!(
                "{name} with {ranks} ranks: it spins while it waits, so that one call takes tens of \
                 milliseconds where ranks outnumber the {cores} cores"
            )
        })
    }

    /// Builds the library's program in `directory`. The text says why it can't be.
    ///
    /// # Errors
    /// A compiler that is there and fails.
    pub fn build(self, directory: &Path) -> Result<Result<PathBuf, String>> {
        match self {
            Self::OpenMpi => build::mpi(self, "mpicc.openmpi", directory),
            Self::Mpich => build::mpi(self, "mpicc.mpich", directory),
            Self::Burn => build::burn(directory),
        }
    }

    /// How the program that was built is started.
    fn command(self, program: &Path, ranks: usize, most: usize) -> Command {
        let mpirun = |name: &str, options: &[&str]| {
            let mut command = Command::new(name);
            command.args(options).args(["-n", &ranks.to_string()]).arg(program);
            // It refuses to be run by root otherwise, and in a container one is nobody else.
            command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
            command
        };
        let mut command = match self {
            Self::OpenMpi => mpirun("mpirun.openmpi", &["--oversubscribe"]),
            Self::Mpich => mpirun("mpirun.mpich", &[]),
            Self::Burn => {
                let mut command = Command::new(program);
                command.arg(ranks.to_string());
                command
            }
        };
        command.arg(most.to_string());
        command
    }
}

/// A library's ranks, running.
pub struct Peer {
    library: Library,
    ranks: usize,
    process: Process,
}

impl Peer {
    /// Starts the program between so many ranks, for arrays of at most `most` bytes.
    ///
    /// # Errors
    /// If it doesn't come up.
    pub fn start(library: Library, program: &Path, ranks: usize, most: usize) -> Result<Self> {
        let process = Process::start(library.name(), library.command(program, ranks, most))?;
        Ok(Self { library, ranks, process })
    }

    /// What the library calls itself.
    pub fn version(&self) -> &str {
        self.process.version()
    }
}

impl Contender for Peer {
    fn name(&self) -> &str {
        self.library.name()
    }

    fn takes(&self, cell: &Cell) -> bool {
        cell.ranks == self.ranks && (self.library != Library::Burn || cell.op == Op::AllReduce)
    }

    fn sample(&mut self, cell: &Cell, warmup: u32, iterations: u32) -> Result<Took> {
        self.process.ask(&format!("{} {} {warmup} {iterations}", cell.op, cell.bytes))
    }
}
