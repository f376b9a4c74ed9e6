//! What a chore says of itself once it has ended.

use crate::tally::Tally;

/// How a chore ended, and the tests it ran where it ran any that count.
pub(crate) struct Report {
    pub(crate) verdict: Verdict,
    /// The tests whose sum is the last line of `ci`; they are kept when the chore failed too.
    pub(crate) tests: Option<Tally>,
}

/// The three ways to end; what was skipped never passes for passed.
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    /// It held; the text is a short note of how much was looked at.
    Passed(String),
    /// It could not run here; the text says why and what would make it run.
    Skipped(String),
    /// It did not hold; the text says what is wrong.
    Failed(String),
}

impl Report {
    pub(crate) fn passed(note: impl Into<String>) -> Self {
        Self { verdict: Verdict::Passed(note.into()), tests: None }
    }

    pub(crate) fn skipped(why: impl Into<String>) -> Self {
        Self { verdict: Verdict::Skipped(why.into()), tests: None }
    }

    pub(crate) fn failed(why: impl Into<String>) -> Self {
        Self { verdict: Verdict::Failed(why.into()), tests: None }
    }
}

impl From<Result<String, String>> for Report {
    fn from(ended: Result<String, String>) -> Self {
        match ended {
            Ok(note) => Self::passed(note),
            Err(why) => Self::failed(why),
        }
    }
}

/// `1 test`, `2 tests`.
pub(crate) fn count(of: usize, what: &str) -> String {
    format!("{of} {what}{}", if of == 1 { "" } else { "s" })
}
