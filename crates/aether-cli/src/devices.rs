//! `aether devices`: what there is, and what is absent and why.

use std::io::Write;

use serde::Serialize;

use crate::cli::DevicesArgs;
use crate::failure::{Failure, Result};

/// Prints the devices of every backend.
pub(crate) fn run(args: &DevicesArgs, out: &mut dyn Write) -> Result<()> {
    let report = Report::of_this_machine();
    if args.json {
        let text = serde_json::to_string_pretty(&report)
            .map_err(|it| Failure::new(format!("devices: write JSON: {it}")))?;
        writeln!(out, "{text}")?;
        return Ok(());
    }
    report.print(out)
}

/// Everything that is printed; the names are those of the JSON.
#[derive(Debug, Serialize)]
struct Report {
    version: &'static str,
    backends: Vec<Backend>,
    routes: Vec<Route>,
}

#[derive(Debug, Serialize)]
struct Backend {
    name: &'static str,
    /// The version of its library.
    version: Option<String>,
    /// Why there is nothing of it.
    absent: Option<String>,
    devices: Vec<Device>,
}

#[derive(Debug, Serialize)]
struct Device {
    id: String,
    name: String,
    /// Bytes; unknown where the system doesn't say.
    memory: Option<u64>,
}

/// How bytes go from one device to another.
#[derive(Debug, Serialize)]
struct Route {
    from: String,
    to: String,
    route: String,
}

impl Report {
    fn of_this_machine() -> Self {
        let absent = |name, absent: &str| Backend {
            name,
            version: None,
            absent: Some(absent.to_owned()),
            devices: Vec::new(),
        };
        Self {
            version: env!("CARGO_PKG_VERSION"),
            backends: vec![
                host(),
                absent("cuda", "this build has no CUDA backend"),
                absent("nccl", "this build has no NCCL backend"),
                absent("mpi", "this build has no MPI backend"),
            ],
            routes: vec![Route {
                from: "cpu:0".to_owned(),
                to: "cpu:0".to_owned(),
                route: "same".to_owned(),
            }],
        }
    }

    fn print(&self, out: &mut dyn Write) -> Result<()> {
        writeln!(out, "aether {}", self.version)?;
        for Backend { name, version, absent, devices } in &self.backends {
            match (absent, version) {
                (Some(absent), _) => writeln!(out, "{name}: absent: {absent}")?,
                (None, Some(version)) => writeln!(out, "{name}: {version}")?,
                (None, None) => writeln!(out, "{name}:")?,
            }
            for Device { id, name, memory } in devices {
                let memory = memory.map_or_else(|| "memory unknown".to_owned(), gibibytes);
                writeln!(out, "  {id}  {memory}  {name}")?;
            }
        }
        for Route { from, to, route } in &self.routes {
            writeln!(out, "route {from} to {to}: {route}")?;
        }
        Ok(())
    }
}

/// The CPU, which stands for any number of host devices.
fn host() -> Backend {
    let threads = std::thread::available_parallelism().map_or(1, |it| it.get());
    let proc = |name: &str| std::fs::read_to_string(name).unwrap_or_default();
    let model = field(&proc("/proc/cpuinfo"), "model name")
        .unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let memory = field(&proc("/proc/meminfo"), "MemTotal");
    Backend {
        name: "host",
        version: None,
        absent: None,
        devices: vec![Device {
            id: "cpu:0".to_owned(),
            name: format!("{model}, {threads} threads"),
            memory: memory.and_then(|it| kibibytes(&it)),
        }],
    }
}

/// The value of `name` in one of Linux's files of the form `name : value`.
fn field(text: &str, name: &str) -> Option<String> {
    let mut pairs = text.lines().filter_map(|it| it.split_once(':'));
    pairs.find(|(it, _)| it.trim() == name).map(|(_, value)| value.trim().to_owned())
}

fn kibibytes(text: &str) -> Option<u64> {
    text.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn gibibytes(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_system_files_are_found_by_their_whole_name() {
        let text = "MemTotalOther: 1 kB\nMemTotal:        2048 kB\nmodel name\t: X: Y\n";
        assert_eq!(field(text, "MemTotal").as_deref(), Some("2048 kB"));
        assert_eq!(field(text, "model name").as_deref(), Some("X: Y"));
        assert_eq!(field(text, "Mem"), None);
        assert_eq!(kibibytes("2048 kB"), Some(2 << 20));
        assert_eq!(kibibytes("2048"), None);
        assert_eq!(gibibytes(3 << 29), "1.5 GiB");
    }
}
