//! One rank's side of a group that spreads over processes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, TryLockError};
use std::time::{Duration, Instant};

use aether_collective::{GroupConfig, Signature};
use aether_core::{DType, Device, Error, ErrorKind, Result};

use super::collective::Collective;
use super::messages::Messages;
use super::table::Table;
use super::trouble;
use crate::lane::End;
use crate::resource::HostRange;
use crate::shared::lock;

/// One rank of a group that spreads over processes.
pub(crate) struct Member {
    pub(crate) table: Table,
    current: Mutex<Current>,
    panicked: AtomicBool,
}

/// What the rank does. The driver's contract has one thread at a time here, and a second one that comes
/// nevertheless finds it taken: nobody waits for it while memory moves.
#[derive(Default)]
struct Current {
    operation: Operation,
    since: Option<Instant>,
    looks: u32,
    /// Looks since something moved.
    idle: u32,
    /// When it was first seen that nothing moves.
    idle_since: Option<Instant>,
    /// The others are asked to ring.
    is_asleep: bool,
    /// The others are shown what it waits for.
    is_shown: bool,
    collective: Collective,
    messages: Messages,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Operation {
    #[default]
    Nothing,
    Collective,
    Messages,
}

/// What a look at an operation came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// It has ended.
    Over,
    /// Something moved, and there is more to do.
    Moved,
    /// It waits for other ranks.
    Waits,
}

/// How many looks at a call that waits pass between looks at the clock and at the others.
const LOOKS: u32 = 16;
/// After so many looks at which nothing moved the others are asked to ring: about as many as a thread
/// makes that waits, spins and yields before it sleeps. A bell costs who rings a call of the system, and
/// has the ear take a core from a rank, so nobody is asked who looks anyway.
const LOOKS_AWAKE: u32 = 2000;
/// So are they after this time: where workers look, looks are few.
const AWAKE: Duration = Duration::from_micros(500);
/// After so many looks in a row the caller has others to look at.
const LOOKS_AT_ONCE: u32 = 8;

impl Member {
    /// Joins the group `name` as one of its ranks.
    ///
    /// # Errors
    /// Those of [`super::join::join`]; `RankOutOfRange`; `Unsupported` for more ranks than can be.
    pub(crate) fn join(
        name: &str,
        ranks: usize,
        rank: usize,
        device: &Device,
        config: &GroupConfig,
    ) -> Result<Self> {
        let refuse = |kind, reason| {
            Err(Error::new(kind, "join a group", reason).on(device).about_ranks([rank]))
        };
        if rank >= ranks {
            let reason = format!("rank {rank} is out of range: there are {ranks} ranks");
            return refuse(ErrorKind::RankOutOfRange, reason);
        }
        if ranks > super::shape::MOST_RANKS {
            let most = super::shape::MOST_RANKS;
            let reason =
                format!("{ranks} ranks in several processes are more than {most}, which can be");
            return refuse(ErrorKind::Unsupported, reason);
        }
        let table = Table::join(name, ranks, rank, device.id(), config)?;
        Ok(Self { table, current: Mutex::default(), panicked: AtomicBool::new(false) })
    }

    pub(crate) fn failure(&self) -> Option<Error> {
        self.table.failure().cloned()
    }

    pub(crate) fn abort(&self, why: &Error) {
        self.table.fail(why.clone());
    }

    /// This rank's thread unwinds: that is why it will leave.
    pub(crate) fn panicked(&self) {
        self.panicked.store(true, Ordering::Release);
    }

    /// Arrives at the next collective.
    ///
    /// # Errors
    /// `GroupBroken`; `Unsupported` within a batch.
    pub(crate) fn arrive(
        &self,
        signature: Signature,
        src: Option<HostRange>,
        dst: Option<HostRange>,
        counts: &[u64],
    ) -> Result<()> {
        self.table.check_alive(signature.operation.name())?;
        let mut current = lock(&self.current);
        if current.messages.is_open() {
            let (name, reason) = (signature.operation.name(), "a batch is of messages alone");
            return Err(Error::new(ErrorKind::Unsupported, name, reason).on("host"));
        }
        current.begin(Operation::Collective);
        current.collective.arrive(&self.table, signature, src, dst, counts);
        Ok(())
    }

    /// Opens a batch of messages.
    ///
    /// # Errors
    /// `GroupBroken`; `InvalidArgument` if one is open.
    pub(crate) fn batch_begin(&self) -> Result<()> {
        self.table.check_alive("begin a batch")?;
        lock(&self.current).messages.open()
    }

    /// Ends the batch, and posts its messages; none of them if one was refused.
    ///
    /// # Errors
    /// `InvalidArgument` if no batch is open; `GroupBroken`; the refusal of a message.
    pub(crate) fn batch_end(&self) -> Result<()> {
        let mut current = lock(&self.current);
        current.messages.close()?;
        self.table.check_alive("end a batch")?;
        current.begin(Operation::Messages);
        current.messages.post(&self.table);
        Ok(())
    }

    /// Adds a message to the open batch, or makes it one of its own.
    ///
    /// # Errors
    /// `GroupBroken`, `RankOutOfRange`.
    pub(crate) fn message(
        &self,
        end: End,
        memory: HostRange,
        dtype: DType,
        count: u64,
        peer: usize,
    ) -> Result<()> {
        let mut current = lock(&self.current);
        let alone = !current.messages.is_open();
        if alone {
            drop(current);
            self.batch_begin()?;
            current = lock(&self.current);
        }
        let added = current.messages.add(&self.table, end, memory, dtype, count, peer);
        drop(current);
        if alone { self.batch_end() } else { added }
    }

    /// Does what can be done for the current operation without waiting, and says whether it has ended.
    ///
    /// # Errors
    /// The operation failed, and this rank touches no memory of it any more. The others read the memory
    /// that they reach directly at most, and don't believe what they read.
    pub(crate) fn poll(&self) -> Result<bool> {
        let mut current = match self.current.try_lock() {
            Ok(current) => current,
            Err(TryLockError::Poisoned(current)) => current.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(false),
        };
        current.poll(&self.table)
    }
}

impl Current {
    fn begin(&mut self, operation: Operation) {
        self.operation = operation;
        (self.since, self.looks, self.idle, self.idle_since) = (None, 0, 0, None);
    }

    fn poll(&mut self, table: &Table) -> Result<bool> {
        let mut looks = 0;
        loop {
            let look = match self.operation {
                Operation::Nothing => return Ok(true),
                Operation::Collective => self.collective.advance(table),
                Operation::Messages => self.messages.advance(table),
            };
            match look {
                Ok(Look::Over) => {
                    self.awake(table);
                    self.operation = Operation::Nothing;
                    return Ok(true);
                }
                Ok(Look::Moved) => {
                    self.awake(table);
                    aether_core::progress::moved();
                    if !self.is_late(table) {
                        // Whatever happened to the group: a call that can end still does.
                        continue;
                    }
                    if table.failure().is_none() {
                        trouble::report_late(table, &self.describe(), &[]);
                    }
                }
                Ok(Look::Waits) => {
                    let knew = table.peeked_failure().is_some();
                    // What is asked of the others counts only for looks that follow.
                    looks = if self.wait(table) { 0 } else { looks + 1 };
                    if !knew && table.peeked_failure().is_some() {
                        // Of a rank that went on to its next call, and failed there, all that this
                        // call needs is seen by now.
                        continue;
                    }
                    if looks >= LOOKS_AT_ONCE && table.peeked_failure().is_none() {
                        return Ok(false);
                    }
                }
                Err(error) => table.fail(error),
            }
            if let Some(error) = table.peeked_failure() {
                let error = error.clone();
                self.awake(table);
                self.operation = Operation::Nothing;
                return Err(error);
            }
        }
    }

    /// Something moved.
    fn awake(&mut self, table: &Table) {
        if std::mem::take(&mut self.is_asleep) {
            table.own().asleep.set(false);
        }
        if std::mem::take(&mut self.is_shown) {
            table.own().wait.write("", &[]);
        }
        (self.idle, self.idle_since) = (0, None);
    }

    /// Looks, now and then, whether what the operation waits for will never come. Says whether it has
    /// just asked the others to ring.
    fn wait(&mut self, table: &Table) -> bool {
        self.idle = self.idle.saturating_add(1);
        self.looks = self.looks.wrapping_add(1);
        if !self.looks.is_multiple_of(LOOKS) || table.failure().is_some() {
            return false;
        }
        let idle = self.idle_for();
        let asks = !self.is_asleep && (self.idle >= LOOKS_AWAKE || idle >= AWAKE);
        if asks {
            table.own().asleep.set(true);
            self.is_asleep = true;
        }
        self.look_around(table);
        asks
    }

    /// Looks whether what the operation waits for will never come, and shows for whom it waits.
    fn look_around(&mut self, table: &Table) {
        // Who is gone comes first: a rank that is then found absent made no call before it went.
        let gone: Vec<(usize, String)> =
            table.others().filter_map(|(rank, _)| Some((rank, table.gone(rank)?))).collect();
        let waited = self.waited();
        let late = waited >= table.config.deadline;
        // Looks may be few where there is much else to do, and the others' deadlines pass all the same.
        let long = self.is_asleep || waited >= table.config.deadline / 4;
        if gone.is_empty() && !late && !long {
            return;
        }
        let absent = self.absent(table);
        let needed: Vec<&(usize, String)> =
            gone.iter().filter(|(rank, _)| absent.contains(rank)).collect();
        if !needed.is_empty() {
            trouble::report_gone(table, &self.describe(), &needed);
        } else if late {
            trouble::report_late(table, &self.describe(), &absent);
        } else if !self.is_shown {
            table.own().wait.write(&self.describe(), &absent);
            self.is_shown = true;
        }
    }

    fn is_late(&mut self, table: &Table) -> bool {
        self.waited() >= table.config.deadline
    }

    /// How long ago the operation was first seen unfinished.
    fn waited(&mut self) -> Duration {
        let now = Instant::now();
        now.saturating_duration_since(*self.since.get_or_insert(now))
    }

    /// How long ago it was first seen that nothing moves.
    fn idle_for(&mut self) -> Duration {
        let now = Instant::now();
        now.saturating_duration_since(*self.idle_since.get_or_insert(now))
    }

    fn absent(&self, table: &Table) -> Vec<usize> {
        match self.operation {
            Operation::Nothing => Vec::new(),
            Operation::Collective => self.collective.absent(table),
            Operation::Messages => self.messages.absent(table),
        }
    }

    fn describe(&self) -> String {
        match self.operation {
            Operation::Nothing => String::new(),
            Operation::Collective => self.collective.describe(),
            Operation::Messages => self.messages.describe(),
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.table.leave(self.panicked.load(Ordering::Acquire));
    }
}
