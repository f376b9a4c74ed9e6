//! Measuring in turns: whatever slows the machine for a while slows everybody, and a ratio of the same
//! turn forgets it.

use std::time::Duration;

use crate::cell::Cell;
use crate::contender::Contender;
use crate::failure::{Failure, Result};
use crate::results::{Row, Series};

/// How often and how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// How many turns each contender gets.
    pub turns: usize,
    /// How long the timed part of one turn should last.
    pub span: Duration,
}

/// The most iterations of one turn, so that a clock that stands still ends too.
const MOST: u32 = 50_000;

/// Gives every contender that takes the cell its turns, one after the other, each time beginning with
/// another one.
///
/// # Errors
/// Those of the contenders, with the name of the one.
pub fn measure(cell: &Cell, contenders: &mut [Box<dyn Contender + '_>], plan: Plan) -> Result<Row> {
    let mut playing: Vec<_> = contenders.iter_mut().filter(|it| it.takes(cell)).collect();
    let mut counts = Vec::with_capacity(playing.len());
    for contender in &mut playing {
        counts.push(count(contender.as_mut(), cell, plan.span)?);
    }
    let empty =
        |name: &str| Series { name: name.to_owned(), micros: Vec::with_capacity(plan.turns) };
    let mut series: Vec<Series> = playing.iter().map(|it| empty(it.name())).collect();
    for turn in 0..plan.turns {
        for place in 0..playing.len() {
            let at = (turn + place) % playing.len();
            let Count { warmup, iterations } = counts[at];
            series[at].micros.push(sample(playing[at].as_mut(), cell, warmup, iterations)?);
        }
    }
    Ok(Row { cell: *cell, series })
}

/// The operations of one turn.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Count {
    /// So many first, without a clock: a tenth, and none where a single one is far longer than the span.
    warmup: u32,
    iterations: u32,
}

impl Count {
    /// As many as fill the span if one takes so long, both in microseconds.
    fn filling(span: f64, took: f64) -> Self {
        // A conversion from what is no number or too large ends at a bound.
        let iterations = ((span / took).ceil() as u32).clamp(1, MOST);
        let warmup = if took > 8.0 * span { 0 } else { (iterations / 10).max(1) };
        Self { warmup, iterations }
    }
}

/// How many operations fill the span: as many as are needed to tell, then by proportion.
fn count(contender: &mut dyn Contender, cell: &Cell, span: Duration) -> Result<Count> {
    let span = span.as_secs_f64() * 1e6;
    let mut tried = 1;
    loop {
        let took = sample(contender, cell, 1, tried)?;
        if took * f64::from(tried) * 4.0 >= span || tried >= MOST {
            return Ok(Count::filling(span, took));
        }
        tried = (tried * 8).min(MOST);
    }
}

fn sample(contender: &mut dyn Contender, cell: &Cell, warmup: u32, iterations: u32) -> Result<f64> {
    let took = contender.sample(cell, warmup, iterations);
    let took = took.map_err(|why| Failure::new(format!("{}: {cell}: {why}", contender.name())))?;
    Ok(took.rounded())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::cell::Op;
    use crate::contender::Took;

    const CELL: Cell = Cell { op: Op::AllReduce, ranks: 2, bytes: 16 };
    const PLAN: Plan = Plan { turns: 3, span: Duration::from_micros(100) };

    /// A contender whose operations take so long, and who notes its turns.
    struct Fake<'a> {
        name: &'static str,
        micros: f64,
        log: &'a RefCell<Vec<(&'static str, u32, u32)>>,
    }

    impl Contender for Fake<'_> {
        fn name(&self) -> &str {
            self.name
        }

        fn takes(&self, _: &Cell) -> bool {
            self.name != "absent"
        }

        fn sample(&mut self, _: &Cell, warmup: u32, iterations: u32) -> Result<Took> {
            self.log.borrow_mut().push((self.name, warmup, iterations));
            if self.name == "broken" {
                Err(Failure::new("no"))
            } else {
                Ok(Took::micros(self.micros))
            }
        }
    }

    #[test]
    fn turns_go_round_and_each_begins_with_another_contender() {
        let log = RefCell::new(Vec::new());
        let fake = |name, micros| Box::new(Fake { name, micros, log: &log });
        let mut all: [Box<dyn Contender + '_>; 3] =
            [fake("a", 2.0), fake("absent", 1.0), fake("b", 1000.0)];
        let row = measure(&CELL, &mut all, PLAN).unwrap();
        let names: Vec<&str> = row.series.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(row.series[0].micros, [2.0; 3]);
        let log = log.borrow();
        let (a, b) = (("a", 5, 50), ("b", 0, 1));
        // Before the turns, each is tried until it can be told how many operations fill the span.
        assert_eq!(log[log.len() - 6..], [a, b, b, a, a, b]);
    }

    #[test]
    fn a_failure_names_the_contender_and_the_cell() {
        let log = RefCell::new(Vec::new());
        let mut all: [Box<dyn Contender + '_>; 1] =
            [Box::new(Fake { name: "broken", micros: 1.0, log: &log })];
        let why = measure(&CELL, &mut all, PLAN).unwrap_err().to_string();
        assert_eq!(why, "broken: all_reduce ranks 2 bytes 16: no");
    }

    #[test]
    fn a_clock_that_stands_still_ends_too() {
        assert_eq!(Count::filling(100.0, 0.0), Count { warmup: MOST / 10, iterations: MOST });
        let log = RefCell::new(Vec::new());
        let mut all: [Box<dyn Contender + '_>; 1] =
            [Box::new(Fake { name: "a", micros: 0.0, log: &log })];
        assert!(measure(&CELL, &mut all, PLAN).is_ok());
    }
}
