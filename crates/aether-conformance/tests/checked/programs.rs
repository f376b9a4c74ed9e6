//! Clean programs never give a report.

use aether_conformance::checked::Checked;
use aether_conformance::doubles::{Remote, Scrambled};
use aether_conformance::memory::programs;
use aether_core::{Backend, Device, DeviceKind, HostBackend};
use std::sync::Arc;

fn run(seeds: std::ops::Range<u64>, devices: &[Device]) {
    for seed in seeds {
        if let Err(failed) = programs::run(devices, seed) {
            panic!("{}", failed.message().unwrap_or("failed"));
        }
    }
}

#[test]
fn a_thousand_programs_on_the_host_give_no_report() {
    let checked = Checked::new(HostBackend::new());
    run(0..1000, &checked.devices(DeviceKind::CPU, 3));
    checked.verdict().unwrap();
}

#[test]
fn programs_on_an_asynchronous_backend_give_no_report() {
    for (seed, by_host) in [(1, false), (2, true)] {
        let host: Arc<dyn Backend> = Arc::new(HostBackend::new());
        let scrambled = match by_host {
            true => Scrambled::ordered_by_host(host, seed),
            false => Scrambled::new(host, seed),
        };
        let checked = Checked::of(scrambled.unwrap());
        run(0..300, &checked.devices(DeviceKind::CPU, 3));
        checked.verdict().unwrap();
    }
}

#[test]
fn programs_on_memory_that_the_host_cannot_address_give_no_report() {
    let remote = Remote::builder().devices(3).build().unwrap();
    let checked = Checked::of(Scrambled::new(remote, 3).unwrap());
    let mut devices = checked.devices(Remote::KIND, 3);
    devices.extend(checked.devices(Remote::HOST_KIND, 1));
    run(0..150, &devices);
    checked.verdict().unwrap();
}
