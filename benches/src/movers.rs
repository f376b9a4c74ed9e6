//! Residency against plain copies of the same bytes, in turns: copy, replicate, scatter, gather, and staging.

use std::time::Instant;

use aether::{
    AsSpan, AsSpanMut, Chunk, Device, PartitionedArray, ReplicaSet, StreamTransport, Transport,
    copy,
};
use serde::{Deserialize, Serialize};

use crate::contender::Took;
use crate::failure::Result;
use crate::limit::{Stores, copies};
use crate::results::{Series, better_stores};
use crate::setting::{Setting, cores};
use crate::statistics::median_ratio;
use crate::turns::Plan;

/// The sizes that are published.
pub const BYTES: [usize; 4] = [64 << 10, 1 << 20, 16 << 20, 64 << 20];

/// From where the plain copy is made by all cores; below, a second thread takes longer to wake than it helps.
const SPREAD: usize = 1 << 20;

/// The part's results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Movers {
    /// Where and when.
    pub setting: Setting,
    /// One for each way and size.
    pub rows: Vec<Mover>,
}

/// One way to move bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mover {
    /// What is done.
    pub what: String,
    /// The size of the source.
    pub bytes: usize,
    /// The threads of the plain copy.
    pub threads: usize,
    /// At most how many times the plain copy's time.
    pub aim: f64,
    /// Microseconds, by turn.
    pub aether: Vec<f64>,
    /// The plain copy, by both kinds of stores.
    pub plain: Vec<Series>,
}

impl Mover {
    /// The plain copy: the better kind of stores.
    pub fn plain(&self) -> Option<&Series> {
        better_stores(&self.plain)
    }

    /// How many times the plain copy's time aether takes.
    pub fn ratio(&self) -> Option<f64> {
        median_ratio(&self.aether, &self.plain()?.micros)
    }
}

/// Measures it for arrays of these sizes, multiples of 4 KiB; `progress` is told of each size.
///
/// # Errors
/// Memory that can't be had, or what a call met.
pub fn run(plan: Plan, sizes: &[usize], mut progress: impl FnMut()) -> Result<Movers> {
    let mut rows = Vec::new();
    for &bytes in sizes {
        progress();
        let cores = if bytes < SPREAD { 1 } else { cores() };
        let mut add = |what: String,
                       destinations: usize,
                       threads: usize,
                       aim: f64,
                       ours: &mut dyn FnMut() -> Result<()>| {
            turns(plan, bytes, destinations, threads, ours).map(|(aether, plain)| {
                rows.push(Mover { what, bytes, threads, aim, aether, plain });
            })
        };
        let from = chunk(0, bytes)?;
        let mut to = chunk(1, bytes)?;
        add("copy".into(), 1, cores, 1.2, &mut || Ok(copy(&mut to, &from)?))?;
        for replicas in [2, 4] {
            let mut set = ReplicaSet::new(&Device::cpus(replicas), bytes)?;
            set.broadcast(&from)?;
            let what = format!("replicate to {replicas}");
            add(what, replicas as usize, cores, 1.2, &mut || Ok(set.broadcast(&from)?))?;
        }
        for ranks in [2, 4] {
            let shape = [16, bytes / 16 / size_of::<f32>()];
            let mut array = PartitionedArray::<f32, 2>::new(&Device::cpus(ranks), shape)?;
            array.scatter()?;
            add(format!("scatter to {ranks}"), 1, cores, 1.2, &mut || Ok(array.scatter()?))?;
            add(format!("gather from {ranks}"), 1, cores, 1.2, &mut || Ok(array.gather()?))?;
        }
        // From memory to memory, each leg is a copy by one thread.
        let transport = StreamTransport::new().staging_always();
        add("staged copy".into(), 1, 1, 1.25, &mut || {
            Ok(transport.copy(to.span_mut()?, from.span()?)?)
        })?;
    }
    Ok(Movers { setting: Setting::here(plan.turns), rows })
}

/// Aether's times, and those of the plain copy.
fn turns(
    plan: Plan,
    bytes: usize,
    destinations: usize,
    threads: usize,
    ours: &mut dyn FnMut() -> Result<()>,
) -> Result<(Vec<f64>, Vec<Series>)> {
    let mut memory = (0..=destinations).map(|_| chunk(0, bytes)).collect::<Result<Vec<_>>>()?;
    let [source, destinations @ ..] = memory.as_mut_slice() else {
        return Ok((Vec::new(), Vec::new()));
    };
    let iterations = ((8 << 20) / (bytes * destinations.len())).clamp(1, 64) as u32;
    let mut aether = Vec::with_capacity(plan.turns);
    let mut plain = Stores::ALL.map(|it| Series { name: it.name().to_owned(), micros: Vec::new() });
    for _ in 0..plan.turns {
        ours()?;
        let begun = Instant::now();
        (0..iterations).try_for_each(|_| ours())?;
        aether.push(Took::between(&[(begun, Instant::now())], iterations)?.rounded());
        for (stores, series) in Stores::ALL.into_iter().zip(&mut plain) {
            let slices = destinations.iter_mut().map(Chunk::slice_mut::<f32>);
            let slices = slices.collect::<Result<Vec<_>, _>>()?;
            let took = copies(source.slice::<f32>()?, slices, threads, stores, (1, iterations))?;
            series.micros.push(took.rounded());
        }
    }
    Ok((aether, plain.into()))
}

/// Memory of a device, of which every page was written.
fn chunk(device: u32, bytes: usize) -> Result<Chunk> {
    let mut chunk = Chunk::allocate_aligned(&Device::cpu(device), bytes, 4096)?;
    let elements = chunk.slice_mut::<f32>()?.iter_mut().enumerate();
    elements.for_each(|(at, element)| *element = (at % 1021) as f32);
    Ok(chunk)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_way_is_measured_against_a_copy_in_all_turns() {
        let mut sizes = 0;
        let plan = Plan { turns: 2, span: Duration::ZERO };
        let movers = run(plan, &[4096], || sizes += 1).unwrap();
        let what: Vec<&str> = movers.rows.iter().map(|it| it.what.as_str()).collect();
        let expected = [
            "copy",
            "replicate to 2",
            "replicate to 4",
            "scatter to 2",
            "gather from 2",
            "scatter to 4",
            "gather from 4",
            "staged copy",
        ];
        assert_eq!((sizes, what.as_slice()), (1, expected.as_slice()));
        for row in &movers.rows {
            assert_eq!((row.aether.len(), row.plain.len()), (2, 2));
            assert!(row.ratio().is_some_and(|it| it > 0.0), "{row:?}");
        }
    }

    #[test]
    fn the_better_stores_are_what_aether_is_compared_with() {
        let series =
            |stores: Stores, micros| Series { name: stores.name().into(), micros: vec![micros] };
        let plain = vec![series(Stores::Ordinary, 4.0), series(Stores::NonTemporal, 2.0)];
        let row = Mover {
            what: "copy".into(),
            bytes: 64,
            threads: 1,
            aim: 1.2,
            aether: vec![3.0],
            plain,
        };
        assert_eq!(row.ratio(), Some(1.5));
    }
}
