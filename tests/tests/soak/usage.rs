//! What a process uses: memory, handles, time; and what processes leave behind.

use std::fs;
use std::path::Path;
use std::time::Duration;

/// What this process has at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) kibibytes: u64,
    pub(crate) handles: usize,
    pub(crate) mappings: usize,
}

impl Held {
    pub(crate) fn now() -> Result<Self, String> {
        let status = text("/proc/self/status")?;
        let resident = status.lines().find_map(|it| it.strip_prefix("VmRSS:"));
        let kibibytes = resident.and_then(|it| it.split_whitespace().next()?.parse().ok());
        Ok(Self {
            kibibytes: kibibytes.ok_or("there is no VmRSS in /proc/self/status")?,
            handles: handles()?,
            mappings: text("/proc/self/maps")?.lines().count(),
        })
    }
}

/// How many files and sockets this process has open.
pub(crate) fn handles() -> Result<usize, String> {
    // One of them is the directory itself.
    Ok(names("/proc/self/fd".as_ref())?.len() - 1)
}

/// The time that all threads of this process have run.
pub(crate) fn time() -> Result<Duration, String> {
    let mut nanos = 0u64;
    for task in names("/proc/self/task".as_ref())? {
        // A thread may have ended meanwhile.
        let Ok(schedule) = text(&format!("/proc/self/task/{task}/schedstat")) else { continue };
        let ran = schedule.split_whitespace().next().and_then(|it| it.parse::<u64>().ok());
        nanos += ran.ok_or("there is no time in schedstat")?;
    }
    Ok(Duration::from_nanos(nanos))
}

/// What lies in a directory, by name; nothing if there is none.
pub(crate) fn names(directory: &Path) -> Result<Vec<String>, String> {
    let Ok(entries) = fs::read_dir(directory) else { return Ok(Vec::new()) };
    let name = |it: Result<fs::DirEntry, _>| it.map(|it| it.file_name().to_string_lossy().into());
    let mut names = entries.map(name).collect::<Result<Vec<_>, std::io::Error>>();
    if let Ok(names) = &mut names {
        names.sort_unstable();
    }
    names.map_err(|error| format!("{}: {error}", directory.display()))
}

fn text(path: &str) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))
}
