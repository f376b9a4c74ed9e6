//! What launchers tell the processes that they start, in environment variables.
//!
//! One launcher counts: the first of these of which the rank's variable is set. aether's own come
//! first, so that they can be set within any other's; those that start processes which start ranks come
//! before those that may have started them.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use aether_core::{Error, ErrorKind, Result};

use super::link::Spot;

/// Whose variables a process found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Launcher {
    /// `AETHER_RANK` and `AETHER_RANKS`, as `aether launch` sets them.
    Aether,
    /// `PMI_RANK` and `PMI_SIZE`, below a process of Hydra, MPICH's launcher.
    Mpich,
    /// `OMPI_COMM_WORLD_RANK` and `OMPI_COMM_WORLD_SIZE`.
    OpenMpi,
    /// `SLURM_PROCID` and `SLURM_STEP_NUM_TASKS` of a step that `srun` started.
    Slurm,
    /// `RANK`, `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT`.
    Torchrun,
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Aether => "aether launch",
            Self::Mpich => "MPICH",
            Self::OpenMpi => "Open MPI",
            Self::Slurm => "Slurm",
            Self::Torchrun => "torchrun",
        })
    }
}

/// What the variables say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Launch {
    pub(super) launcher: Launcher,
    pub(super) rank: usize,
    pub(super) ranks: usize,
    /// The rank among those of this machine.
    pub(super) local_rank: usize,
    pub(super) place: Place,
}

/// Where the ranks meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// There is one rank only.
    Alone,
    /// At a directory that all see.
    Directory(PathBuf),
    /// At a server, with this token. Rank 0 serves where nobody else does.
    Served(Spot, Vec<u8>),
}

/// Where variables come from: the environment, or a test.
pub(super) trait Variables {
    fn get(&self, name: &'static str) -> Option<OsString>;

    /// A number that all processes of one Hydra on one machine have, and no others; none where there
    /// is no Hydra above this process.
    fn hydra(&self) -> Option<String>;
}

const READ: &str = "read a launcher's variables";

/// Where ranks are told to meet, whoever started them: `tcp://host:port` or `dir:/path`.
const RENDEZVOUS: &str = "AETHER_RENDEZVOUS";
const TOKEN: &str = "AETHER_TOKEN";

/// Reads the variables; none where no launcher set any.
///
/// # Errors
/// `Parse`, `InvalidArgument`, `RankOutOfRange` or `Unsupported`, naming the variable.
pub(super) fn read(from: &dyn Variables) -> Result<Option<Launch>> {
    let reader = Reader(from);
    let found = match reader.seat()? {
        Some(found) => found,
        None if reader.is_set(RENDEZVOUS) => {
            let reason = format!(
                "{RENDEZVOUS} is set, and no variable says which rank this process is (AETHER_RANK)"
            );
            return Err(Error::new(ErrorKind::InvalidArgument, READ, reason));
        }
        None => return Ok(None),
    };
    let place = match reader.told_place()? {
        _ if found.ranks == 1 => Place::Alone,
        Some(place) => place,
        None => reader.place_of(&found)?,
    };
    let Seat { launcher, rank, ranks, local_rank, .. } = found;
    Ok(Some(Launch { launcher, rank, ranks, local_rank, place }))
}

struct Reader<'a>(&'a dyn Variables);

/// Who this process is.
struct Seat {
    launcher: Launcher,
    rank: usize,
    ranks: usize,
    local_rank: usize,
    /// How many ranks are on this machine, where that is told.
    local_ranks: Option<usize>,
    /// The variable that tells it.
    local_ranks_name: &'static str,
}

/// The names of one launcher's variables.
struct Names {
    launcher: Launcher,
    rank: &'static str,
    ranks: &'static str,
    local_rank: &'static str,
    local_ranks: &'static str,
}

const AETHER: Names = Names {
    launcher: Launcher::Aether,
    rank: "AETHER_RANK",
    ranks: "AETHER_RANKS",
    local_rank: "AETHER_LOCAL_RANK",
    local_ranks: "AETHER_LOCAL_RANKS",
};
const TORCHRUN: Names = Names {
    launcher: Launcher::Torchrun,
    rank: "RANK",
    ranks: "WORLD_SIZE",
    local_rank: "LOCAL_RANK",
    local_ranks: "LOCAL_WORLD_SIZE",
};
const OPEN_MPI: Names = Names {
    launcher: Launcher::OpenMpi,
    rank: "OMPI_COMM_WORLD_RANK",
    ranks: "OMPI_COMM_WORLD_SIZE",
    local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
    local_ranks: "OMPI_COMM_WORLD_LOCAL_SIZE",
};
const MPICH: Names = Names {
    launcher: Launcher::Mpich,
    rank: "PMI_RANK",
    ranks: "PMI_SIZE",
    local_rank: "MPI_LOCALRANKID",
    local_ranks: "MPI_LOCALNRANKS",
};
const SLURM: Names = Names {
    launcher: Launcher::Slurm,
    rank: "SLURM_PROCID",
    ranks: "SLURM_STEP_NUM_TASKS",
    local_rank: "SLURM_LOCALID",
    local_ranks: "SLURM_NTASKS_PER_NODE",
};

impl Reader<'_> {
    fn is_set(&self, name: &'static str) -> bool {
        self.0.get(name).is_some()
    }

    fn text(&self, name: &'static str) -> Result<Option<String>> {
        let text = self.0.get(name).map(OsString::into_string).transpose();
        text.map_err(|bytes| {
            let reason = format!("{name} is `{}`, which is no text", bytes.to_string_lossy());
            Error::new(ErrorKind::Parse, READ, reason)
        })
    }

    fn number<T: FromStr>(&self, name: &'static str) -> Result<Option<T>> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let number = text.trim().parse().map_err(|_| {
            let reason = format!("{name} is `{text}`, and should be a number");
            Error::new(ErrorKind::Parse, READ, reason)
        })?;
        Ok(Some(number))
    }

    /// What must be there because of another variable.
    fn needed<T>(&self, found: Option<T>, name: &'static str, because: &'static str) -> Result<T> {
        found.ok_or_else(|| {
            let reason = format!("{because} is set, and {name} isn't");
            Error::new(ErrorKind::InvalidArgument, READ, reason)
        })
    }

    /// The variables of the first launcher that set its own.
    fn seat(&self) -> Result<Option<Seat>> {
        if self.is_set(AETHER.rank) || self.is_set(AETHER.ranks) {
            return self.seat_of(&AETHER).map(Some);
        }
        // Single ones of these names may be anybody's.
        if self.is_set(TORCHRUN.rank) && self.is_set(TORCHRUN.ranks)
            || self.is_set(TORCHRUN.rank) && self.is_set("MASTER_ADDR")
            || self.is_set(TORCHRUN.ranks) && self.is_set("MASTER_ADDR")
        {
            return self.seat_of(&TORCHRUN).map(Some);
        }
        if self.is_set(OPEN_MPI.rank) {
            return self.seat_of(&OPEN_MPI).map(Some);
        }
        // srun sets these too, for MPICH's library, and Hydra's own processes may be Slurm's tasks.
        let step = self.is_set("SLURM_STEP_ID");
        if self.is_set(MPICH.rank) && (!step || self.0.hydra().is_some()) {
            return self.seat_of(&MPICH).map(Some);
        }
        // Without a step it is the script of a batch, which is one process whatever the job's size.
        if step && self.is_set(SLURM.rank) {
            return self.seat_of(&SLURM).map(Some);
        }
        Ok(None)
    }

    fn seat_of(&self, names: &Names) -> Result<Seat> {
        let Names { launcher, rank: rank_name, ranks: ranks_name, .. } = *names;
        let (rank, ranks) = (self.number(rank_name)?, self.number(ranks_name)?);
        let rank: usize = self.needed(rank, rank_name, ranks_name)?;
        let ranks: usize = self.needed(ranks, ranks_name, rank_name)?;
        if rank >= ranks {
            let reason = format!("{rank_name} is {rank}, and {ranks_name} is {ranks}");
            return Err(Error::new(ErrorKind::RankOutOfRange, READ, reason).about_ranks([rank]));
        }
        let local_ranks_name = names.local_ranks;
        // Slurm's is a wish of the user's, and no fact.
        let local_ranks = match launcher {
            Launcher::Slurm => None,
            _ => self.number(local_ranks_name)?,
        };
        let local_rank = self.number(names.local_rank)?;
        let most = local_ranks.unwrap_or(ranks);
        if most > ranks {
            let reason = format!("{local_ranks_name} is {most}, and {ranks_name} is {ranks}");
            return Err(Error::new(ErrorKind::InvalidArgument, READ, reason).about_ranks([rank]));
        }
        if let Some(local) = local_rank
            && local >= most
        {
            let of = if local_ranks.is_some() { local_ranks_name } else { ranks_name };
            let reason = format!("{} is {local}, and {of} is {most}", names.local_rank);
            return Err(Error::new(ErrorKind::RankOutOfRange, READ, reason).about_ranks([rank]));
        }
        let local_rank = local_rank.unwrap_or(rank);
        Ok(Seat { launcher, rank, ranks, local_rank, local_ranks, local_ranks_name })
    }

    /// Where the user, or `aether launch`, said.
    fn told_place(&self) -> Result<Option<Place>> {
        let Some(told) = self.0.get(RENDEZVOUS) else { return Ok(None) };
        let lossy = told.to_string_lossy();
        if let Some(path) = lossy.strip_prefix("dir:").filter(|it| !it.is_empty()) {
            if told.to_str().is_none() {
                let reason = format!("{RENDEZVOUS} is `{lossy}`, which is no text");
                return Err(Error::new(ErrorKind::Parse, READ, reason));
            }
            return Ok(Some(Place::Directory(path.into())));
        }
        let Some(address) = lossy.strip_prefix("tcp://").filter(|it| is_address(it)) else {
            let reason =
                format!("{RENDEZVOUS} is `{lossy}`, and should be tcp://HOST:PORT or dir:/PATH");
            return Err(Error::new(ErrorKind::Parse, READ, reason));
        };
        let token = self.text(TOKEN)?.filter(|it| !it.is_empty());
        let token = self.needed(token, TOKEN, RENDEZVOUS)?;
        Ok(Some(Place::Served(Spot::Tcp(address.to_owned()), token.into_bytes())))
    }

    /// Where ranks meet whom nobody told.
    fn place_of(&self, seat: &Seat) -> Result<Place> {
        let job = match seat.launcher {
            Launcher::Aether => {
                let reason = format!("AETHER_RANK is set, and {RENDEZVOUS} isn't");
                return Err(Error::new(ErrorKind::InvalidArgument, READ, reason)
                    .about_ranks([seat.rank]));
            }
            Launcher::Torchrun => match self.torchrun_job(seat)? {
                Some(job) => job,
                None => return self.master(),
            },
            Launcher::OpenMpi => {
                let job = self.text("PMIX_NAMESPACE")?.map_or_else(
                    || self.text("OMPI_MCA_ess_base_jobid"),
                    |it| Ok(Some(it)),
                )?;
                // Numbers of jobs come round again; the daemon's address is one job's alone.
                let daemon = self.text("PMIX_SERVER_URI41")?.unwrap_or_default();
                self.needed(job, "PMIX_NAMESPACE", OPEN_MPI.rank)? + "/" + &daemon
            }
            Launcher::Mpich => self.0.hydra().ok_or_else(|| {
                let reason = format!(
                    "PMI_RANK is set, and no process above this one is Hydra's; set {RENDEZVOUS} and \
                     {TOKEN} to say where ranks meet"
                );
                Error::new(ErrorKind::Unsupported, READ, reason).about_ranks([seat.rank])
            })?,
            Launcher::Slurm => {
                let nodes: Option<usize> = match self.number("SLURM_STEP_NUM_NODES")? {
                    None => self.number("SLURM_NNODES")?,
                    found => found,
                };
                if nodes.unwrap_or(1) != 1 {
                    return Err(several(seat, "SLURM_STEP_NUM_NODES is not 1".to_owned()));
                }
                let id = self.text("SLURM_JOB_ID")?;
                let job = self.needed(id, "SLURM_JOB_ID", SLURM.rank)?;
                format!("{job}.{}", self.text("SLURM_STEP_ID")?.unwrap_or_default())
            }
        };
        if let Some(here) = seat.local_ranks.filter(|it| *it != seat.ranks) {
            let why = format!("{} is {here} of {} ranks", seat.local_ranks_name, seat.ranks);
            return Err(several(seat, why));
        }
        let name = format!("aether/{}/{job}", seat.launcher);
        // A name of a socket is at most some hundred bytes, and a job's as long as it likes.
        let name = if name.len() > 100 { hashed(&name) } else { name };
        Ok(Place::Served(Spot::Local(name), Vec::new()))
    }

    /// The job of a torchrun that started all ranks on this machine. It has taken the master's port
    /// itself, so that no rank can serve there.
    fn torchrun_job(&self, seat: &Seat) -> Result<Option<String>> {
        let Some(run) = self.text("TORCHELASTIC_RUN_ID")? else { return Ok(None) };
        if seat.local_ranks != Some(seat.ranks) {
            return Ok(None);
        }
        let port = self.text("MASTER_PORT")?.unwrap_or_default();
        let restarts = self.text("TORCHELASTIC_RESTART_COUNT")?.unwrap_or_default();
        Ok(Some(format!("{port}/{restarts}/{run}")))
    }

    /// The address at which torch's rank 0 is reached.
    fn master(&self) -> Result<Place> {
        let host = self.needed(self.text("MASTER_ADDR")?, "MASTER_ADDR", TORCHRUN.rank)?;
        let port: u16 = self.needed(self.number("MASTER_PORT")?, "MASTER_PORT", TORCHRUN.rank)?;
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let address = format!("{host}:{port}");
        if !is_address(&address) {
            let reason = format!("MASTER_ADDR and MASTER_PORT make `{address}`, no address");
            return Err(Error::new(ErrorKind::Parse, READ, reason));
        }
        // Without a token, the run's name keeps other runs out, and nobody else.
        let token = match self.text(TOKEN)?.filter(|it| !it.is_empty()) {
            Some(token) => token,
            None => format!("run {}", self.text("TORCHELASTIC_RUN_ID")?.unwrap_or_default()),
        };
        Ok(Place::Served(Spot::Tcp(address), token.into_bytes()))
    }
}

/// Ranks of several machines have no place that all of them know.
fn several(seat: &Seat, why: String) -> Error {
    let reason = format!(
        "{why}, so the ranks are on several machines: set {RENDEZVOUS} to tcp://HOST:PORT of rank 0's, \
         and {TOKEN}"
    );
    Error::new(ErrorKind::Unsupported, READ, reason).about_ranks([seat.rank])
}

/// A host and a port that is not 0.
fn is_address(text: &str) -> bool {
    text.rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|it| it != 0))
}

/// The same in every process: FNV-1a with 64 bits, twice from different starts.
fn hashed(name: &str) -> String {
    let hash = |start: u64| {
        name.bytes()
            .fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    };
    format!("aether/{:016x}{:016x}", hash(0xcbf2_9ce4_8422_2325), hash(0x6c62_272e_07bb_0142))
}

#[cfg(test)]
#[path = "environment_tests.rs"]
mod tests;
