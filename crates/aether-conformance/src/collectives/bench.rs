//! What a case has: devices, groups in both forms, and the calls on them.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aether_collective::{GroupConfig, ReduceOp, Request};
use aether_core::{DType, Device, Error, ErrorKind, Result};

use super::member::{Call, Member, outcomes};
use super::subject::Subject;
use crate::suite::Failed;

/// Why a case ended early.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It can't run here.
    Skipped(String),
    /// What is wrong.
    Failed(String),
}

/// A part of a case.
pub(crate) type Step<T = ()> = std::result::Result<T, Stop>;

impl Stop {
    pub(crate) fn failed(why: impl Into<String>) -> Self {
        Self::Failed(why.into())
    }

    /// The same, and in which circumstances.
    pub(crate) fn during(self, what: impl fmt::Display) -> Self {
        match self {
            Self::Failed(why) => Self::Failed(format!("{what}: {why}")),
            skipped => skipped,
        }
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(format!("{error:?}"))
    }
}

impl From<Failed> for Stop {
    fn from(failed: Failed) -> Self {
        Self::Failed(failed.message().unwrap_or("failed").to_owned())
    }
}

/// Expects a condition.
pub(crate) fn expect(holds: bool, what: impl FnOnce() -> String) -> Step {
    if holds { Ok(()) } else { Err(Stop::Failed(what())) }
}

/// Expects an error of this kind.
pub(crate) fn expect_kind<T>(found: Result<T>, kind: ErrorKind, what: &str) -> Step<Error> {
    Ok(crate::suite::expect_error(found, kind, what)?)
}

/// Who makes the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// One caller holds all members.
    OneCaller,
    /// A thread a rank holds one.
    ThreadPerRank,
}

impl Form {
    pub(crate) const ALL: [Self; 2] = [Self::OneCaller, Self::ThreadPerRank];
}

/// All members of a group, in either form.
pub(crate) enum Team {
    /// Held by one caller.
    One(Member),
    /// One for each rank.
    Many(Vec<Member>),
}

/// What a case has.
pub(crate) struct Bench<'a> {
    pub(crate) subject: &'a dyn Subject,
    pub(crate) case: &'static str,
}

impl Bench<'_> {
    /// So many devices, by rank.
    pub(crate) fn devices(&self, count: usize) -> Step<Vec<Device>> {
        let Some(mut devices) = self.subject.devices(count) else {
            return Err(Stop::Skipped(format!("there are not {count} devices")));
        };
        devices.sort_by_key(Device::id);
        Ok(devices)
    }

    /// The fixture's configuration under a name that no other group has.
    pub(crate) fn config(&self) -> GroupConfig {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let config = self.subject.config();
        let prefix = config.name.clone().unwrap_or_default();
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        config.named(format!("{prefix}/{}/{serial}", self.case))
    }

    /// The same with the short deadline of cases that wait for one.
    pub(crate) fn hasty(&self) -> GroupConfig {
        let config = self.config();
        let join_deadline = config.join_deadline;
        let mut hasty = config.with_deadline(self.subject.deadline());
        hasty.join_deadline = join_deadline;
        hasty
    }

    pub(crate) fn patience(&self) -> Duration {
        self.subject.patience()
    }

    /// A group of these devices in this form.
    pub(crate) fn team(&self, form: Form, devices: &[Device], config: &GroupConfig) -> Step<Team> {
        Ok(match form {
            Form::OneCaller => {
                let all = self.subject.join_all(devices, config)?;
                let ranks = devices.len();
                Team::One(Member::new(all, 0..ranks, ranks, config.deadline))
            }
            Form::ThreadPerRank => Team::Many(self.members(devices, config)?),
        })
    }

    /// A group of these devices, its members by rank.
    pub(crate) fn members(&self, devices: &[Device], config: &GroupConfig) -> Step<Vec<Member>> {
        let join = |rank| self.member(devices, rank, config);
        let joined: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..devices.len()).map(|rank| scope.spawn(move || join(rank))).collect();
            threads.into_iter().map(|it| it.join()).collect()
        });
        joined
            .into_iter()
            .map(|it| it.map_err(|_| Stop::failed("a thread that joined panicked"))?)
            .collect()
    }

    /// One member of a group of these devices.
    pub(crate) fn member(
        &self,
        devices: &[Device],
        rank: usize,
        config: &GroupConfig,
    ) -> Step<Member> {
        let Some(device) = devices.get(rank) else {
            return Err(Stop::failed(format!("there is no rank {rank}")));
        };
        let joined = self.subject.join(devices, device, config).map_err(|error| {
            Stop::from(error).during(format!("rank {rank} of {} joins", devices.len()))
        })?;
        Ok(Member::new(joined, rank..rank + 1, devices.len(), config.deadline))
    }

    /// Runs a part of the case in both forms, with so many ranks.
    pub(crate) fn both(&self, ranks: usize, part: impl Fn(&mut Team, &[Device]) -> Step) -> Step {
        let devices = self.devices(ranks)?;
        for form in Form::ALL {
            let mut team = self.team(form, &devices, &self.config())?;
            let finished = part(&mut team, &devices).and_then(|()| team.finish());
            finished.map_err(|it| it.during(format!("{form:?} of {ranks} ranks")))?;
        }
        Ok(())
    }

    /// The types that the driver knows.
    pub(crate) fn types(&self) -> Vec<DType> {
        DType::ALL.into_iter().filter(|&it| self.subject.knows(it)).collect()
    }

    /// The types that the driver reduces so.
    pub(crate) fn reducible(&self, op: ReduceOp) -> Vec<DType> {
        let reduced = |it: &DType| *it != DType::Bool && self.subject.reduces(*it, op);
        self.types().into_iter().filter(reduced).collect()
    }

    /// The floats that the driver reduces so.
    pub(crate) fn floats(&self, op: ReduceOp) -> Vec<DType> {
        let float = |it: &DType| super::reference::is_float(*it);
        self.reducible(op).into_iter().filter(float).collect()
    }

    /// Skips the case unless the driver reduces the type so.
    pub(crate) fn needs(&self, dtype: DType, op: ReduceOp) -> Step {
        if self.reducible(op).contains(&dtype) {
            return Ok(());
        }
        Err(Stop::Skipped(format!("the driver does not reduce {dtype} by {op}")))
    }
}

impl Team {
    /// Makes a call of every rank, and waits for its end: one outcome a caller.
    pub(crate) fn run(&mut self, requests: Vec<Request<'_>>) -> Vec<Result<()>> {
        match self {
            Self::One(all) => vec![all.run(requests)],
            Self::Many(each) => std::thread::scope(|scope| {
                let both = each.iter_mut().zip(requests);
                let threads: Vec<_> = both
                    .map(|(member, request)| scope.spawn(move || member.run(vec![request])))
                    .collect();
                threads
                    .into_iter()
                    .map(|it| it.join().unwrap_or_else(|_| Err(panicked())))
                    .collect()
            }),
        }
    }

    /// Makes calls that are refused. Where only rank 0's is, the others' wouldn't end: in the form with
    /// a caller a rank they are left out.
    pub(crate) fn refused(
        &mut self,
        mut requests: Vec<Request<'_>>,
        only_first: bool,
    ) -> Vec<Result<()>> {
        if only_first && matches!(self, Self::Many(_)) {
            requests.truncate(1);
        }
        self.run(requests)
    }

    /// Makes a call of every rank that has to go well.
    pub(crate) fn all(&mut self, requests: Vec<Request<'_>>) -> Step {
        let outcomes = self.run(requests);
        let callers = self.callers();
        outcomes.into_iter().zip(callers).try_for_each(|(outcome, caller)| {
            outcome.map_err(|error| Stop::from(error).during(caller))
        })
    }

    /// Makes a call of every rank, and gives the outcome of each. Fails if one of them hangs.
    pub(crate) fn outcomes(
        &mut self,
        requests: Vec<Request<'_>>,
        patience: Duration,
    ) -> Step<Vec<Result<()>>> {
        outcomes(&self.submit(requests), patience)
    }

    /// Makes a call of every rank, and returns at once: one call taken a caller.
    pub(crate) fn submit(&mut self, requests: Vec<Request<'_>>) -> Vec<Result<Call>> {
        match self {
            Self::One(all) => vec![all.submit(requests)],
            Self::Many(each) => {
                let both = each.iter_mut().zip(requests);
                both.map(|(member, request)| member.submit(vec![request])).collect()
            }
        }
    }

    /// Each caller's members.
    pub(crate) fn callers(&mut self) -> Vec<&mut Member> {
        match self {
            Self::One(all) => vec![all],
            Self::Many(each) => each.iter_mut().collect(),
        }
    }

    /// Leaves the group in order.
    pub(crate) fn finish(self) -> Step {
        let each = match self {
            Self::One(all) => vec![all],
            Self::Many(each) => each,
        };
        Ok(each.into_iter().try_for_each(|it| it.finish())?)
    }
}

fn panicked() -> Error {
    Error::new(ErrorKind::Panicked, "make a call", "the thread of a rank panicked")
}
