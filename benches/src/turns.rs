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
        counts.push(iterations(contender.as_mut(), cell, plan.span)?);
    }
    let empty =
        |name: &str| Series { name: name.to_owned(), micros: Vec::with_capacity(plan.turns) };
    let mut series: Vec<Series> = playing.iter().map(|it| empty(it.name())).collect();
    for turn in 0..plan.turns {
        for place in 0..playing.len() {
            let at = (turn + place) % playing.len();
            let took = sample(playing[at].as_mut(), cell, (counts[at] / 10).max(1), counts[at])?;
            series[at].micros.push(took);
        }
    }
    Ok(Row { cell: *cell, series })
}

/// How many operations fill the span: as many as are needed to tell, then by proportion.
fn iterations(contender: &mut dyn Contender, cell: &Cell, span: Duration) -> Result<u32> {
    let span = span.as_secs_f64() * 1e6;
    let mut count = 1;
    loop {
        let took = sample(contender, cell, 1, count)?;
        if took * f64::from(count) * 4.0 >= span || count >= MOST {
            // A count that is beyond the most is cut, and so is one that is no number.
            return Ok(((span / took).ceil() as u32).clamp(1, MOST));
        }
        count = (count * 8).min(MOST);
    }
}

fn sample(contender: &mut dyn Contender, cell: &Cell, warmup: u32, iterations: u32) -> Result<f64> {
    let took = contender.sample(cell, warmup, iterations);
    let took = took.map_err(|why| Failure::new(format!("{}: {cell}: {why}", contender.name())))?;
    // A tenth of a nanosecond is finer than any clock.
    Ok((took.as_micros() * 1e4).round() / 1e4)
}
