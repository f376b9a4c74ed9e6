//! What ends the program early, as one clear line.

use std::fmt;

use crate::table::TableError;

/// The reason for exit code 1.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The library reported it.
    Library(aether::Error),
    /// Nobody reads the output any more, which is no failure to speak of.
    OutputClosed,
    /// What the program itself found.
    Program(String),
    /// The table could not be read.
    Table(Box<TableError>),
}

/// The result of a subcommand.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// A failure that the program itself found.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self::Program(message.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Library(error) => with_causes(error),
            Self::OutputClosed => "the output was closed".to_owned(),
            Self::Program(message) => message.clone(),
            Self::Table(error) => error.to_string(),
        };
        // Scripts read errors by the line, so a message never has a second one.
        let mut parts = text.split(['\n', '\r']).map(str::trim).filter(|it| !it.is_empty());
        f.write_str(parts.next().unwrap_or_default())?;
        parts.try_for_each(|part| write!(f, " {part}"))
    }
}

impl std::error::Error for Failure {}

/// The message, and those of its causes that it doesn't quote itself.
fn with_causes(error: &aether::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(it) = cause {
        let message = it.to_string();
        if !text.contains(&message) {
            text.push_str(&format!(": {message}"));
        }
        cause = it.source();
    }
    text
}

impl From<aether::Error> for Failure {
    fn from(error: aether::Error) -> Self {
        Self::Library(error)
    }
}

impl From<Box<TableError>> for Failure {
    fn from(error: Box<TableError>) -> Self {
        Self::Table(error)
    }
}

/// The only direct input and output of subcommands is their own output.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Program(format!("write the output: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_several_lines_is_printed_as_one() {
        let failure = Failure::new("first\n  second\r\nthird\n");
        assert_eq!(failure.to_string(), "first second third");
    }

    #[test]
    fn an_error_of_the_library_is_told_with_its_causes_once() {
        let disk = std::io::Error::other("the disk is full");
        let error = aether::Error::new(aether::ErrorKind::Io, "write a file", "it failed")
            .on("cpu:3")
            .of_bytes(77);
        let failure = Failure::from(error.clone().caused_by(disk));
        let line = "write a file on cpu:3 (77 bytes): it failed: the disk is full";
        assert_eq!(failure.to_string(), line);
        let reason = format!("a rank said {error}");
        let outer = aether::Error::new(aether::ErrorKind::GroupBroken, "send", reason);
        let line = "send: a rank said write a file on cpu:3 (77 bytes): it failed";
        assert_eq!(Failure::from(outer.caused_by(error)).to_string(), line);
    }

    #[test]
    fn a_closed_output_is_told_from_other_failures_to_write() {
        let closed = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        assert!(matches!(Failure::from(closed), Failure::OutputClosed));
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        assert!(matches!(Failure::from(full), Failure::Program(_)));
    }
}
