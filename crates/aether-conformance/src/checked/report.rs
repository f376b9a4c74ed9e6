//! What the detector found: which accesses, by whom, of which bytes, and which order is missing.

use std::fmt;

use aether_core::{NativeStream, Point, Region};

/// What kind of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum What {
    /// The memory was allocated, which counts as a write of all of it.
    Allocate,
    /// One side of a copy.
    Copy,
    /// A fill.
    Fill,
    /// The memory was freed, which counts as a write of all of it.
    Free,
    /// The host read or wrote it by address.
    Host,
    /// Other work on a stream: a collective, for example.
    Work,
}

/// Who made an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum By {
    /// The host, at once.
    Host,
    /// Work on a stream.
    Stream {
        /// The stream, as the wrapped backend's users know it.
        stream: NativeStream,
        /// Which of the issues on this stream it was, counted from 1.
        issue: u64,
        /// The last ticket that had been marked on the stream before: the work belongs to a later one.
        after_ticket: u64,
    },
}

/// One access to one range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// What kind.
    pub what: What,
    /// By whom.
    pub by: By,
    /// The device and the bytes.
    pub region: Region,
    /// Whether it wrote, or only read.
    pub writes: bool,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// Two accesses conflict, and nothing orders the later one behind the earlier one.
    Unordered,
    /// Memory was used after it was freed.
    UseAfterFree,
    /// An access begins or ends outside of the allocation that it touches.
    OutOfBounds,
    /// Something was freed that was not allocated, was already freed, or had another layout.
    BadFree,
    /// Source and destination of a copy overlap, or two live allocations do.
    Overlap,
    /// The host went on because of a point that had not ended, or work was issued that the host had
    /// promised to hold back until then.
    NotEnded(Point),
    /// A stream was used that was never opened or is closed, or was closed with work on it.
    BadStream(NativeStream),
}

/// One finding. The order in which the accesses are named is that in which they were made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What is wrong.
    pub fault: Fault,
    /// The access that came first, the allocation or the free, where there is one.
    pub earlier: Option<Access>,
    /// The access that was wrong, where there is one.
    pub later: Option<Access>,
    /// What order is missing, or what else there is to say.
    pub detail: String,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.what {
            What::Allocate => "allocation",
            What::Copy => "copy",
            What::Fill => "fill",
            What::Free => "free",
            What::Host => "host access",
            What::Work => "work",
        };
        let does = if self.writes { "writing" } else { "reading" };
        let Region { device, address, bytes } = self.region;
        write!(f, "{what} {does} {device} {address:?}+{bytes}")?;
        match self.by {
            By::Host => f.write_str(" by the host"),
            By::Stream { stream, issue, after_ticket } => {
                write!(f, " on stream #{} (issue {issue}, after ticket {after_ticket})", stream.0)
            }
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unordered => f.write_str("unordered accesses"),
            Self::UseAfterFree => f.write_str("use after free"),
            Self::OutOfBounds => f.write_str("access out of bounds"),
            Self::BadFree => f.write_str("bad free"),
            Self::Overlap => f.write_str("overlap"),
            Self::NotEnded(at) => {
                write!(f, "ticket {} of stream #{} had not ended", at.ticket, at.stream.0)
            }
            Self::BadStream(stream) => write!(f, "bad stream #{}", stream.0),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.fault)?;
        if let Some(it) = &self.earlier {
            write!(f, "; earlier: {it}")?;
        }
        if let Some(it) = &self.later {
            write!(f, "; later: {it}")?;
        }
        write!(f, "; {}", self.detail)
    }
}

/// All that was found, as an error.
#[derive(Clone, Debug)]
pub struct Findings {
    /// The first findings.
    pub reports: Vec<Report>,
    /// How many more there were.
    pub more: u64,
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.reports.len() as u64 + self.more;
        write!(f, "{count} findings about the order and the lifetime of memory")?;
        for report in self.reports.iter().take(SHOWN) {
            write!(f, "\n- {report}")?;
        }
        match count.saturating_sub(SHOWN as u64) {
            0 => Ok(()),
            more => write!(f, "\n- and {more} more"),
        }
    }
}

impl std::error::Error for Findings {}

/// How many findings a message shows.
const SHOWN: usize = 8;
