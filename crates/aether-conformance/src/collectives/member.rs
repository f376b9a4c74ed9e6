//! Members of a group that know who they are, and calls that know whose they are, so that what fails
//! can be told with its rank and its operation.

use std::fmt;
use std::ops::{Deref, Range};
use std::time::{Duration, Instant};

use aether_collective::{OpName, Request, Work};
use aether_core::{Error, ErrorKind, Result};

use super::bench::{Step, Stop, expect_kind};
use super::subject::Members;

/// Members of a group that one caller holds: one, or all of them.
pub(crate) struct Member {
    inner: Box<dyn Members>,
    held: Range<usize>,
    ranks: usize,
    deadline: Duration,
}

/// A call that was taken: the work of all members that made it.
pub(crate) struct Call {
    work: Work,
    first: usize,
    ranks: usize,
    operations: Vec<OpName>,
    made: Instant,
    deadline: Duration,
}

/// How one member's part of a call ended.
pub(crate) struct Ended {
    /// Whose part it was, and of what: `rank 1 of 3: all_reduce`.
    pub(crate) who: String,
    pub(crate) outcome: Result<()>,
}

impl Member {
    pub(crate) fn new(
        inner: Box<dyn Members>,
        held: Range<usize>,
        ranks: usize,
        deadline: Duration,
    ) -> Self {
        Self { inner, held, ranks, deadline }
    }

    pub(crate) fn submit(&mut self, requests: Vec<Request<'_>>) -> Result<Call> {
        let (first, ranks, deadline) = (self.held.start, self.ranks, self.deadline);
        let operations = requests.iter().map(Request::operation).collect();
        let made = Instant::now();
        let work = self.inner.submit(requests)?;
        Ok(Call { work, first, ranks, operations, made, deadline })
    }

    /// Expects that the member has learnt of the group's failure.
    pub(crate) fn expect_broken(&self, after: &str) -> Step {
        let what = format!("{self}: the group after {after}");
        expect_kind(self.check(), ErrorKind::GroupBroken, &what).map(drop)
    }

    pub(crate) fn run(&mut self, requests: Vec<Request<'_>>) -> Result<()> {
        self.inner.run(requests)
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.inner.check()
    }

    pub(crate) fn finish(self) -> Result<()> {
        self.inner.finish()
    }

    /// The members themselves.
    pub(crate) fn inner(&mut self) -> &mut dyn Members {
        self.inner.as_mut()
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.held.len() {
            1 => write!(f, "rank {} of {}", self.held.start, self.ranks),
            _ => write!(f, "the caller of all {} ranks", self.ranks),
        }
    }
}

impl Deref for Call {
    type Target = Work;

    fn deref(&self) -> &Work {
        &self.work
    }
}

impl Call {
    /// Whose part it is, and of what.
    fn who(&self, part: usize) -> String {
        let operation = self.operations.get(part).map_or("a call", |it| it.name());
        format!("rank {} of {}: {operation}", self.first + part, self.ranks)
    }

    /// What is wrong with a part that has not ended.
    fn hangs(&self, part: usize) -> Stop {
        let (who, deadline) = (self.who(part), self.deadline);
        let waited = self.made.elapsed();
        let late = match deadline < waited {
            true => format!(
                "the group's deadline is {}, and `issued` has to fail it by then",
                spoken(deadline)
            ),
            false => format!(
                "the group's deadline of {} has not passed, but nothing here takes so long: `issued` \
                 has to tell its end or its failure sooner",
                spoken(deadline)
            ),
        };
        Stop::Failed(format!("{who} has not ended {} after it was made; {late}", spoken(waited)))
    }
}

/// A duration as one says it: `250 ms`, `3 s`.
fn spoken(it: Duration) -> String {
    match it < Duration::from_secs(1) {
        true => format!("{} ms", it.as_millis()),
        false => format!("{} s", (it.as_secs_f64() * 10.0).round() / 10.0),
    }
}

/// How every member's part of these calls ended. Fails if one of them hangs.
pub(crate) fn ends(calls: &[Result<Call>], patience: Duration) -> Step<Vec<Ended>> {
    let until = Instant::now() + patience;
    let mut ends = Vec::new();
    for (at, call) in calls.iter().enumerate() {
        let call = match call {
            Ok(call) => call,
            Err(error) => {
                let who = format!("call {} of {}, refused at once", at + 1, calls.len());
                ends.push(Ended { who, outcome: Err(error.clone()) });
                continue;
            }
        };
        for (part, completion) in call.completions().iter().enumerate() {
            let left = until.saturating_duration_since(Instant::now());
            let outcome = match completion.wait_timeout(left) {
                Ok(true) => Ok(()),
                Ok(false) => return Err(call.hangs(part)),
                Err(error) => Err(error),
            };
            ends.push(Ended { who: call.who(part), outcome });
        }
    }
    Ok(ends)
}

/// The outcomes alone.
pub(crate) fn outcomes(calls: &[Result<Call>], patience: Duration) -> Step<Vec<Result<()>>> {
    Ok(ends(calls, patience)?.into_iter().map(|it| it.outcome).collect())
}

/// Expects that all of them go well.
pub(crate) fn all_well(calls: &[Result<Call>], patience: Duration) -> Step {
    ends(calls, patience)?
        .into_iter()
        .try_for_each(|it| it.outcome.map_err(|error| Stop::from(error).during(it.who)))
}

/// Expects that all of them fail so, and gives the errors.
pub(crate) fn all_fail(
    calls: &[Result<Call>],
    patience: Duration,
    kind: ErrorKind,
    what: &str,
) -> Step<Vec<Error>> {
    let ends = ends(calls, patience)?.into_iter();
    ends.map(|it| expect_kind(it.outcome, kind, &format!("{}: {what}", it.who))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_said_as_one_says_them() {
        assert_eq!(spoken(Duration::from_millis(250)), "250 ms");
        assert_eq!(spoken(Duration::from_micros(3_000_123)), "3 s");
        assert_eq!(spoken(Duration::from_millis(2_549)), "2.5 s");
    }
}
