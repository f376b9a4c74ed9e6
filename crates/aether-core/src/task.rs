//! What a queue holds, and what each operation of it waits for.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::backend::{NativeStream, Ordered, Region, Rows};
use crate::stream::Completion;
use crate::sweep::Sweep;
use crate::{Backend, Operation, Result, Step};

/// What a queue holds.
pub(crate) enum Task {
    Call {
        operation: Arc<dyn Operation>,
        token: u64,
    },
    Copy {
        dst: Region,
        src: Region,
    },
    CopyRows {
        dst: Region,
        src: Region,
        rows: Rows,
    },
    Fill {
        dst: Region,
        pattern: [u8; 8],
        width: u8,
    },
    /// A copy in slices: to the destination that has this place in the sweep.
    Sweep {
        sweep: Arc<Sweep>,
        at: usize,
    },
}

impl Task {
    /// Whether what it depends on has to have ended, rather than only to be ordered by the device.
    pub(crate) fn works_on_host(&self) -> bool {
        matches!(self, Self::Call { operation, .. } if operation.works_on_host())
    }

    /// Whether its first step is quick on every backend.
    pub(crate) fn begins_quickly(&self) -> bool {
        matches!(self, Self::Call { .. } | Self::Sweep { .. })
    }

    /// Begins it on a stream of the backend, or goes on with it.
    pub(crate) fn step(
        &self,
        backend: &dyn Backend,
        stream: NativeStream,
        first: bool,
    ) -> Result<Step> {
        match self {
            Self::Call { operation, token } => {
                return if first { operation.issue(*token) } else { operation.advance(*token) };
            }
            Self::Sweep { sweep, at } => {
                // SAFETY: as for a plain copy; who pushed the task found the backend to share copies.
                return unsafe { sweep.step(*at, first) };
            }
            // Nothing is nothing on every device, whatever its library says to an empty range.
            Self::Copy { dst: Region { bytes: 0, .. }, .. }
            | Self::CopyRows { rows: Rows { count: 0, .. } | Rows { bytes: 0, .. }, .. }
            | Self::Fill { dst: Region { bytes: 0, .. }, .. } => {}
            &Self::Copy { dst, src } => {
                // SAFETY: who pushed the task promised valid regions that the hazard records keep
                // alive and free of conflicts until the operation has ended, and a legal pair.
                unsafe { backend.copy(stream, dst, src) }?;
            }
            &Self::CopyRows { dst, src, rows } => {
                // SAFETY: as for a plain copy, for every row.
                unsafe { backend.copy_rows(stream, dst, src, rows) }?;
            }
            Self::Fill { dst, pattern, width } => {
                let pattern = pattern.get(..usize::from(*width)).unwrap_or(pattern);
                // SAFETY: as for the destination of a plain copy.
                unsafe { backend.fill(stream, *dst, pattern) }?;
            }
        }
        Ok(Step::Issued)
    }
}

/// Work that must have ended before an operation is issued.
pub(crate) struct Dependency {
    pub(crate) on: Completion,
    /// Whether the operation reads what that work writes: its failure is then the operation's.
    pub(crate) reads: bool,
    /// Who orders it, once the other operation was issued.
    pub(crate) ordered: Option<Ordered>,
}

impl Dependency {
    pub(crate) fn new(on: Completion, reads: bool) -> Self {
        Self { on, reads, ordered: None }
    }
}

pub(crate) type Dependencies = SmallVec<[Dependency; 2]>;
