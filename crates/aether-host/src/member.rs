//! A member of a host group, whichever way its ranks reach each other.

use std::fmt;

use aether_collective::{GroupConfig, Signature};
use aether_core::{DType, Device, Error, Result};

use crate::comm;
use crate::lane::End;
use crate::processes;
use crate::registry::HostId;
use crate::resource::HostRange;

/// One member of a host group.
pub struct Communicator(Way);

enum Way {
    /// All ranks are in this process.
    Threads(comm::Communicator),
    /// They are in several.
    Processes(Box<processes::Member>),
}

/// Asks whichever it is.
macro_rules! ask {
    ($it:expr, $member:ident => $ask:expr) => {
        match &$it.0 {
            Way::Threads($member) => $ask,
            Way::Processes($member) => $ask,
        }
    };
}

impl Communicator {
    pub(crate) fn join(
        id: HostId,
        ranks: usize,
        rank: usize,
        device: &Device,
        config: &GroupConfig,
    ) -> Result<Self> {
        Ok(Self(match id.meeting() {
            None => Way::Threads(comm::Communicator::join(id, ranks, rank, device, config)?),
            Some(name) => {
                let member = processes::Member::join(&name, ranks, rank, device, config)?;
                Way::Processes(Box::new(member))
            }
        }))
    }

    pub(crate) fn arrive(
        &self,
        signature: Signature,
        src: Option<HostRange>,
        dst: Option<HostRange>,
        counts: &[u64],
    ) -> Result<()> {
        ask!(self, it => it.arrive(signature, src, dst, counts))
    }

    pub(crate) fn message(
        &self,
        end: End,
        memory: HostRange,
        dtype: DType,
        count: u64,
        peer: usize,
    ) -> Result<()> {
        ask!(self, it => it.message(end, memory, dtype, count, peer))
    }

    pub(crate) fn batch_begin(&self) -> Result<()> {
        ask!(self, it => it.batch_begin())
    }

    pub(crate) fn batch_end(&self) -> Result<()> {
        ask!(self, it => it.batch_end())
    }

    pub(crate) fn poll(&self) -> Result<bool> {
        ask!(self, it => it.poll())
    }

    pub(crate) fn failure(&self) -> Option<Error> {
        ask!(self, it => it.failure())
    }

    pub(crate) fn abort(&self, why: &Error) {
        ask!(self, it => it.abort(why));
    }

    pub(crate) fn panicked(&self) {
        ask!(self, it => it.panicked());
    }
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Way::Threads(it) => it.fmt(f),
            Way::Processes(it) => {
                let table = &it.table;
                write!(f, "Communicator({} of {})", table.name_of(table.rank), table.ranks)
            }
        }
    }
}
