//! What a queue holds, and what each operation of it waits for.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::Operation;
use crate::backend::{Ordered, Region, Rows};
use crate::stream::Completion;

/// What a queue holds.
pub(crate) enum Task {
    Call { operation: Arc<dyn Operation>, token: u64 },
    Copy { dst: Region, src: Region },
    CopyRows { dst: Region, src: Region, rows: Rows },
    Fill { dst: Region, pattern: [u8; 8], width: u8 },
}

impl Task {
    /// Whether what it depends on has to have ended, rather than only to be ordered by the device.
    pub(crate) fn works_on_host(&self) -> bool {
        matches!(self, Self::Call { operation, .. } if operation.works_on_host())
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
