//! Calls in hand: blocking calls that their caller carries out itself, without queueing them.
//!
//! A blocking call holds the borrows of its memory until it returns or unwinds, so no safe code can
//! begin anything meanwhile that conflicts with it. Where its stream is idle too, and no work is on
//! record for its ranges, there is nothing to be ordered behind and nobody to be told of it: the caller
//! takes the stream in hand, and steps the operation until it has ended. What is pushed onto the stream
//! meanwhile waits behind it. A failure is recorded like any other.

use smallvec::SmallVec;

use crate::failures::Failure;
use crate::progress::{self, Look};
use crate::stream::Completion;
use crate::{Result, Span, SpanMut, Step, Stream};

/// How a call in hand is carried out.
pub trait Steps {
    /// Issues the operation, the `first` time, and afterwards advances it: as the methods of
    /// [`Operation`](crate::Operation) do. Called until an answer is not [`Step::Pending`].
    ///
    /// # Errors
    /// The call has failed. Nobody touches its memory any more.
    fn step(&mut self, first: bool) -> Result<Step>;
}

/// The calls of one caller, one a stream, that are carried out together.
///
/// If it is dropped before [`InHand::wait`], by an unwind too, it waits: borrowed memory must not go
/// before the operations have let go of it.
pub struct InHand<'a, S: Steps> {
    calls: SmallVec<[Call<'a, S>; 2]>,
    /// How many threads may wait for each other in these calls.
    parties: usize,
}

struct Call<'a, S> {
    stream: &'a Stream,
    reads: &'a [Span<'a>],
    writes: &'a [SpanMut<'a>],
    ticket: u64,
    steps: S,
    state: State,
}

enum State {
    Taken,
    Begun,
    Ended(Result<()>),
}

impl<'a, S: Steps> InHand<'a, S> {
    /// No call yet. `parties` is how many threads may wait for each other in these calls: where that is
    /// more than there are cores, who waits gives its core away at once.
    pub fn new(parties: usize) -> Self {
        Self { calls: SmallVec::new(), parties }
    }

    /// Takes the stream in hand for one call, if nothing is before it: false if the stream has work, if
    /// its device works asynchronously, or if memory has work or a failure on record or may not be
    /// written. The call then has to be [enqueued](crate::enqueue).
    ///
    /// # Safety
    /// The call touches nothing but `reads` and `writes`, writes only `writes`, does so only from the
    /// first of its `steps` until the first answer that is not [`Step::Pending`], and it is the CPU that
    /// does.
    pub unsafe fn take(
        &mut self,
        stream: &'a Stream,
        reads: &'a [Span<'a>],
        writes: &'a [SpanMut<'a>],
        steps: S,
    ) -> bool {
        let quiet = reads.iter().all(|it| it.is_quiet(false))
            && writes
                .iter()
                .all(|it| it.check_writable("take in hand").is_ok() && it.as_span().is_quiet(true));
        let Some(ticket) = quiet.then(|| stream.queue.take()).flatten() else { return false };
        self.calls.push(Call { stream, reads, writes, ticket, steps, state: State::Taken });
        true
    }

    /// Begins the calls, and carries them out. It waits for all of them.
    ///
    /// # Errors
    /// The failure of the first call that failed.
    pub fn wait(&mut self) -> Result<()> {
        let taken = self.calls.iter_mut().filter(|it| matches!(it.state, State::Taken));
        taken.for_each(|it| it.step(true));
        self.finish();
        let outcomes = self.calls.iter_mut().map(Call::take_outcome);
        outcomes.fold(Ok(()), Result::and)
    }

    /// Waits until all calls that were begun have ended.
    fn finish(&mut self) {
        let calls = &mut self.calls;
        if !calls.iter().any(|it| matches!(it.state, State::Begun)) {
            return;
        }
        progress::wait_for(None, self.parties, || {
            let mut look = Look::Reached;
            for call in calls.iter_mut().filter(|it| matches!(it.state, State::Begun)) {
                call.step(false);
                if matches!(call.state, State::Begun) {
                    look = Look::Idle;
                }
            }
            look
        });
    }
}

impl<S: Steps> Drop for InHand<'_, S> {
    fn drop(&mut self) {
        self.finish();
        for call in self.calls.iter_mut().filter(|it| matches!(it.state, State::Taken)) {
            // Its ticket goes like that of a call that did nothing.
            call.stream.queue.give_back(call.ticket, Ok(()));
        }
    }
}

impl<S: Steps> Call<'_, S> {
    fn step(&mut self, first: bool) {
        let queue = &self.stream.queue;
        self.state = match queue.contained(|| self.steps.step(first)) {
            Ok(Step::Pending) => State::Begun,
            Ok(Step::Issued) => State::Ended(self.end(Ok(()))),
            Err(error) => State::Ended(self.end(Err(Failure { error, unproved: false }))),
        };
    }

    fn end(&self, outcome: Result<(), Failure>) -> Result<()> {
        let queue = &self.stream.queue;
        queue.give_back(self.ticket, outcome);
        if !queue.is_done(self.ticket) {
            // The backend has work of its own on the stream, though it said that it never does.
            progress::wait_until(queue, self.ticket, None);
        }
        let outcome = queue.outcome(self.ticket);
        if outcome.is_err() {
            self.record(&Completion { queue: queue.clone(), ticket: self.ticket });
        }
        queue.acquire(self.ticket);
        outcome
    }

    /// Has what the call should have written, and may have left half written, tell how it failed.
    fn record(&self, work: &Completion) {
        let writes = self.writes.iter().map(|it| (it.as_span(), true));
        for (span, writes) in self.reads.iter().map(|it| (*it, false)).chain(writes) {
            span.record(writes, work);
        }
    }

    fn take_outcome(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.state, State::Ended(Ok(()))) {
            State::Ended(outcome) => outcome,
            State::Taken | State::Begun => Ok(()),
        }
    }
}
