//! A rendezvous in a directory that all ranks see.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use aether_core::{Error, ErrorKind, Result};

use crate::Rendezvous;

/// A rendezvous in a directory that all ranks see: a file a key. It serves one group; use a fresh
/// directory for each, and remove it afterwards.
#[derive(Debug, Clone)]
pub struct Directory {
    path: PathBuf,
    rank: usize,
    ranks: usize,
}

/// Tells the drafts of one process apart.
static DRAFTS: AtomicU64 = AtomicU64::new(0);

impl Directory {
    /// Rank `rank` of `ranks` in this directory, which is made if need be.
    ///
    /// # Errors
    /// `RankOutOfRange`; `Io` if the directory can't be made.
    pub fn new(path: impl Into<PathBuf>, rank: usize, ranks: usize) -> Result<Self> {
        let path = path.into();
        if rank >= ranks {
            let reason = format!("rank {rank} is out of range: there are {ranks} ranks");
            return Err(Error::new(ErrorKind::RankOutOfRange, "open a rendezvous", reason)
                .on(path.display())
                .about_ranks([rank]));
        }
        let opened = Self { path, rank, ranks };
        match fs::create_dir_all(&opened.path) {
            Ok(()) => Ok(opened),
            Err(error) => Err(opened.failed("open a rendezvous", &opened.path, error)),
        }
    }

    fn failed(&self, attempted: &'static str, path: &Path, error: io::Error) -> Error {
        let reason = format!("rank {}: {error}", self.rank);
        let failure = Error::new(ErrorKind::Io, attempted, reason).on(path.display());
        failure.about_ranks([self.rank]).caused_by(error)
    }
}

impl Rendezvous for Directory {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.ranks
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn post(&self, key: &str, value: &[u8]) -> Result<()> {
        let attempted = "post to a rendezvous";
        // Whole or not at all: written under a name of its own, and linked to the key, which fails if
        // the key is there.
        let (process, serial) = (std::process::id(), DRAFTS.fetch_add(1, Ordering::Relaxed));
        let draft = self.path.join(format!(".{key}.{}.{process}.{serial}", self.rank));
        if let Err(error) = fs::write(&draft, value) {
            // On a full disk, what was written of it would only make it fuller.
            let _ = fs::remove_file(&draft);
            return Err(self.failed(attempted, &draft, error));
        }
        let target = self.path.join(key);
        let linked = fs::hard_link(&draft, &target);
        // The draft has served either way; what is left of it harms nobody.
        let removed = fs::remove_file(&draft);
        match linked {
            Ok(()) => removed.map_err(|error| self.failed(attempted, &draft, error)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let reason = format!(
                    "`{key}` is there already: another rank {} joined, or the directory was used \
                     before",
                    self.rank
                );
                Err(Error::new(ErrorKind::InvalidArgument, attempted, reason)
                    .on(target.display())
                    .about_ranks([self.rank]))
            }
            Err(error) => Err(self.failed(attempted, &target, error)),
        }
    }

    fn look_up(&self, key: &str) -> Result<Option<Vec<u8>>> {
        let path = self.path.join(key);
        match fs::read(&path) {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed("read from a rendezvous", &path, error)),
        }
    }
}
