//! Ranks in processes of their own: this test's program starts itself anew for each.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use aether_collective::{Directory, Group, GroupConfig};
use aether_core::{Device, Result};
use aether_host::Host;

use crate::common::PATIENCE;

const CASE: &str = "AETHER_TEST_CASE";
const RANK: &str = "AETHER_TEST_RANK";
const RANKS: &str = "AETHER_TEST_RANKS";
const PLACE: &str = "AETHER_TEST_PLACE";

/// What a process of a test knows: which rank it is, of how many, and where they meet.
pub(crate) struct World {
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
    place: PathBuf,
}

impl World {
    /// What the environment says, in a process that a test has started; and the name of what to do.
    pub(crate) fn of_this_process() -> Option<(String, Self)> {
        let number = |name| std::env::var(name).ok()?.parse().ok();
        let place = std::env::var_os(PLACE)?.into();
        let it = Self { rank: number(RANK)?, ranks: number(RANKS)?, place };
        Some((std::env::var(CASE).ok()?, it))
    }

    /// The group `name` of all ranks; this one joins it with a device of its own.
    pub(crate) fn join(&self, name: &str) -> Group<Host> {
        self.join_with(name, &self.config(name)).unwrap()
    }

    /// As [`World::join`], with this device.
    pub(crate) fn join_on(&self, name: &str, device: &Device) -> Group<Host> {
        let at = Directory::new(self.place.join(name), self.rank, self.ranks).unwrap();
        Group::join_at(&at, device, &self.config(name)).unwrap()
    }

    pub(crate) fn config(&self, name: &str) -> GroupConfig {
        GroupConfig::default().with_deadline(PATIENCE / 2).named(name)
    }

    pub(crate) fn join_with(&self, name: &str, config: &GroupConfig) -> Result<Group<Host>> {
        let at = Directory::new(self.place.join(name), self.rank, self.ranks)?;
        Group::join_at(&at, &Device::cpu(self.rank as u32), config)
    }

    /// Tells everybody, and the test.
    pub(crate) fn say(&self, what: &str) {
        std::fs::write(self.place.join(what), std::process::id().to_string()).unwrap();
    }

    /// Waits until somebody has said it.
    pub(crate) fn hear(&self, what: &str) {
        hear(&self.place, what);
    }
}

fn hear(place: &std::path::Path, what: &str) {
    let until = Instant::now() + PATIENCE;
    while !place.join(what).exists() {
        assert!(Instant::now() < until, "nobody said `{what}`");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The processes of one test.
pub(crate) struct Ranks {
    children: Vec<Option<Child>>,
    place: PathBuf,
}

impl Ranks {
    /// Starts a process for each rank, which does what `case` names.
    pub(crate) fn start(case: &str, ranks: usize) -> Self {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = format!("aether-processes-{}-{serial}", std::process::id());
        let place = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&place).unwrap();
        let mut it = Self { children: Vec::new(), place };
        for rank in 0..ranks {
            let child = Command::new(std::env::current_exe().unwrap())
                .args(["this_is_a_rank", "--exact", "--nocapture", "--test-threads=1"])
                .env(CASE, case)
                .env(RANK, rank.to_string())
                .env(RANKS, ranks.to_string())
                .env(PLACE, &it.place)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            it.children.push(Some(child));
        }
        it
    }

    pub(crate) fn hear(&self, what: &str) {
        hear(&self.place, what);
    }

    pub(crate) fn say(&self, what: &str) {
        std::fs::write(self.place.join(what), "").unwrap();
    }

    fn pid(&self, rank: usize) -> u32 {
        self.children[rank].as_ref().unwrap().id()
    }

    /// Ends the process of a rank by force.
    pub(crate) fn kill(&mut self, rank: usize) {
        let mut child = self.children[rank].take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Waits until the process of a rank has ended, well.
    pub(crate) fn wait_for(&mut self, rank: usize) {
        let output = self.children[rank].take().unwrap().wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }

    /// Sends a signal to the process of a rank.
    pub(crate) fn signal(&self, rank: usize, signal: &str) {
        let pid = self.pid(rank).to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Waits until all that were not killed have ended, each well.
    pub(crate) fn finish(mut self) {
        let children: Vec<(usize, Child)> = self
            .children
            .iter_mut()
            .enumerate()
            .filter_map(|(at, it)| Some((at, it.take()?)))
            .collect();
        let end = |(rank, child): (usize, Child)| {
            std::thread::spawn(move || (rank, child.wait_with_output().unwrap()))
        };
        let ends: Vec<_> = children.into_iter().map(end).collect();
        let ends: Vec<(usize, Output)> = ends.into_iter().map(|it| it.join().unwrap()).collect();
        // All that failed: one that waits for a word of another is mostly not the one to blame.
        let failed: Vec<String> = ends
            .iter()
            .filter(|(_, it)| !it.status.success())
            .map(|(rank, it)| {
                let text = |it: &[u8]| String::from_utf8_lossy(it).into_owned();
                format!("rank {rank}: {}\n{}{}", it.status, text(&it.stdout), text(&it.stderr))
            })
            .collect();
        assert!(failed.is_empty(), "{}", failed.join("\n"));
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for child in self.children.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.place);
    }
}

/// Has so many processes do what `case` names, and waits for them.
pub(crate) fn run(case: &str, ranks: usize) {
    Ranks::start(case, ranks).finish();
}
