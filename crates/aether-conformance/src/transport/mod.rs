//! The suite for a [`Transport`]: that it moves every byte and no other, behind everything that
//! touches them, and refuses what makes no sense.
//!
//! The author of a transport implements [`TransportFixture`] and runs [`trials`].

mod moves;
mod ordering;
mod refusals;
mod rows;

use std::fmt;

use aether_core::{Completion, Device, ErrorKind, Result, Span, SpanMut, Stream};
use aether_residency::Transport;
use libtest_mimic::Trial;

use crate::checked::{Checked, Detector};
use crate::suite::{Arm, Failed, Outcome, passed, skipped};

/// The transport under test.
pub trait TransportFixture {
    /// A transport.
    ///
    /// # Errors
    /// Why there is none here; every case is then skipped with this reason.
    fn transport(&self) -> Result<Box<dyn Transport>, String>;

    /// Devices between all of which it moves bytes, of one backend or of several, at least one.
    ///
    /// # Errors
    /// Why there are none here; every case is then skipped with this reason.
    fn devices(&self) -> Result<Vec<Device>, String>;

    /// Two devices between which there is no way.
    fn apart(&self) -> Option<(Device, Device)> {
        None
    }

    /// Two devices, used by nobody else, and what makes the next copy or fill of their backend fail.
    fn failing(&self) -> Option<(Device, Device, Arm)> {
        None
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
    /// Runs it on the fixture's transport.
    ///
    /// # Errors
    /// What is wrong with the transport.
    pub fn run(&self, fixture: &dyn TransportFixture) -> Outcome {
        let found = fixture.transport().and_then(|it| Ok((it, fixture.devices()?)));
        match found {
            Err(reason) => skipped(reason),
            Ok((_, devices)) if devices.is_empty() => Err("the fixture has no device".into()),
            Ok((transport, devices)) => (self.run)(&Bench { fixture, transport, devices }),
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
    let themes: [&[Case]; 4] = [&moves::CASES, &ordering::CASES, &refusals::CASES, &rows::CASES];
    themes.concat()
}

/// The suite over a fixture, as trials of libtest-mimic.
pub fn trials(fixture: impl TransportFixture + Clone + Send + Sync + 'static) -> Vec<Trial> {
    cases()
        .into_iter()
        .map(|case| {
            let fixture = fixture.clone();
            Trial::ignorable_test(format!("transport::{}", case.name), move || case.run(&fixture))
        })
        .collect()
}

/// What a case has: the fixture, its transport and its devices.
pub(crate) struct Bench<'a> {
    fixture: &'a dyn TransportFixture,
    transport: Box<dyn Transport>,
    devices: Vec<Device>,
}

impl Bench<'_> {
    /// Every ordered pair, each device with itself included: from where, to where.
    fn pairs(&self) -> impl Iterator<Item = (&Device, &Device)> {
        self.devices.iter().flat_map(|from| self.devices.iter().map(move |to| (from, to)))
    }

    /// The same devices by way of one detector for all their backends.
    fn watched(&self) -> (Detector, Vec<Device>) {
        let detector = Detector::new();
        let mut known: Vec<(Device, Device)> = Vec::new();
        for device in &self.devices {
            let same = known.iter().find(|(it, _)| it.shares_backend(device));
            let watched = match same {
                Some((_, watched)) => Device::new(device.id(), watched.backend().clone()),
                None => {
                    let checked = Checked::around_sharing(&detector, device.backend().clone());
                    checked.device(device.id())
                }
            };
            known.push((device.clone(), watched));
        }
        (detector, known.into_iter().map(|it| it.1).collect())
    }

    /// A copy on a stream, or none where only a blocking one goes.
    fn copy_async(
        &self,
        dst: SpanMut<'_>,
        src: Span<'_>,
        stream: &Stream,
    ) -> Result<Option<Completion>, Failed> {
        unless_blocking(self.transport.copy_async(dst, src, stream))
    }
}

fn unless_blocking(found: Result<Completion>) -> Result<Option<Completion>, Failed> {
    match found {
        Ok(work) => Ok(Some(work)),
        Err(error) if error.kind() == ErrorKind::IllegalPair => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A case that needs copies on streams: skipped where no pair has them.
fn passed_if(any: bool) -> Outcome {
    if any { passed() } else { skipped("no copy goes on a stream") }
}
