//! The host's devices and driver as a fixture.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use aether_conformance::checked::Checked;
use aether_conformance::collectives::CollectiveFixture;
use aether_conformance::doubles::Scrambled;
use aether_core::{Device, DeviceId, DeviceKind, HostBackend};
use aether_host::Host;

/// The host, with devices of their own for each call: any index is a device of this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnTheHost;

/// The first of so many indices that nobody else has.
pub(crate) fn indices(count: usize) -> std::ops::Range<u32> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = NEXT.fetch_add(count as u32, Ordering::Relaxed);
    first..first + count as u32
}

impl CollectiveFixture for OnTheHost {
    type Driver = Host;

    fn devices(&self, count: usize) -> Option<Vec<Device>> {
        Some(indices(count).map(Device::cpu).collect())
    }

    fn watched(&self, count: usize) -> Option<(Arc<Checked>, Vec<Device>)> {
        // Work is issued at once and ends later, so that nothing is ordered by chance.
        let scrambled = Scrambled::new(Arc::new(HostBackend::new()), count as u64).ok()?;
        let checked = Checked::around(scrambled);
        let ids = indices(count).map(|index| DeviceId::new(DeviceKind::CPU, index));
        let devices = ids.map(|id| checked.device(id)).collect();
        Some((checked, devices))
    }
}

/// The host with no more than what a fixture has to say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain;

impl CollectiveFixture for Plain {
    type Driver = Host;

    fn devices(&self, count: usize) -> Option<Vec<Device>> {
        OnTheHost.devices(count)
    }
}
