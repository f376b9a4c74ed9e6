//! How the ranks of several threads or processes agree on a group.

mod client;
mod directory;
mod environment;
mod in_process;
mod link;
mod process;
mod server;
mod tcp;
#[cfg(test)]
mod tests;
mod wire;
mod world;

use std::time::{Duration, Instant};

use aether_core::{Device, DeviceId, DeviceKind, Error, ErrorKind, Result};

use crate::{CollectiveDriver, CommunicationId, GroupConfig};

pub use directory::Directory;
pub use environment::Launcher;
pub use in_process::InProcess;
pub(crate) use process::this_process;
pub use server::TcpServer;
pub use tcp::Tcp;
pub use world::World;

/// Where the ranks of a group meet: each posts values under keys, and waits for those of others.
///
/// One rendezvous serves one group, and every rank has a handle of its own.
pub trait Rendezvous: Send + Sync {
    /// This participant's rank.
    fn rank(&self) -> usize;

    /// How many participants there are: the world size.
    fn ranks(&self) -> usize;

    /// Where it is, for messages.
    fn place(&self) -> String;

    /// Posts a value for everybody. Each key is posted once.
    ///
    /// # Errors
    /// `InvalidArgument` if the key was posted before (a rank that joined twice, say); `Io`.
    fn post(&self, key: &str, value: &[u8]) -> Result<()>;

    /// The value under the key, if it was posted. It never waits.
    ///
    /// # Errors
    /// `Io`.
    fn look_up(&self, key: &str) -> Result<Option<Vec<u8>>>;
}

/// What the ranks agreed on.
pub(crate) struct Met<D: CollectiveDriver> {
    pub(crate) id: CommunicationId,
    pub(crate) unique: D::UniqueId,
}

/// Has all ranks meet: each posts its device and its process, rank 0 mints the group's identifier.
///
/// # Errors
/// `DeadlineExceeded` naming the absent ranks, `SizeMismatch` if world sizes differ, `RankOutOfRange`,
/// and what the rendezvous and the driver say.
pub(crate) fn meet<D: CollectiveDriver>(
    at: &dyn Rendezvous,
    device: &Device,
    config: &GroupConfig,
) -> Result<Met<D>> {
    let (rank, ranks) = (at.rank(), at.ranks());
    if rank >= ranks {
        let reason = format!("rank {rank} is out of range: there are {ranks} ranks");
        return Err(Error::new(ErrorKind::RankOutOfRange, "join a group", reason)
            .on(at.place())
            .about_ranks([rank]));
    }
    let until = Instant::now().checked_add(config.join_deadline);
    let mut found = places_for(at)?;
    let own = format!("{ranks} {} {:016x}", raw(device.id()), this_process());
    at.post(&format!("rank-{rank}"), own.as_bytes())?;
    wait_for(until, || {
        for (other, place) in found.iter_mut().enumerate().filter(|(_, it)| it.is_none()) {
            // Looked at as they come: who has another world size waits for ranks that don't exist.
            if let Some(value) = at.look_up(&format!("rank-{other}"))? {
                *place = Some(parse(at, other, &value)?);
            }
        }
        Ok(found.iter().all(Option::is_some).then_some(()))
    })?
    .ok_or_else(|| absent(at, &found))?;
    let (devices, processes): (Vec<DeviceId>, Vec<u64>) = found.into_iter().flatten().unzip();
    let name = config.name.clone();
    if rank == 0 {
        let generation = crate::formation::next_generation();
        let id = CommunicationId::new(devices, processes, name, generation);
        let unique = D::group_id(&id)?;
        at.post("id", &[&generation.to_le_bytes(), D::id_to_bytes(unique).as_slice()].concat())?;
        return Ok(Met { id, unique });
    }
    let minted = wait_for(until, || at.look_up("id"))?.ok_or_else(|| {
        let reason = "the deadline passed and rank 0 did not post the group's identifier";
        Error::new(ErrorKind::DeadlineExceeded, "join a group", reason)
            .on(at.place())
            .about_ranks([0])
    })?;
    let (generation, unique) = minted.split_first_chunk().ok_or_else(|| {
        let reason = "rank 0 posted no identifier of a group";
        Error::new(ErrorKind::Parse, "join a group", reason).on(at.place()).about_ranks([0])
    })?;
    let id = CommunicationId::new(devices, processes, name, u64::from_le_bytes(*generation));
    Ok(Met { id, unique: D::id_from_bytes(unique)? })
}

/// What a rank posts of itself: its device, and its process.
type Place = (DeviceId, u64);

/// A place for what each rank will post.
fn places_for(at: &dyn Rendezvous) -> Result<Vec<Option<Place>>> {
    let (mut places, ranks) = (Vec::new(), at.ranks());
    places.try_reserve_exact(ranks).map_err(|error| {
        let reason = format!("there is no room for {ranks} ranks");
        Error::new(ErrorKind::OutOfMemory, "join a group", reason).on(at.place()).caused_by(error)
    })?;
    places.resize(ranks, None);
    Ok(places)
}

/// Asks again until there is an answer or the time is over.
fn wait_for<T>(
    until: Option<Instant>,
    mut ask: impl FnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    let mut pause = Duration::from_micros(50);
    loop {
        if let Some(answer) = ask()? {
            return Ok(Some(answer));
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

/// Kind and index as numbers, which mean the same in every process.
fn raw(id: DeviceId) -> String {
    format!("{}:{}", id.kind.0, id.index)
}

fn parse(at: &dyn Rendezvous, rank: usize, value: &[u8]) -> Result<Place> {
    let text = String::from_utf8_lossy(value);
    let refuse = |kind, reason: String| {
        Error::new(kind, "join a group", reason).on(at.place()).about_ranks([rank])
    };
    let junk = || refuse(ErrorKind::Parse, format!("rank {rank} posted `{text}`"));
    let (ranks, rest) = text.split_once(' ').ok_or_else(junk)?;
    let theirs: usize = ranks.parse().map_err(|_| junk())?;
    if theirs != at.ranks() {
        let reason = format!(
            "rank {rank} says that there are {theirs} ranks, and rank {} says {}",
            at.rank(),
            at.ranks()
        );
        return Err(refuse(ErrorKind::SizeMismatch, reason));
    }
    let (device, process) = rest.split_once(' ').ok_or_else(junk)?;
    let (kind, index) = device.split_once(':').ok_or_else(junk)?;
    let kind = kind.parse().map(DeviceKind).map_err(|_| junk())?;
    let process = u64::from_str_radix(process, 16).map_err(|_| junk())?;
    Ok((DeviceId::new(kind, index.parse().map_err(|_| junk())?), process))
}

fn absent(at: &dyn Rendezvous, found: &[Option<Place>]) -> Error {
    let missing = found.iter().enumerate().filter(|(_, it)| it.is_none());
    let absent: Vec<usize> = missing.map(|(rank, _)| rank).collect();
    let names: Vec<String> = absent.iter().map(|it| format!("rank {it}")).collect();
    let reason = format!("the deadline passed and {} did not join", names.join(", "));
    Error::new(ErrorKind::DeadlineExceeded, "join a group", reason)
        .on(at.place())
        .about_ranks(absent)
}
