//! A round: processes call, one of them is killed or stopped, and the others are asked what they saw.

use std::path::Path;
use std::time::{Duration, Instant};

use aether_conformance::suite::Random;

use crate::schedule::{Fate, Round};
use crate::usage::{handles, names};
use crate::worker::{Part, Role, Worker};

/// How long a survivor may take to learn of a death, or of a stop from the deadline on.
const SOON: Duration = Duration::from_secs(5);

/// How long anything else may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long each survivor took to learn.
#[derive(Default)]
pub(crate) struct Times {
    pub(crate) killed: Vec<Duration>,
    /// From the stop on, so with the deadline.
    pub(crate) stopped: Vec<Duration>,
}

/// Twenty rounds, for a test.
pub(crate) fn twenty() -> Result<(), String> {
    let mut times = Times::default();
    many(20, 1, &mut times)?;
    println!("{}", times.words());
    Ok(())
}

/// So many rounds, of which each has a seed of its own from `seed` on.
pub(crate) fn many(rounds: u64, seed: u64, times: &mut Times) -> Result<(), String> {
    let before = handles()?;
    let mut random = Random::new(seed);
    for round in 0..rounds {
        let seed = random.next_u64();
        one(seed, times).map_err(|why| {
            format!("round {round}: {why}\nagain: cargo xtask soak --round {seed}")
        })?;
    }
    let after = handles()?;
    // Other trials of this process may have opened some meanwhile.
    if rounds > 50 && after > before {
        return Err(format!(
            "{before} handles were open before {rounds} rounds, and {after} are now"
        ));
    }
    Ok(())
}

/// The round of a seed.
pub(crate) fn one(seed: u64, times: &mut Times) -> Result<(), String> {
    let round = Round::of(seed);
    let place = std::env::temp_dir().join(format!("aether-soak-{}-{seed:x}", std::process::id()));
    let shared = names("/dev/shm".as_ref())?;
    let mut outcome = play(seed, &round, &place, times).map_err(|why| format!("{round:?}: {why}"));
    let left = names(&place)?;
    // What the ranks met in is for whoever made it to remove.
    drop(std::fs::remove_dir_all(&place));
    if outcome.is_ok() {
        let known = |it: &String| it == "id" || it.starts_with("rank-");
        let strange: Vec<&String> = left.iter().filter(|it| !known(it)).collect();
        if !strange.is_empty() {
            outcome = Err(format!("{strange:?} are left where the ranks met"));
        }
        let after = names("/dev/shm".as_ref())?;
        let new: Vec<&String> =
            after.iter().filter(|it| !shared.contains(it) && it.contains("aether")).collect();
        if !new.is_empty() {
            outcome = Err(format!("{new:?} are left in /dev/shm"));
        }
    }
    outcome
}

fn play(seed: u64, round: &Round, place: &Path, times: &mut Times) -> Result<(), String> {
    let ranks = round.ranks;
    let part = |rank| Part {
        role: Role::Round,
        rank,
        ranks,
        number: seed,
        place: place.display().to_string(),
    };
    let workers = (0..ranks).map(|rank| Worker::start(&part(rank)));
    let mut workers = workers.collect::<Result<Vec<_>, String>>()?;
    let mut processes: Vec<u32> = workers.iter().map(Worker::id).collect();
    processes.sort_unstable();
    processes.dedup();
    if processes.len() != ranks {
        return Err(format!("{ranks} ranks are in processes {processes:?}"));
    }
    for worker in &mut workers {
        worker.expect("began", PATIENCE)?;
    }
    std::thread::sleep(round.after);
    let victim = workers.remove(round.victim);
    let since = Instant::now();
    let (signal, soon) = match round.fate {
        Fate::Killed => (libc::SIGKILL, SOON),
        Fate::Stopped => (libc::SIGSTOP, round.deadline + SOON),
    };
    victim.signal(signal);
    for worker in &mut workers {
        let (when, error) = worker.expect("error", soon + SOON)?;
        let took = when.saturating_duration_since(since);
        if took > soon {
            return Err(format!("rank {} was told only after {took:?}: {error}", worker.rank));
        }
        let named = error.split_once(']').map_or("", |it| it.0).trim_start_matches('[');
        let named: Vec<usize> = named.split(", ").filter_map(|it| it.parse().ok()).collect();
        let right = match round.fate {
            Fate::Killed => named == [round.victim],
            // Who waits for one that waits for the victim may see both absent.
            Fate::Stopped => named.contains(&round.victim),
        };
        if !right {
            return Err(format!("rank {} was told of {named:?}: {error}", worker.rank));
        }
        match round.fate {
            Fate::Killed => times.killed.push(took),
            Fate::Stopped => times.stopped.push(took),
        }
    }
    look(&mut workers)?;
    if round.fate == Fate::Stopped {
        let mut victim = victim;
        victim.signal(libc::SIGCONT);
        // It sees that the group is broken, without a word of its own before.
        victim.expect("error", PATIENCE)?;
        look(&mut workers)?;
        workers.push(victim);
    } else {
        drop(victim);
    }
    workers.into_iter().try_for_each(|mut it| {
        it.tell("leave")?;
        it.end(PATIENCE)
    })
}

/// Has every worker look at its memory.
fn look(workers: &mut [Worker]) -> Result<(), String> {
    workers.iter_mut().try_for_each(|it| it.tell("look"))?;
    workers.iter_mut().try_for_each(|it| it.expect("untouched", PATIENCE).map(drop))
}

impl Times {
    /// The median and the maximum of each, in words.
    pub(crate) fn words(&self) -> String {
        let of = |times: &[Duration], what: &str| {
            let mut sorted = times.to_vec();
            sorted.sort_unstable();
            match (sorted.get(sorted.len() / 2), sorted.last()) {
                (Some(median), Some(most)) => format!(
                    "{what}: {} survivors were told after {median:.1?} (median), {most:.1?} (most)",
                    sorted.len()
                ),
                _ => format!("{what}: none"),
            }
        };
        let stopped = of(&self.stopped, "stopped, with the deadline of 500 ms");
        format!("{}\n{stopped}", of(&self.killed, "killed"))
    }
}
