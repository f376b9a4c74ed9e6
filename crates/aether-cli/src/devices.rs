//! `aether devices`: what there is, and what is absent and why.

use std::io::Write;

use aether::{Device, DeviceKind, Registry, StreamTransport};
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
    devices: Vec<Entry>,
    /// What there is beside the list.
    note: Option<&'static str>,
}

/// One device.
#[derive(Debug, Serialize)]
struct Entry {
    id: String,
    description: String,
    /// Bytes; unknown where the system doesn't say.
    memory: Option<u64>,
    /// Bytes.
    free: Option<u64>,
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
        let mut devices = Vec::new();
        let mut host = Backend { absent: None, ..Backend::absent("host", "") };
        match Registry::default().all(DeviceKind::CPU) {
            Ok(found) => {
                // The memory of the host is served by aether's own code.
                host.version = Some(env!("CARGO_PKG_VERSION").to_owned());
                host.note = Some("any other index, such as cpu:1, is a device of its own, too");
                host.devices = found.iter().map(Entry::new).collect();
                devices.extend(found);
                devices.push(Device::cpu(1));
            }
            Err(error) => host.absent = Some(error.to_string()),
        }
        Self {
            version: env!("CARGO_PKG_VERSION"),
            backends: vec![
                host,
                Backend::absent("cuda", "this build has no CUDA backend"),
                Backend::absent("nccl", "this build has no NCCL backend"),
                Backend::absent("mpi", "this build has no MPI backend"),
            ],
            routes: routes(&devices),
        }
    }

    fn print(&self, out: &mut dyn Write) -> Result<()> {
        writeln!(out, "aether {}", self.version)?;
        for Backend { name, version, absent, devices, note } in &self.backends {
            match (absent, version) {
                (Some(absent), _) => writeln!(out, "{name}: absent: {absent}")?,
                (None, Some(version)) => writeln!(out, "{name}: {version}")?,
                (None, None) => writeln!(out, "{name}:")?,
            }
            for Entry { id, description, memory, free } in devices {
                let memory = memory.map_or_else(|| "memory unknown".to_owned(), gibibytes);
                let free = free.map_or_else(String::new, |it| format!(", {} free", gibibytes(it)));
                writeln!(out, "  {id}  {memory}{free}  {description}")?;
            }
            if let Some(note) = note {
                writeln!(out, "  ({note})")?;
            }
        }
        for Route { from, to, route } in &self.routes {
            writeln!(out, "route {from} to {to}: {route}")?;
        }
        Ok(())
    }
}

impl Backend {
    fn absent(name: &'static str, why: &str) -> Self {
        Self { name, version: None, absent: Some(why.to_owned()), devices: Vec::new(), note: None }
    }
}

impl Entry {
    fn new(device: &Device) -> Self {
        let backend = device.backend();
        let memory = backend.memory_info(device.id());
        Self {
            id: device.to_string(),
            description: backend.description(device.id()),
            memory: memory.map(|it| it.total),
            free: memory.map(|it| it.free),
        }
    }
}

/// The routes of every ordered pair.
fn routes(devices: &[Device]) -> Vec<Route> {
    let transport = StreamTransport::new();
    let pairs = devices.iter().flat_map(|from| devices.iter().map(move |to| (from, to)));
    let route = |(from, to): (&Device, &Device)| Route {
        from: from.to_string(),
        to: to.to_string(),
        route: match transport.route(from, to) {
            Ok(route) => route.name().to_owned(),
            Err(error) => format!("none: {}", error.reason()),
        },
    };
    pairs.map(route).collect()
}

fn gibibytes(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ordered_pair_of_devices_has_a_route() {
        let devices = Device::cpus(2);
        let found = routes(&devices);
        let found: Vec<_> = found.iter().map(|it| (&*it.from, &*it.to, &*it.route)).collect();
        assert_eq!(
            found,
            [
                ("cpu:0", "cpu:0", "same"),
                ("cpu:0", "cpu:1", "host"),
                ("cpu:1", "cpu:0", "host"),
                ("cpu:1", "cpu:1", "same"),
            ]
        );
    }

    #[test]
    fn sizes_are_printed_in_binary_units() {
        assert_eq!(gibibytes(3 << 29), "1.5 GiB");
    }
}
