//! What waiting costs: a rank whose peer is late sleeps.

use std::time::Duration;

use aether::{Device, Directory, Group, GroupConfig, Host, Request};

use crate::usage::time;
use crate::worker::{Part, Role, Worker, say};

/// How long a wait may cost anything, and how long it is watched after that.
const FIRST: Duration = Duration::from_millis(100);
const WATCHED: Duration = Duration::from_millis(1000);

/// The share of one core that a waiting process may use, in percent. A spinning one uses all of it; a look
/// costs more without optimisation, and where other processes have to be run in between.
const MOST: f64 = if cfg!(debug_assertions) { 25.0 } else { 5.0 };

pub(crate) fn in_threads() -> Result<(), String> {
    let part = Part { role: Role::IdleInThreads, rank: 0, ranks: 2, number: 0, place: "-".into() };
    judge(&mut [Worker::start(&part)?])
}

pub(crate) fn in_processes() -> Result<(), String> {
    let place = std::env::temp_dir().join(format!("aether-soak-{}-idle", std::process::id()));
    let part = |rank| Part {
        role: Role::IdleInProcesses,
        rank,
        ranks: 2,
        number: 0,
        place: place.display().to_string(),
    };
    let started = Worker::start(&part(0)).and_then(|one| Ok([one, Worker::start(&part(1))?]));
    let judged = started.and_then(|mut both| judge(&mut both));
    drop(std::fs::remove_dir_all(&place));
    judged
}

fn judge(workers: &mut [Worker]) -> Result<(), String> {
    let first = workers.first_mut().ok_or("nobody waits")?;
    let (_, used) = first.expect("used", Duration::from_secs(60))?;
    let percent: f64 = used.parse().map_err(|_| format!("`{used}` is no share"))?;
    println!("a rank that waits uses {percent:.2} % of a core");
    if percent < MOST {
        Ok(())
    } else {
        Err(format!("a rank that waits uses {percent:.1} % of a core"))
    }
}

/// Rank 0 waits in this process, and nobody else does anything in it.
pub(crate) fn play_in_threads(_: &Part) -> Result<(), String> {
    let devices = Device::cpus(2);
    let config = GroupConfig::default();
    std::thread::scope(|scope| {
        let late = scope.spawn(|| {
            let group = Group::<Host>::join_with(&devices, &devices[1], &config);
            group.map_err(|error| format!("{error:?}")).and_then(come_late)
        });
        let group = Group::<Host>::join_with(&devices, &devices[0], &config);
        let waited = group.map_err(|error| format!("{error:?}")).and_then(wait);
        late.join().map_err(|_| "the late rank panicked")?.and(waited)
    })
}

pub(crate) fn play_in_processes(part: &Part) -> Result<(), String> {
    let device = Device::cpu(part.rank as u32);
    let joined = Directory::new(&part.place, part.rank, part.ranks)
        .and_then(|at| Group::<Host>::join_at(&at, &device, &GroupConfig::default()));
    let group = joined.map_err(|error| format!("can't join: {error:?}"))?;
    if part.rank == 0 { watched(group) } else { come_late(group) }
}

/// Waits while another thread of the process, the late one, measures.
fn wait(mut group: Group<Host>) -> Result<(), String> {
    group.run(Request::Barrier).map_err(|error| format!("{error:?}"))
}

/// Waits while a thread measures what that costs, and says so.
fn watched(group: Group<Host>) -> Result<(), String> {
    let measuring = std::thread::spawn(measure);
    wait(group)?;
    measuring.join().map_err(|_| "the measurement panicked")?
}

/// Comes when the other has waited for long enough; in its process, measures what that cost.
fn come_late(mut group: Group<Host>) -> Result<(), String> {
    measure()?;
    group.run(Request::Barrier).map_err(|error| format!("{error:?}"))
}

fn measure() -> Result<(), String> {
    std::thread::sleep(FIRST);
    let before = time()?;
    std::thread::sleep(WATCHED);
    let used = time()?.saturating_sub(before);
    say(&format!("used {}", used.as_secs_f64() / WATCHED.as_secs_f64() * 100.0));
    Ok(())
}
