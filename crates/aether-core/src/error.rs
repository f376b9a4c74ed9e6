//! One concrete error: what was attempted, where, how large, and why.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// The result of everything in aether that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

type Source = Arc<dyn std::error::Error + Send + Sync + 'static>;

/// A failure: what was attempted, on which device or path, how many bytes, why, and its source.
///
/// Errors are cheap to clone, because one failure is given to everybody whom it concerns: the call
/// that failed, every later read of a range that it should have written, every other rank.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    attempted: Cow<'static, str>,
    place: Option<String>,
    bytes: Option<u64>,
    reason: String,
    ranks: Vec<usize>,
    source: Option<Source>,
}

/// What kind of failure an [`Error`] is: the part that programs match on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The device's own library reported a failure.
    Backend,
    /// Memory that is only borrowed was given to a call that returns before it has ended.
    BorrowedMemory,
    /// Ranks wait for each other in a circle.
    Cycle,
    /// An element type was given where another was needed.
    DTypeMismatch,
    /// The deadline passed.
    DeadlineExceeded,
    /// A DLPack tensor was malformed, or can't be expressed.
    Dlpack,
    /// A device was named twice where each may stand once.
    DuplicateDevice,
    /// A list that must name something was empty.
    Empty,
    /// The memory is being read through an exported tensor, so it can't be written.
    Exported,
    /// The group failed earlier and refuses further work.
    GroupBroken,
    /// This pair of devices can't copy directly.
    IllegalPair,
    /// A file, a directory or a socket failed.
    Io,
    /// A library that is loaded at run time is not there.
    LibraryNotFound,
    /// An address or an offset is not a multiple of what it must be.
    Misaligned,
    /// The view is strided where contiguous memory is needed.
    NotContiguous,
    /// The device is not a member of the group, or never joined it.
    NotMember,
    /// An index, an offset or an extent lies outside of what there is.
    OutOfBounds,
    /// The device has not as much memory.
    OutOfMemory,
    /// Sizes, strides or counts whose product doesn't fit.
    Overflow,
    /// Ranges overlap that must not.
    Overlap,
    /// An operation panicked.
    Panicked,
    /// Text that can't be understood.
    Parse,
    /// The size is not a whole number of elements.
    PartialElement,
    /// A rank left the group, or its thread or process ended.
    RankDied,
    /// Ranks made different calls.
    RankMismatch,
    /// A root, a peer or a rank that is not in the group.
    RankOutOfRange,
    /// The memory may only be read.
    ReadOnly,
    /// Replicas are not the same bytes.
    ReplicasDiffer,
    /// Two sizes that must agree don't.
    SizeMismatch,
    /// A device that nobody registered, or that does not exist.
    UnknownDevice,
    /// What this backend or driver can't do.
    Unsupported,
    /// A buffer or a stream on another device than the call needs.
    WrongDevice,
    /// A parameter outside of its domain, such as a partition in zero parts.
    InvalidArgument,
}

impl Error {
    /// A failure of `kind` while `attempted` was done, because of `reason`.
    ///
    /// `attempted` is a verb phrase that stands first in the message ("allocate", "all_reduce").
    pub fn new(
        kind: ErrorKind,
        attempted: impl Into<Cow<'static, str>>,
        reason: impl Into<String>,
    ) -> Self {
        Self(Arc::new(Inner {
            kind,
            attempted: attempted.into(),
            place: None,
            bytes: None,
            reason: reason.into(),
            ranks: Vec::new(),
            source: None,
        }))
    }

    /// The same failure, on this device or path.
    #[must_use]
    pub fn on(self, place: impl fmt::Display) -> Self {
        let place = place.to_string();
        self.with(|it| it.place = Some(place))
    }

    /// The same failure, of an operation on so many bytes.
    #[must_use]
    pub fn of_bytes(self, bytes: u64) -> Self {
        self.with(|it| it.bytes = Some(bytes))
    }

    /// The same failure, with the ranks that it is about: the absent, the dead, or those that
    /// differ.
    #[must_use]
    pub fn about_ranks(self, ranks: impl Into<Vec<usize>>) -> Self {
        let ranks = ranks.into();
        self.with(|it| it.ranks = ranks)
    }

    /// The same failure, caused by `source`.
    #[must_use]
    pub fn caused_by(self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.with(|it| it.source = Some(Arc::new(source)))
    }

    /// The kind, to match on.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What was attempted.
    pub fn attempted(&self) -> &str {
        &self.0.attempted
    }

    /// The device, the group or the path on which it was attempted.
    pub fn place(&self) -> Option<&str> {
        self.0.place.as_deref()
    }

    /// How many bytes the operation was about.
    pub fn bytes(&self) -> Option<u64> {
        self.0.bytes
    }

    /// Why it failed.
    pub fn reason(&self) -> &str {
        &self.0.reason
    }

    /// The ranks that the failure is about: the absent, the dead, or those that differ.
    pub fn ranks(&self) -> &[usize] {
        &self.0.ranks
    }

    fn with(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let it = &*self.0;
        f.write_str(&it.attempted)?;
        if let Some(place) = &it.place {
            write!(f, " on {place}")?;
        }
        if let Some(bytes) = it.bytes {
            write!(f, " ({bytes} bytes)")?;
        }
        write!(f, ": {}", it.reason)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|it| it as _)
    }
}
