//! What ends a measurement early, as one clear line.

use std::fmt;

/// The reason: what was attempted, on what, and why it did not go.
#[derive(Debug)]
pub struct Failure(String);

/// The result of whatever measures or writes.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// A failure that reads like this.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

impl From<aether::Error> for Failure {
    fn from(error: aether::Error) -> Self {
        Self(error.to_string())
    }
}
