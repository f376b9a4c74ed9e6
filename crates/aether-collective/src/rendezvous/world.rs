//! All ranks of a program, as its launcher started them.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use aether_core::{Error, ErrorKind, Result};

use super::client::Connection;
use super::environment::{Launch, Launcher, Place, Variables, read};
use super::link::{Link, Spot};
use super::server::Server;
use super::tcp::Tcp;
use super::{Directory, InProcess, Rendezvous};

/// How long ranks wait for the one that serves them, as long as groups do unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(60);

/// All ranks of a program, and which of them this process is, as its launcher says in environment
/// variables: `aether launch`, torchrun, Open MPI, MPICH or Slurm.
///
/// `AETHER_RENDEZVOUS` says where ranks meet, as `tcp://host:port` (with `AETHER_TOKEN`, which all ranks
/// know and nobody else; rank 0 serves it where the launcher doesn't) or as `dir:/path`. Of what
/// launchers say without it, torchrun's `MASTER_ADDR` and `MASTER_PORT` are an address that rank 0
/// serves; the others name a job of one machine, whose ranks meet at rank 0 under that name, seen by no
/// other user, with nothing in the file system. Set `AETHER_TOKEN` where other users of the machine
/// could reach `MASTER_ADDR`.
///
/// ```
/// use aether_collective::{Group, GroupConfig, World};
/// use aether_core::Device;
/// use aether_host::Host;
///
/// # fn main() -> aether_core::Result<()> {
/// if let Some(world) = World::find()? {
///     let at = world.rendezvous("training")?;
///     let group = Group::<Host>::join_at(&*at, &Device::cpu(0), &GroupConfig::default())?;
///     println!("rank {} of {}", group.rank(), group.ranks());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct World(Arc<Inner>);

struct Inner {
    launch: Launch,
    meeting: Meeting,
    /// How many groups of each name were formed.
    groups: Mutex<HashMap<String, u64>>,
}

enum Meeting {
    Alone,
    Directory(std::path::PathBuf),
    Served(Arc<Connection>),
}

impl World {
    /// The world that the environment tells of; none if no launcher started this process. Every call in
    /// a process gives the same world, and the first goes to where the ranks meet.
    ///
    /// # Errors
    /// `Parse`, `InvalidArgument`, `RankOutOfRange` or `Unsupported` for variables that make no sense,
    /// naming them; those of [`Tcp::connect`] where the ranks don't meet.
    pub fn find() -> Result<Option<Self>> {
        static FOUND: Mutex<Option<World>> = Mutex::new(None);
        let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
        if found.is_none() {
            *found = read(&Environment)?.map(|it| Self::of(it, PATIENCE)).transpose()?;
        }
        Ok(found.clone())
    }

    /// As [`World::find`], for a program that makes no sense without a launcher.
    ///
    /// # Errors
    /// Those of `find`, and `InvalidArgument` if no launcher started this process.
    pub fn from_environment() -> Result<Self> {
        Self::find()?.ok_or_else(|| {
            let reason = "no launcher started this process: use aether launch, torchrun, mpirun or \
                          srun, or set AETHER_RANK, AETHER_RANKS and AETHER_RENDEZVOUS";
            Error::new(ErrorKind::InvalidArgument, "find the other ranks", reason)
        })
    }

    /// Goes to where the ranks meet.
    pub(super) fn of(launch: Launch, patience: Duration) -> Result<Self> {
        let meeting = match &launch.place {
            Place::Alone => Meeting::Alone,
            Place::Directory(path) => Meeting::Directory(path.clone()),
            Place::Served(spot, token) => {
                let Launch { rank, ranks, .. } = launch;
                if rank == 0 {
                    serve(spot, token, ranks)?;
                }
                let until = Instant::now() + patience;
                let connection = Connection::open(spot, token, rank, ranks, until)?;
                Meeting::Served(Arc::new(connection))
            }
        };
        Ok(Self(Arc::new(Inner { launch, meeting, groups: Mutex::default() })))
    }

    /// This process's rank.
    pub fn rank(&self) -> usize {
        self.0.launch.rank
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> usize {
        self.0.launch.ranks
    }

    /// This process's rank among those of its machine, for choosing a device.
    pub fn local_rank(&self) -> usize {
        self.0.launch.local_rank
    }

    /// Who started the ranks.
    pub fn launcher(&self) -> Launcher {
        self.0.launch.launcher
    }

    /// Where the ranks form their next group of this name: the first that each asks for is one group, the
    /// second another, and so on.
    ///
    /// # Errors
    /// `Io` if ranks meet at a directory and it can't be made.
    pub fn rendezvous(&self, name: &str) -> Result<Box<dyn Rendezvous>> {
        let number = {
            let mut groups = self.groups();
            let last = groups.entry(name.to_owned()).or_default();
            *last += 1;
            *last
        };
        let (rank, ranks) = (self.rank(), self.ranks());
        Ok(match &self.0.meeting {
            Meeting::Alone => {
                let alone = InProcess::new(1).pop().ok_or_else(|| {
                    Error::new(ErrorKind::Empty, "form a group", "there is no rank")
                })?;
                Box::new(alone)
            }
            Meeting::Directory(path) => {
                // A name may be anything, a file's name only some things.
                let safe = name.bytes().map(|it| match it {
                    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => {
                        char::from(it).to_string()
                    }
                    other => format!("%{other:02x}"),
                });
                let group = format!("{}.{number}", safe.collect::<String>());
                Box::new(Directory::new(path.join(group), rank, ranks)?)
            }
            Meeting::Served(connection) => {
                Box::new(Tcp::of(Arc::clone(connection), format!("{name}.{number}")))
            }
        })
    }

    fn groups(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.0.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Launch { launcher, rank, ranks, .. } = &self.0.launch;
        write!(f, "World(rank {rank} of {ranks}, by {launcher})")
    }
}

/// Serves the ranks if nobody does: as long as the process lives, because others may still read what was
/// posted when this rank has gone on.
fn serve(spot: &Spot, token: &[u8], ranks: usize) -> Result<()> {
    static SERVERS: Mutex<Vec<Server>> = Mutex::new(Vec::new());
    if Link::open(spot).is_ok() {
        return Ok(());
    }
    let server = Server::open(spot, token, ranks).map_err(|error| error.about_ranks([0]))?;
    SERVERS.lock().unwrap_or_else(PoisonError::into_inner).push(server);
    Ok(())
}

/// The variables of this process.
struct Environment;

impl Variables for Environment {
    fn get(&self, name: &'static str) -> Option<OsString> {
        std::env::var_os(name)
    }

    fn hydra(&self) -> Option<String> {
        // Ranks may be below a shell, or a debugger, that Hydra started.
        let mut process = std::process::id();
        for _ in 0..64 {
            let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
            // The name is in parentheses and may hold any, so what follows begins after the last.
            let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
            let fields: Vec<&str> = rest.split_whitespace().collect();
            // Its number may have been another's before; when it began tells them apart.
            let (parent, began) = (fields.get(1)?.parse().ok()?, fields.get(19)?);
            // The kernel keeps 15 bytes of the name.
            if name.starts_with("hydra_pmi_prox") {
                return Some(format!("{process}.{began}"));
            }
            process = parent;
        }
        None
    }
}

#[cfg(test)]
#[path = "world_tests.rs"]
mod tests;
