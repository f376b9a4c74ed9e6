//! What happens in a round, from its seed alone: every process works it out for itself.

use std::time::Duration;

use aether::{DType, ReduceOp};
use aether_conformance::collectives::operation::Operation;
use aether_conformance::suite::{Random, pattern};

/// What befalls a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is killed.
    Killed,
    /// It is stopped until the others have given up on it, and then continued.
    Stopped,
}

/// A round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Round {
    pub(crate) ranks: usize,
    pub(crate) victim: usize,
    pub(crate) fate: Fate,
    /// When it happens, from when all ranks have made their first call.
    pub(crate) after: Duration,
    pub(crate) deadline: Duration,
}

impl Round {
    pub(crate) fn of(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let ranks = 2 + random.below(4);
        let victim = random.below(ranks);
        let fate = if random.below(2) == 0 { Fate::Killed } else { Fate::Stopped };
        let after = Duration::from_micros(random.below(60_000) as u64);
        // A killed rank is missed long before the deadline; a stopped one at it.
        let deadline = match fate {
            Fate::Killed => Duration::from_secs(20),
            Fate::Stopped => Duration::from_millis(500),
        };
        Self { ranks, victim, fate, after, deadline }
    }
}

/// One call of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Collective(Operation),
    /// Everybody sends to the next rank, and receives from the one before.
    Ring,
    Barrier,
}

/// A call with its type and size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) what: What,
    pub(crate) dtype: DType,
    pub(crate) count: usize,
    salt: u64,
}

/// The calls of a round, without end.
pub(crate) struct Steps {
    random: Random,
    ranks: usize,
}

impl Steps {
    pub(crate) fn of(seed: u64, ranks: usize) -> Self {
        Self { random: Random::new(seed ^ 0x5EED), ranks }
    }
}

impl Iterator for Steps {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let (random, ranks) = (&mut self.random, self.ranks);
        let op = ReduceOp::ALL[random.below(ReduceOp::ALL.len())];
        let operations = [Operation::alike(op, random.below(ranks)), Operation::vector(op, ranks)];
        let operations = operations.concat();
        let what = match random.below(operations.len() + 2) {
            0 => What::Barrier,
            1 => What::Ring,
            at => What::Collective(operations[at - 2].clone()),
        };
        // Numbers whose every bit pattern is a number; floats are the suite's business.
        let types = [DType::I32, DType::U8, DType::I64, DType::U16];
        let dtype = types[random.below(types.len())];
        let count = match random.below(8) {
            0 => 0,
            1 => 1 << 15,
            2 => 3000 + random.below(1000),
            _ => 1 + random.below(200),
        };
        Some(Step { what, dtype, count, salt: random.next_u64() })
    }
}

impl Step {
    /// What each rank brings.
    pub(crate) fn sources(&self, ranks: usize) -> Vec<Vec<u8>> {
        let elements = |rank: usize| match &self.what {
            What::Collective(it) => it.source(rank, ranks, self.count).unwrap_or(0),
            What::Ring => self.count,
            What::Barrier => 0,
        };
        let bytes = |rank: usize| elements(rank) * self.dtype.size();
        (0..ranks).map(|rank| pattern(bytes(rank), self.salt ^ rank as u64)).collect()
    }

    /// What a rank has to get.
    pub(crate) fn expected(&self, rank: usize, sources: &[Vec<u8>]) -> Option<Vec<u8>> {
        let ranks = sources.len();
        match &self.what {
            What::Collective(it) => it.expected(self.dtype, sources).swap_remove(rank),
            What::Ring => Some(sources[(rank + ranks - 1) % ranks].clone()),
            What::Barrier => None,
        }
    }
}
