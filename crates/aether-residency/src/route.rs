//! Which way bytes take between two devices.

use std::fmt;

use aether_core::{Device, Error, ErrorKind, Link, Result, link};

/// Which way bytes take from one device to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Route {
    /// By one copy, with memory of the host on one side or on both.
    Host,
    /// By one copy from device to device. Memory of the host takes no part, unless the backend stages
    /// inside of its own copy and names no memory to stage through.
    Peer,
    /// By one copy within the device.
    Same,
    /// By two or three copies, in pieces, through memory of the host.
    Staged,
}

impl Route {
    /// The name: `host`, `peer`, `same`, `staged`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Peer => "peer",
            Self::Same => "same",
            Self::Staged => "staged",
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A route with what it leads through.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) route: Route,
    /// Both ends, and the staging devices between them.
    pub(crate) devices: Vec<Device>,
    /// The links between neighbours: one fewer than devices.
    pub(crate) links: Vec<Link>,
}

impl Path {
    /// The way from one device to the other; past the direct one if it is told to stage.
    ///
    /// # Errors
    /// `IllegalPair` if not even staging works.
    pub(crate) fn find(from: &Device, to: &Device, stage: bool) -> Result<Self> {
        let direct = link(from, to);
        let host_takes_part = from.host_addressable() || to.host_addressable();
        let route = match direct {
            _ if from == to => Route::Same,
            _ if host_takes_part => Route::Host,
            _ => Route::Peer,
        };
        // What a driver stages inside of its copy is better staged here, in pieces.
        let worth = direct == Link::None || route == Route::Peer && direct < Link::Direct;
        if (stage || worth)
            && let Some(path) = Self::staged(from, to, stage)
        {
            return Ok(path);
        }
        if direct == Link::None {
            let reason = "no copy goes between the devices, and no memory of the host reaches both: \
                          neither backend names staging memory that would";
            return Err(Error::new(ErrorKind::IllegalPair, "find a route", reason)
                .on(format!("{from} to {to}")));
        }
        Ok(Self { route, devices: vec![from.clone(), to.clone()], links: vec![direct] })
    }

    /// How many copies it takes.
    pub(crate) fn hops(&self) -> usize {
        self.links.len()
    }

    /// The staging devices.
    pub(crate) fn stops(&self) -> &[Device] {
        self.devices.get(1..self.links.len()).unwrap_or_default()
    }

    /// The ends and the link of one copy.
    pub(crate) fn hop(&self, at: usize) -> Option<(&Device, &Device, Link)> {
        Some((self.devices.get(at)?, self.devices.get(at + 1)?, *self.links.get(at)?))
    }

    /// The best way through staging memory: through one stop rather than two, by the best links.
    fn staged(from: &Device, to: &Device, told: bool) -> Option<Self> {
        let staging = |it: &Device| it.backend().staging(it.id()).filter(Device::host_addressable);
        let (near, far) = (staging(from), staging(to));
        // Between two kinds of host memory there is nothing to stage, unless it is asked for.
        let host = told.then(|| Device::cpu(0));
        let single = [&near, &far, &host].into_iter().flatten().map(|it| vec![it.clone()]);
        let double = near.clone().zip(far.clone()).map(|(near, far)| vec![near, far]);
        let mut best: Option<Self> = None;
        for stops in single.chain(double) {
            let devices: Vec<_> =
                [from.clone()].into_iter().chain(stops).chain([to.clone()]).collect();
            let links: Vec<_> = devices
                .iter()
                .zip(devices.iter().skip(1))
                .map(|(one, two)| link(one, two))
                .collect();
            let weakest = |links: &[Link]| links.iter().copied().min().unwrap_or(Link::None);
            let found = weakest(&links);
            let better = best.as_ref().is_none_or(|it| found > weakest(&it.links));
            if found > Link::None && better {
                best = Some(Self { route: Route::Staged, devices, links });
            }
        }
        best
    }
}
