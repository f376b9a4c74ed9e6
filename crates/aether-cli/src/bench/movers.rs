//! Replicate and scatter: one caller moves bytes from one place to every device. No rank takes part
//! by itself.

use aether::{Chunk, Device, PartitionedArray, ReplicaSet, Result};

use super::Op;
use super::case::Case;
use super::driver::{Outcome, Plan};
use super::measure::{measure, outcome};
use super::pattern::wrong;

/// Times the case and checks it.
pub(super) fn run(devices: &[Device], case: &Case, plan: Plan) -> Result<Outcome> {
    match case.op {
        Op::Scatter => case_of(Scatter::new(devices, case)?, devices, case, plan),
        _ => case_of(Replicate::new(devices, case)?, devices, case, plan),
    }
}

/// One source and a destination on every device.
trait Mover {
    /// Has the source filled.
    fn fill(&mut self, fill: impl FnOnce(&mut [u8])) -> Result<()>;

    /// Moves it.
    fn carry_out(&mut self) -> Result<()>;

    /// What came to a device.
    fn destination(&self, rank: usize) -> Result<&[u8]>;
}

fn case_of(mut mover: impl Mover, devices: &[Device], case: &Case, plan: Plan) -> Result<Outcome> {
    mover.fill(|out| case.fill_source(0, case.root, out))?;
    let times = measure(plan, &mut mover, |_| Ok(()), |it| it.carry_out())?;
    let mut found = None;
    let mut expected = vec![0; case.layout.destination];
    for run in 1..=u64::from(plan.checks) {
        mover.fill(|out| case.fill_source(run, case.root, out))?;
        mover.carry_out()?;
        for rank in 0..devices.len() {
            case.fill_expected(run, rank, &mut expected);
            *found.get_or_insert(0) +=
                wrong(&expected, mover.destination(rank)?, case.dtype.size());
        }
    }
    Ok(outcome(plan, &[times], found))
}

/// [`ReplicaSet::broadcast`] from a chunk on the root's device.
struct Replicate {
    source: Chunk,
    replicas: ReplicaSet,
}

impl Replicate {
    fn new(devices: &[Device], case: &Case) -> Result<Self> {
        let source = Chunk::allocate(&devices[case.root], case.layout.source)?;
        Ok(Self { source, replicas: ReplicaSet::new(devices, case.layout.destination)? })
    }
}

impl Mover for Replicate {
    fn fill(&mut self, fill: impl FnOnce(&mut [u8])) -> Result<()> {
        fill(self.source.slice_mut()?);
        Ok(())
    }

    fn carry_out(&mut self) -> Result<()> {
        self.replicas.broadcast(&self.source)
    }

    fn destination(&self, rank: usize) -> Result<&[u8]> {
        self.replicas.chunk(rank)?.slice()
    }
}

/// [`PartitionedArray::scatter`] of bytes, each rank's block a chunk of the whole.
struct Scatter(PartitionedArray<u8, 1>);

impl Scatter {
    fn new(devices: &[Device], case: &Case) -> Result<Self> {
        Ok(Self(PartitionedArray::padded(devices, [case.layout.source], 1)?))
    }
}

impl Mover for Scatter {
    fn fill(&mut self, fill: impl FnOnce(&mut [u8])) -> Result<()> {
        fill(self.0.host_mut()?.as_slice_mut()?);
        Ok(())
    }

    fn carry_out(&mut self) -> Result<()> {
        self.0.scatter()
    }

    fn destination(&self, rank: usize) -> Result<&[u8]> {
        self.0.block(rank)?.as_slice()
    }
}
