//! The suite for a [`Backend`](aether_core::Backend): what aether-core asks of one, as cases.
//!
//! The author of a backend implements [`MemoryFixture`] and runs [`trials`]. A case that the backend
//! can't run is printed as ignored with the reason.

mod allocation;
mod bad_input;
mod copies;
mod failures;
mod fills;
mod lifetimes;
mod ordering;
pub mod programs;
mod streams;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aether_core::{Chunk, Device, DeviceId, Link, link};
use libtest_mimic::Trial;

use crate::checked::Checked;
use crate::suite::{Arm, Failed, Outcome, expect_same, skipped};

/// The backend under test.
pub trait MemoryFixture {
    /// A few devices of one backend instance, at least one: the same ones at each call or new ones.
    ///
    /// # Errors
    /// Why there is none here; every case is then skipped with this reason.
    fn devices(&self) -> Result<Vec<Device>, String>;

    /// A size in bytes that no device has and that the backend can refuse. Provided as 2^46.
    fn too_much(&self) -> Option<usize> {
        1usize.checked_shl(46).filter(|&it| it > 0)
    }

    /// A device that the backend doesn't serve.
    fn unknown_device(&self) -> Option<DeviceId> {
        None
    }

    /// A device of which the next allocation fails and the one after that doesn't.
    fn failing_allocation(&self) -> Option<Device> {
        None
    }

    /// A device, used by nobody else, and what makes its next copy or fill fail, but not the one
    /// after that.
    fn failing_copy(&self) -> Option<(Device, Arm)> {
        None
    }

    /// How long work of a few milliseconds may take before it counts as hanging.
    fn patience(&self) -> Duration {
        Duration::from_secs(60)
    }
}

/// One case of the suite.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its theme and what it states.
    pub name: &'static str,
    run: fn(&Bench<'_>) -> Outcome,
}

impl Case {
    /// Runs it on the fixture's backend.
    ///
    /// # Errors
    /// What is wrong with the backend.
    pub fn run(&self, fixture: &dyn MemoryFixture) -> Outcome {
        match fixture.devices() {
            Err(reason) => skipped(reason),
            Ok(devices) if devices.is_empty() => Err("the fixture has no device".into()),
            Ok(devices) => (self.run)(&Bench { fixture, devices }),
        }
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// All cases, by theme.
pub fn cases() -> Vec<Case> {
    let themes: [&[Case]; 8] = [
        &allocation::CASES,
        &bad_input::CASES,
        &copies::CASES,
        &failures::CASES,
        &fills::CASES,
        &lifetimes::CASES,
        &ordering::CASES,
        &streams::CASES,
    ];
    themes.concat()
}

/// The suite over a fixture, as trials of libtest-mimic.
pub fn trials(fixture: impl MemoryFixture + Clone + Send + Sync + 'static) -> Vec<Trial> {
    cases()
        .into_iter()
        .map(|case| {
            let fixture = fixture.clone();
            Trial::ignorable_test(format!("memory::{}", case.name), move || case.run(&fixture))
        })
        .collect()
}

/// What a case has: the fixture and its devices.
pub(crate) struct Bench<'a> {
    pub(crate) fixture: &'a dyn MemoryFixture,
    devices: Vec<Device>,
}

impl Bench<'_> {
    pub(crate) fn devices(&self) -> &[Device] {
        &self.devices
    }

    pub(crate) fn first(&self) -> Result<&Device, Failed> {
        self.devices.first().ok_or_else(|| "the fixture has no device".into())
    }

    /// The devices between which work on a stream can copy, beginning with the first.
    pub(crate) fn linked(devices: &[Device]) -> Vec<Device> {
        let mut linked: Vec<Device> = Vec::new();
        for device in devices {
            if linked.iter().all(|it| link(it, device) >= Link::Indirect) {
                linked.push(device.clone());
            }
        }
        linked
    }

    /// The same devices by way of a detector.
    pub(crate) fn checked(&self) -> Result<(Arc<Checked>, Vec<Device>), Failed> {
        let checked = Checked::around(self.first()?.backend().clone());
        let devices = self.devices.iter().map(|it| checked.device(it.id())).collect();
        Ok((checked, devices))
    }

    /// Runs a program on the devices by way of a detector, and gives the detector's verdict.
    pub(crate) fn watched(
        &self,
        program: impl Fn(&[Device]) -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        let (checked, devices) = self.checked()?;
        program(&Self::linked(&devices))?;
        Ok(checked.verdict()?)
    }
}

/// Expects the chunk to hold these bytes.
pub(crate) fn expect_bytes(chunk: &Chunk, wanted: &[u8], what: &str) -> Result<(), Failed> {
    match chunk.device().host_addressable() {
        true => expect_same(chunk.slice::<u8>()?, wanted, what),
        false => expect_same(&chunk.to_vec::<u8>()?, wanted, what),
    }
}
