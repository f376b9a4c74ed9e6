//! What a worker has answered to one proxy.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use aether_core::{Error, ErrorKind, Result, progress};

use super::pool::Link;
use super::wire::{Answer, Ask, What};

/// Where a worker's answers to one proxy arrive.
#[derive(Default)]
pub(super) struct Seat {
    /// Held by whoever asks, so that answers go to their questions.
    asking: Mutex<()>,
    arrived: Mutex<Arrived>,
    news: Condvar,
}

#[derive(Default)]
struct Arrived {
    /// The answer to a question.
    reply: Option<Answer>,
    /// The end of the call.
    end: Option<Answer>,
    /// Nothing more comes.
    gone: bool,
}

impl Seat {
    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// `RankDied` if the worker is gone, `DeadlineExceeded` if it says nothing for so long.
    pub(super) fn ask(
        &self,
        link: &Link,
        member: u64,
        what: What,
        patience: Duration,
    ) -> Result<Answer> {
        let asking = lock(&self.asking);
        link.send(&Ask { member, what })?;
        let answer = self.reply(patience);
        drop(asking);
        answer
    }

    /// Waits for the answer to what was asked last.
    ///
    /// # Errors
    /// Those of [`Seat::ask`].
    pub(super) fn reply(&self, patience: Duration) -> Result<Answer> {
        let until = Instant::now() + patience;
        let mut arrived = lock(&self.arrived);
        loop {
            if let Some(answer) = arrived.reply.take() {
                return Ok(answer);
            }
            if arrived.gone {
                return Err(gone());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let reason = format!("the worker has said nothing for {patience:?}");
                return Err(Error::new(ErrorKind::DeadlineExceeded, "ask a worker", reason));
            }
            let waited = self.news.wait_timeout(arrived, left);
            arrived = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The end of the call, if it has come.
    ///
    /// # Errors
    /// `RankDied` if the worker is gone.
    pub(super) fn end(&self) -> Result<Option<Answer>> {
        let mut arrived = lock(&self.arrived);
        match arrived.end.take() {
            None if arrived.gone => Err(gone()),
            end => Ok(end),
        }
    }

    /// Takes an answer from the worker.
    pub(super) fn take(&self, answer: Answer) {
        let mut arrived = lock(&self.arrived);
        if answer.ends {
            arrived.end = Some(answer);
            drop(arrived);
            // Whoever waits for the call can go on.
            progress::announce();
        } else {
            arrived.reply = Some(answer);
            self.news.notify_all();
        }
    }

    /// The worker has ended.
    pub(super) fn lose(&self) {
        lock(&self.arrived).gone = true;
        self.news.notify_all();
        progress::announce();
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::RankDied, "ask a worker", "the worker has ended")
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
