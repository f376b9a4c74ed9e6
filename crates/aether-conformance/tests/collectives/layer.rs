//! What lies between the caller and the driver, with one fault: for the rows that no driver can break.

use std::sync::Arc;
use std::time::Duration;

use aether_collective::{Capabilities, Difference, GroupConfig, Message, ReduceOp, Request, Work};
use aether_conformance::checked::Checked;
use aether_conformance::collectives::subject::{Fixed, Members, Subject};
use aether_core::{DType, Device, Error, ErrorKind, Result, Span, SpanMut, View, ViewMut};

use crate::host::{OnTheHost, Plain};

/// One thing that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Calls that have to be refused so go well.
    Accepts(ErrorKind),
    /// The driver is said to differ in this row.
    Differs(&'static [Difference]),
    /// Errors name no ranks.
    NamesNoRanks,
    /// Errors say no more than that the call was refused.
    Vague,
    /// A refused call breaks the group.
    RefusalBreaks,
    /// A refused call leaves something queued.
    RefusalQueues,
    /// Work is not ordered with other work on the same memory.
    Unordered,
    /// The same, on the devices that are watched where the fixture says nothing.
    UnorderedByDefault,
}

/// The host behind a layer with a fault.
pub(crate) struct Layer(pub(crate) Fault);

struct Faulty {
    inner: Box<dyn Members>,
    members: usize,
    fault: Fault,
}

fn host() -> Fixed<OnTheHost> {
    Fixed(OnTheHost)
}

impl Layer {
    fn around(&self, members: usize, inner: Result<Box<dyn Members>>) -> Result<Box<dyn Members>> {
        let fault = self.0;
        let told = |error| if fault == Fault::NamesNoRanks { without_ranks(error) } else { error };
        Ok(Box::new(Faulty { inner: inner.map_err(told)?, members, fault }))
    }
}

impl Subject for Layer {
    fn devices(&self, count: usize) -> Option<Vec<Device>> {
        host().devices(count)
    }

    fn watched(&self, count: usize) -> Option<(Arc<Checked>, Vec<Device>)> {
        match self.0 {
            Fault::UnorderedByDefault => Fixed(Plain).watched(count),
            _ => host().watched(count),
        }
    }

    fn config(&self) -> GroupConfig {
        host().config().with_deadline(Duration::from_secs(2))
    }

    fn deadline(&self) -> Duration {
        Duration::from_millis(150)
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(3)
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = host().capabilities();
        if let Fault::Differs(differences) = self.0 {
            capabilities.differences = differences;
        }
        capabilities
    }

    fn knows(&self, dtype: DType) -> bool {
        host().knows(dtype)
    }

    fn reduces(&self, dtype: DType, op: ReduceOp) -> bool {
        host().reduces(dtype, op)
    }

    fn join_all(&self, devices: &[Device], config: &GroupConfig) -> Result<Box<dyn Members>> {
        self.around(devices.len(), host().join_all(devices, config))
    }

    fn join(
        &self,
        devices: &[Device],
        device: &Device,
        config: &GroupConfig,
    ) -> Result<Box<dyn Members>> {
        self.around(1, host().join(devices, device, config))
    }
}

impl Faulty {
    /// The outcome of a call as the fault has it.
    fn told(&mut self, outcome: Result<()>) -> Result<()> {
        let Err(error) = outcome else { return Ok(()) };
        match self.fault {
            Fault::Accepts(kind) if kind == error.kind() => return Ok(()),
            Fault::NamesNoRanks => return Err(without_ranks(error)),
            Fault::Vague => {
                let name = error.attempted().to_owned();
                return Err(Error::new(error.kind(), name, "refused").about_ranks(error.ranks()));
            }
            Fault::RefusalBreaks => self.inner.abort(&error),
            // Whatever becomes of it: it is there.
            Fault::RefusalQueues => drop(self.barrier()),
            _ => {}
        }
        Err(error)
    }

    fn barrier(&mut self) -> Result<Work> {
        self.inner.submit((0..self.members).map(|_| Request::Barrier).collect())
    }
}

impl Members for Faulty {
    fn run(&mut self, requests: Vec<Request<'_>>) -> Result<()> {
        let outcome = self.inner.run(requests);
        self.told(outcome)
    }

    fn submit(&mut self, requests: Vec<Request<'_>>) -> Result<Work> {
        if matches!(self.fault, Fault::Unordered | Fault::UnorderedByDefault) {
            self.inner.run(requests.into_iter().map(untracked).collect())?;
            return self.barrier();
        }
        match self.inner.submit(requests) {
            Ok(work) => Ok(work),
            Err(error) => {
                self.told(Err(error))?;
                self.barrier()
            }
        }
    }

    fn sum_views(
        &mut self,
        src: &[View<'_, f32, 2>],
        dst: &mut [ViewMut<'_, f32, 2>],
    ) -> Result<()> {
        let outcome = self.inner.sum_views(src, dst);
        self.told(outcome)
    }

    fn check(&self) -> Result<()> {
        self.inner.check()
    }

    fn abort(&mut self, why: &Error) {
        self.inner.abort(why);
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.inner.finish()
    }
}

fn without_ranks(error: Error) -> Error {
    error.about_ranks([])
}

/// The same call on memory whose records nobody keeps.
fn untracked(request: Request<'_>) -> Request<'_> {
    fn read(span: Span<'_>) -> Span<'_> {
        // SAFETY: the span is memory of the host that lives as long; that nothing orders what else
        // touches it is the fault, and all that races are bytes that the case compares.
        unsafe { Span::from_raw(span.address(), span.bytes(), span.dtype()) }
    }
    fn written(span: SpanMut<'_>) -> SpanMut<'_> {
        let all = span.into_span();
        // SAFETY: as above.
        unsafe { SpanMut::from_raw(all.address(), all.bytes(), all.dtype()) }
    }
    match request {
        Request::AllReduce { src, dst, op } => {
            Request::AllReduce { src: src.map(read), dst: written(dst), op }
        }
        Request::Broadcast { src, dst, root } => {
            Request::Broadcast { src: src.map(read), dst: written(dst), root }
        }
        Request::Batch(messages) => {
            let each = messages.into_iter().map(|message| match message {
                Message::Send { src, peer } => Message::Send { src: read(src), peer },
                Message::Recv { dst, peer } => Message::Recv { dst: written(dst), peer },
                other => other,
            });
            Request::Batch(each.collect())
        }
        other => other,
    }
}
