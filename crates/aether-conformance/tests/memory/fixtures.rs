//! The backends that the suite runs over.

use std::sync::Arc;
use std::time::Duration;

use aether_conformance::checked::Checked;
use aether_conformance::doubles::{Remote, Scrambled};
use aether_conformance::memory::{Case, MemoryFixture};
use aether_conformance::suite::Outcome;
use aether_core::{Backend, Device, DeviceId, DeviceKind, HostBackend, Link};

/// A backend by the function that makes it.
#[derive(Clone, Copy)]
pub(crate) struct Fixture {
    pub(crate) name: &'static str,
    devices: fn() -> Vec<Device>,
    /// Makes a double that can be told to fail.
    remote: Option<fn() -> Arc<Remote>>,
}

pub(crate) fn all() -> Vec<Fixture> {
    vec![
        Fixture { name: "host", devices: || Device::cpus(3), remote: None },
        Fixture {
            name: "checked host",
            devices: || Checked::new(HostBackend::new()).devices(DeviceKind::CPU, 3),
            remote: None,
        },
        Fixture {
            name: "asynchronous host",
            devices: || {
                let backend = Scrambled::new(Arc::new(HostBackend::new()), 11).unwrap();
                cpus(&backend)
            },
            remote: None,
        },
        Fixture {
            name: "asynchronous host, ordered by the host",
            devices: || {
                let backend = Scrambled::ordered_by_host(Arc::new(HostBackend::new()), 12);
                cpus(&backend.unwrap())
            },
            remote: None,
        },
        Fixture { name: "remote", devices: || remote().devices(), remote: Some(remote) },
        Fixture { name: "remote host", devices: || vec![remote().host()], remote: Some(remote) },
        Fixture {
            name: "remote without peers",
            devices: || {
                let built =
                    Remote::builder().devices(3).peers(Link::None).host_link(Link::Indirect);
                built.pair(0, 2, Link::Indirect).build().unwrap().devices()
            },
            remote: Some(remote),
        },
        Fixture {
            name: "asynchronous remote",
            devices: || {
                let backend = Scrambled::new(remote(), 13).unwrap();
                let ids = (0..2).map(|index| DeviceId::new(Remote::KIND, index));
                ids.map(|id| backend.device(id)).collect()
            },
            remote: None,
        },
    ]
}

fn cpus(backend: &Arc<Scrambled>) -> Vec<Device> {
    (0..3).map(|index| backend.device(DeviceId::new(DeviceKind::CPU, index))).collect()
}

fn remote() -> Arc<Remote> {
    Remote::builder().limit(32 << 20).build().unwrap()
}

impl MemoryFixture for Fixture {
    fn devices(&self) -> Result<Vec<Device>, String> {
        Ok((self.devices)())
    }

    fn unknown_device(&self) -> Option<DeviceId> {
        let served = (self.devices)().first()?.id();
        (served.kind != DeviceKind::CPU).then(|| DeviceId::new(served.kind, 99))
    }

    fn failing_allocation(&self) -> Option<Device> {
        let remote = (self.remote?)();
        remote.fail_allocation_after(0);
        remote.devices().first().cloned()
    }

    fn failing_copy(&self) -> Option<(Device, Box<dyn Fn()>)> {
        let remote = (self.remote?)();
        let device = remote.devices().first().cloned()?;
        Some((device, Box::new(move || remote.fail_copy_after(0))))
    }
}

/// Runs a case on the host by way of one detector for all that the case does.
pub(crate) fn watched(case: Case) -> Outcome {
    struct Watched(Arc<Checked<HostBackend>>);

    impl MemoryFixture for Watched {
        fn devices(&self) -> Result<Vec<Device>, String> {
            Ok(self.0.devices(DeviceKind::CPU, 3))
        }
    }

    let fixture = Watched(Checked::new(HostBackend::new()));
    let ended = case.run(&fixture)?;
    fixture.0.verdict()?;
    Ok(ended)
}

/// A host backend of its own, as a mutant's inside.
pub(crate) fn host() -> Arc<dyn Backend> {
    Arc::new(HostBackend::new())
}

/// A remote double, as a mutant's inside.
pub(crate) fn inner_remote() -> Arc<dyn Backend> {
    remote()
}

/// An asynchronous host that is slow, so that a mutant that is early is seen to be, as its inside.
pub(crate) fn slow() -> Arc<dyn Backend> {
    let backend = Scrambled::new(host(), 14).unwrap();
    backend.slow_down(Duration::from_micros(200));
    backend
}
