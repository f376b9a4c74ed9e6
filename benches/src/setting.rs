//! Where and when something was measured.

use std::fs;
use std::process::Command;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// What a figure is worth nothing without.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// The processor's name.
    pub processor: String,
    /// How many cores this process may use.
    pub cores: usize,
    /// The last level's cache, as the system says it.
    pub cache: String,
    /// The system.
    pub system: String,
    /// The day, in UTC.
    pub date: String,
    /// Aether's version and commit.
    pub aether: String,
    /// The compiler.
    pub compiler: String,
    /// What the peers call themselves.
    pub peers: Vec<String>,
    /// How many turns each contender had.
    pub turns: usize,
}

impl Setting {
    /// This machine, now.
    pub fn here(turns: usize) -> Self {
        let date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let commit = said("git", &["describe", "--always", "--dirty", "--exclude=*"]);
        Self {
            processor: processor(),
            cores: cores(),
            cache: cache(),
            system: format!("{} {}", std::env::consts::OS, read("/proc/sys/kernel/osrelease")),
            date: date.split('T').next().unwrap_or_default().to_owned(),
            aether: format!("{} ({commit})", env!("CARGO_PKG_VERSION")),
            compiler: said("rustc", &["--version"]),
            peers: Vec::new(),
            turns,
        }
    }
}

/// How many threads can run at once.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn processor() -> String {
    let all = read("/proc/cpuinfo");
    let named = all.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    named.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

/// The size of the largest cache that core 0 sees.
fn cache() -> String {
    let level = |index: u32| read(&format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size"));
    (0..8).map(level).take_while(|it| it != UNKNOWN).last().unwrap_or_else(|| UNKNOWN.to_owned())
}

const UNKNOWN: &str = "unknown";

fn read(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| UNKNOWN.to_owned(), |it| it.trim().to_owned())
}

/// What a program says, in the directory of this package.
fn said(program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    let output = command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let text = output.ok().filter(|it| it.status.success());
    text.map_or_else(
        || UNKNOWN.to_owned(),
        |it| String::from_utf8_lossy(&it.stdout).trim().to_owned(),
    )
}
