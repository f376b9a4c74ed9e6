//! One process of `--mode processes`: it joins the others, and carries out what it is told, a line at a
//! time.

use std::io::{BufRead, Write};

use aether::{ErrorKind, Group, GroupConfig, Host, World};
use serde::{Deserialize, Serialize};

use super::case::Case;
use super::driver::Plan;
use super::measure::Times;
use super::memory::device;
use super::rank::Rank;
use super::{Op, Selection};
use crate::cli::BenchArgs;
use crate::failure::{Failure, Result};

/// What all workers are told.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Order {
    /// The operation's name.
    op: String,
    /// The size that was asked for; the rest is in the arguments, which are the same for all.
    bytes: u64,
}

/// What a worker says of a case.
#[derive(Debug, Deserialize, Serialize)]
pub(super) enum Answer {
    Done { times: Times, wrong: Option<u64> },
    Failed(Trouble),
}

/// Why a worker goes no further.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Trouble {
    pub(super) message: String,
    /// Whether it only says that another one failed.
    pub(super) of_another: bool,
}

impl Order {
    pub(super) fn new(case: &Case) -> Self {
        Self { op: case.op.name().to_owned(), bytes: case.layout.bytes as u64 }
    }

    fn op(&self) -> Result<Op> {
        let found = self.op.parse::<Selection>().ok().map(Selection::parts);
        match found {
            Some([op]) => Ok(*op),
            _ => Err(Failure::new(format!("bench: a worker is told to do `{}`", self.op))),
        }
    }
}

/// Works until there are no more orders, or one failed. What failed is answered, and is no failure of the
/// process.
pub(super) fn run(args: &BenchArgs, orders: &mut dyn BufRead, out: &mut dyn Write) -> Result<()> {
    let mut say = |answer: &Answer| -> Result<()> {
        let text = serde_json::to_string(answer)
            .map_err(|it| Failure::new(format!("bench: write an answer: {it}")))?;
        writeln!(out, "{text}")?;
        Ok(out.flush()?)
    };
    let failed = |error: &Failure| {
        let of_another = matches!(error, Failure::Library(it)
            if matches!(it.kind(), ErrorKind::GroupBroken | ErrorKind::RankDied));
        Answer::Failed(Trouble { message: error.to_string(), of_another })
    };
    let joined = join(args);
    let (mut group, device) = match joined {
        Ok(joined) => joined,
        Err(error) => return say(&failed(&error)),
    };
    for order in orders.lines() {
        let order = order?;
        let mut carry_out = || -> Result<Answer> {
            let order: Order = serde_json::from_str(&order)
                .map_err(|it| Failure::new(format!("bench: read an order: {it}")))?;
            let case = Case::new(order.op()?, args, order.bytes)?;
            let done = Rank::new(&case, group.rank(), &device, args.memory)
                .and_then(|mut it| it.run(&mut group, Plan::of(args)));
            if let Err(error) = &done {
                // The others hear of it now, and not at the deadline.
                group.abort(error);
            }
            let (times, wrong) = done?;
            Ok(Answer::Done { times, wrong })
        };
        match carry_out() {
            Ok(answer) => say(&answer)?,
            Err(error) => return say(&failed(&error)),
        }
    }
    Ok(group.finish()?)
}

fn join(args: &BenchArgs) -> Result<(Group<Host>, aether::Device)> {
    let world = World::from_environment()?;
    let device = device(args.mode, args.memory, world.rank())?;
    let at = world.rendezvous("bench")?;
    Ok((Group::join_at(&*at, &device, &GroupConfig::default())?, device))
}
