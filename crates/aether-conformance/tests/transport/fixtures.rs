//! The transports that the suite runs over.

use std::sync::Arc;

use aether_conformance::doubles::{Remote, Scrambled};
use aether_conformance::transport::TransportFixture;
use aether_core::{
    Completion, Device, DeviceId, Link, Result, Span, SpanMut, Stream, copy, copy_async,
};
use aether_residency::{StreamTransport, Transport};

/// The least that a transport is: core's copies. What it provides besides is provided.
pub(crate) struct Plain;

impl Transport for Plain {
    fn copy(&self, mut dst: SpanMut<'_>, src: Span<'_>) -> Result<()> {
        copy(&mut dst, &src)
    }

    fn copy_async(
        &self,
        mut dst: SpanMut<'_>,
        src: Span<'_>,
        stream: &Stream,
    ) -> Result<Completion> {
        copy_async(&mut dst, &src, stream)
    }
}

/// A transport and devices, by the functions that make them.
#[derive(Clone, Copy)]
pub(crate) struct Fixture {
    pub(crate) name: &'static str,
    transport: fn() -> Box<dyn Transport>,
    devices: fn() -> Vec<Device>,
}

pub(crate) fn all() -> Vec<Fixture> {
    let in_pieces = || Box::new(StreamTransport::new().piece_bytes(300)) as Box<dyn Transport>;
    let staging = || -> Box<dyn Transport> {
        Box::new(StreamTransport::new().piece_bytes(10_000).staging_always())
    };
    let stream = || Box::new(StreamTransport::new()) as Box<dyn Transport>;
    let cpus = || Device::cpus(3);
    vec![
        Fixture { name: "plain, host", transport: || Box::new(Plain), devices: cpus },
        Fixture { name: "stream, host", transport: stream, devices: cpus },
        Fixture { name: "stream, remote", transport: stream, devices: remotes },
        Fixture { name: "stream in pieces, remote", transport: in_pieces, devices: few_remotes },
        Fixture { name: "stream staging always, remote", transport: staging, devices: remotes },
        Fixture { name: "stream, asynchronous remote", transport: stream, devices: asynchronous },
    ]
}

/// Remote devices of which two are linked, their host memory, and the host.
fn remotes() -> Vec<Device> {
    let remote = Remote::builder().devices(3).peers(Link::None).pair(0, 1, Link::Direct);
    let remote = remote.build().unwrap();
    let mut devices = remote.devices();
    devices.extend([remote.host(), Device::cpu(0)]);
    devices
}

fn few_remotes() -> Vec<Device> {
    let remote = Remote::builder().peers(Link::None).build().unwrap();
    remote.devices()
}

fn asynchronous() -> Vec<Device> {
    let remote = Remote::builder().devices(2).peers(Link::None).build().unwrap();
    let backend = Scrambled::new(remote, 5).unwrap();
    let ids = [
        DeviceId::new(Remote::KIND, 0),
        DeviceId::new(Remote::KIND, 1),
        DeviceId::new(Remote::HOST_KIND, 0),
    ];
    ids.map(|id| backend.device(id)).into()
}

impl TransportFixture for Fixture {
    fn transport(&self) -> Result<Box<dyn Transport>, String> {
        Ok((self.transport)())
    }

    fn devices(&self) -> Result<Vec<Device>, String> {
        Ok((self.devices)())
    }

    fn apart(&self) -> Option<(Device, Device)> {
        // Core's copies alone don't stage.
        let remote = Remote::builder().build().ok()?;
        let plain = self.name.starts_with("plain");
        Some((remote.devices().first()?.clone(), Device::cpu(0))).filter(|_| plain)
    }

    fn failing(&self) -> Option<(Device, Device, Box<dyn Fn()>)> {
        let remote: Arc<Remote> = Remote::builder().build().ok()?;
        let devices = remote.devices();
        let (from, to) = (devices.first()?.clone(), devices.last()?.clone());
        Some((from, to, Box::new(move || remote.fail_copy_after(0))))
    }
}
