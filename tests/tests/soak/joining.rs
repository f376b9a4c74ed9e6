//! Processes that can't become a group are told why, and who is to blame, before anybody's patience ends.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use aether::{Device, Directory, Error, Group, GroupConfig, Host};

use crate::worker::{Part, Role, Worker, hear, say};

/// How long joining waits for an absent rank.
const DEADLINE: Duration = Duration::from_millis(1500);
const PATIENCE: Duration = Duration::from_secs(30);

/// What a rank is told: nothing if it joined, or the kind of the error and the ranks that it names.
type Told = Option<(String, String)>;

/// A file may be no larger in a process whose number is this.
const LIMITED: u64 = 1;
const LIMIT: u64 = 16 << 10;

/// Joins, and says what came of it.
pub(crate) fn play(part: &Part) -> Result<(), String> {
    if part.number == LIMITED {
        let limit = libc::rlimit { rlim_cur: LIMIT, rlim_max: LIMIT };
        // SAFETY: `setrlimit` reads the structure, which lives until it returns.
        if unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) } != 0 {
            return Err(std::io::Error::last_os_error().to_string());
        }
    }
    let config = GroupConfig::default().with_deadline(DEADLINE);
    let joined = Directory::new(&part.place, part.rank, part.ranks)
        .and_then(|at| Group::<Host>::join_at(&at, &Device::cpu(part.rank as u32), &config));
    say(&match &joined {
        Ok(_) => "joined".to_owned(),
        Err(error) => in_words(error),
    });
    // Whoever joined stays until all have said what they were told.
    hear();
    Ok(())
}

fn in_words(error: &Error) -> String {
    format!("error {:?};{:?};{error}", error.kind(), error.ranks())
}

/// A directory of its own for a trial, which goes with it.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("aether-soak-{}-{name}", std::process::id())))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // There is none where nobody could make it.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Has processes join at once, each as `(rank, ranks, number)`; what each is told, and how long it took.
fn join(place: &Path, each: &[(usize, usize, u64)]) -> Result<Vec<(Told, Duration)>, String> {
    let part = |&(rank, ranks, number): &(usize, usize, u64)| Part {
        role: Role::Join,
        rank,
        ranks,
        number,
        place: place.display().to_string(),
    };
    let since = Instant::now();
    let workers = each.iter().map(|it| Worker::start(&part(it)));
    let mut workers = workers.collect::<Result<Vec<_>, String>>()?;
    let mut told = Vec::new();
    for worker in &mut workers {
        let (when, line) = worker.line(PATIENCE)?;
        let error = line.strip_prefix("error ").map(|it| {
            let mut words = it.splitn(3, ';');
            let mut word = || words.next().unwrap_or_default().to_owned();
            (word(), word())
        });
        if error.is_none() && line != "joined" {
            return Err(format!("rank {} said `{line}`", worker.rank));
        }
        println!("rank {}: {line}", worker.rank);
        told.push((error, when.saturating_duration_since(since)));
    }
    for mut worker in workers {
        worker.tell("leave")?;
        worker.end(PATIENCE)?;
    }
    Ok(told)
}

fn expect(told: &[(Told, Duration)], wanted: &[Option<(&str, &str)>]) -> Result<(), String> {
    let found: Vec<Option<(&str, &str)>> =
        told.iter().map(|it| it.0.as_ref().map(|(kind, ranks)| (&**kind, &**ranks))).collect();
    if found == wanted {
        Ok(())
    } else {
        Err(format!("the ranks were told {found:?}, wanted {wanted:?}"))
    }
}

/// Nobody waited for the deadline.
fn at_once(told: &[(Told, Duration)]) -> Result<(), String> {
    match told.iter().find(|it| it.1 >= DEADLINE) {
        None => Ok(()),
        Some((_, took)) => Err(format!("a rank was told only after {took:?}")),
    }
}

pub(crate) fn absent_ranks_are_named() -> Result<(), String> {
    let place = Place::new("absent");
    let told = join(&place.0, &[(0, 3, 0), (2, 3, 0)])?;
    expect(&told, &[Some(("DeadlineExceeded", "[1]")); 2])
}

pub(crate) fn a_rank_that_comes_twice_is_refused() -> Result<(), String> {
    let place = Place::new("twice");
    let told = join(&place.0, &[(1, 2, 0), (1, 2, 0), (0, 2, 0)])?;
    at_once(&told)?;
    let (first, second) = (&told[..1], &told[1..2]);
    let refused = [Some(("InvalidArgument", "[1]"))];
    // Whichever came second.
    let one = expect(first, &refused).and(expect(second, &[None]));
    one.or_else(|_| expect(first, &[None]).and(expect(second, &refused)))?;
    expect(&told[2..], &[None])
}

pub(crate) fn world_sizes_that_differ_are_told_to_both() -> Result<(), String> {
    let place = Place::new("sizes");
    let told = join(&place.0, &[(0, 3, 0), (1, 2, 0)])?;
    at_once(&told)?;
    expect(&told, &[Some(("SizeMismatch", "[1]")), Some(("SizeMismatch", "[0]"))])
}

pub(crate) fn a_place_that_served_before_is_refused() -> Result<(), String> {
    let place = Place::new("used");
    expect(&join(&place.0, &[(0, 2, 0), (1, 2, 0)])?, &[None; 2])?;
    let told = join(&place.0, &[(0, 2, 0), (1, 2, 0)])?;
    at_once(&told)?;
    expect(&told, &[Some(("InvalidArgument", "[0]")), Some(("InvalidArgument", "[1]"))])
}

pub(crate) fn a_place_that_can_not_be_is_refused() -> Result<(), String> {
    let told = join("/dev/null/aether".as_ref(), &[(0, 2, 0), (1, 2, 0)])?;
    at_once(&told)?;
    expect(&told, &[Some(("Io", "[0]")), Some(("Io", "[1]"))])
}

pub(crate) fn a_limit_of_files_too_small_names_the_rank() -> Result<(), String> {
    let place = Place::new("limit");
    let told = join(&place.0, &[(0, 2, 0), (1, 2, LIMITED)])?;
    at_once(&told)?;
    expect(&told, &[Some(("OutOfMemory", "[1]")); 2])
}
