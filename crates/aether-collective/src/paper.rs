//! A driver on paper, for the unit tests: it notes what it is asked for and touches no memory. It
//! provides what is required and nothing more, and knows no u64.

use std::sync::{Mutex, PoisonError};

use aether_core::{DType, Device, Error, ErrorKind, Region, Result, Stream};

use crate::{
    Capabilities, CollectiveDriver, CommunicationId, DeviceResource, Driver, Elements, GroupConfig,
    ReduceOp,
};

pub(crate) struct Paper;

/// What the groups were asked for, each note with the group's name.
static NOTES: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// What the group of this name was asked for since the last time.
pub(crate) fn take_notes(group: &str) -> Vec<String> {
    let mut notes = NOTES.lock().unwrap_or_else(PoisonError::into_inner);
    let (taken, kept) = std::mem::take(&mut *notes).into_iter().partition(|(of, _)| of == group);
    *notes = kept;
    let taken: Vec<(String, String)> = taken;
    taken.into_iter().map(|(_, words)| words).collect()
}

pub(crate) struct Comm {
    rank: usize,
    group: String,
}

impl Comm {
    fn note(&self, words: &str) {
        let note = (self.group.clone(), format!("{}: {words}", self.rank));
        NOTES.lock().unwrap_or_else(PoisonError::into_inner).push(note);
    }

    /// Notes a call. Rank 1 of groups of certain names can't make it.
    fn called(&self, words: &str) -> Result<()> {
        self.note(words);
        assert!(self.rank != 1 || self.group != "panics", "the driver was told to panic");
        if self.rank == 1 && ["declines", "refuses"].contains(&self.group.as_str()) {
            return Err(Error::new(ErrorKind::Backend, "enqueue", "the driver was told to refuse"));
        }
        Ok(())
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        assert!(self.group != "panics at the end", "the driver was told to panic");
    }
}

type Range = DeviceResource<Paper>;
type Named = Elements<DType>;

impl Driver for Paper {
    type Resource = Region;

    fn name() -> &'static str {
        "paper"
    }

    fn supports(device: &Device) -> bool {
        device.id().index < 1000
    }

    fn capabilities() -> Capabilities {
        Capabilities::default()
    }

    fn resource(region: Region) -> Region {
        region
    }
}

// SAFETY: it touches no memory at all.
unsafe impl CollectiveDriver for Paper {
    type Communicator = Comm;
    type UniqueId = u64;
    type DataType = DType;
    type CommStream = ();

    fn group_id(id: &CommunicationId) -> Result<u64> {
        Ok(id.generation())
    }

    fn id_to_bytes(id: u64) -> Vec<u8> {
        id.to_be_bytes().to_vec()
    }

    fn id_from_bytes(bytes: &[u8]) -> Result<u64> {
        let refuse = |_| Error::new(ErrorKind::Parse, "read an identifier", "no eight bytes");
        bytes.try_into().map(u64::from_be_bytes).map_err(refuse)
    }

    fn comm_stream(_: &Stream) {}

    fn join(_: u64, _: usize, rank: usize, _: &Device, config: &GroupConfig) -> Result<Comm> {
        Ok(Comm { rank, group: config.name.clone().unwrap_or_default() })
    }

    fn elements(dtype: DType, bytes: u64) -> Result<Named> {
        let refuse = |kind, reason: &str| Err(Error::new(kind, "count elements", reason));
        if dtype == DType::U64 {
            return refuse(ErrorKind::Unsupported, "there is no u64 on paper");
        }
        let size = dtype.size() as u64;
        if !bytes.is_multiple_of(size) {
            return refuse(ErrorKind::PartialElement, "not whole elements");
        }
        Ok(Elements { data_type: dtype, count: bytes / size })
    }

    unsafe fn all_reduce(
        comm: &Comm,
        src: &Range,
        dst: &Range,
        elements: Named,
        op: ReduceOp,
        (): (),
    ) -> Result<()> {
        let place = if src == dst { " in place" } else { "" };
        comm.called(&format!("all_reduce {op} of {}{place}", elements.count))
    }

    unsafe fn all_gather(comm: &Comm, _: &Range, _: &Range, elements: Named, (): ()) -> Result<()> {
        comm.called(&format!("all_gather of {}", elements.count))
    }

    unsafe fn reduce_scatter(
        comm: &Comm,
        _: &Range,
        _: &Range,
        elements: Named,
        op: ReduceOp,
        (): (),
    ) -> Result<()> {
        comm.called(&format!("reduce_scatter {op} of {}", elements.count))
    }

    unsafe fn broadcast(
        comm: &Comm,
        src: Option<&Range>,
        _: &Range,
        elements: Named,
        root: usize,
        (): (),
    ) -> Result<()> {
        let has = if src.is_some() { "with" } else { "without" };
        comm.called(&format!("broadcast of {} from {root} {has} a source", elements.count))
    }

    unsafe fn all_to_all(
        comm: &Comm,
        _: &Range,
        _: &Range,
        elements: Named,
        ranks: usize,
        (): (),
    ) -> Result<()> {
        comm.called(&format!("all_to_all of {} among {ranks}", elements.count))
    }

    unsafe fn send(comm: &Comm, src: &Range, elements: Named, peer: usize, (): ()) -> Result<()> {
        comm.called(&format!("send {} ({} bytes) to {peer}", elements.count, src.bytes))
    }

    unsafe fn recv(comm: &Comm, dst: &Range, elements: Named, peer: usize, (): ()) -> Result<()> {
        comm.called(&format!("recv {} ({} bytes) from {peer}", elements.count, dst.bytes))
    }

    fn batch_begin(comm: &Comm) -> Result<()> {
        comm.called("begin")
    }

    fn batch_end(comm: &Comm) -> Result<()> {
        comm.note("end");
        Ok(())
    }

    fn abort(comm: &Comm, _: &Error) -> Result<()> {
        assert!(comm.group != "panics at the end", "the driver was told to panic");
        Err(Error::new(ErrorKind::Unsupported, "abort", "not on paper"))
    }

    fn failure(comm: &Comm) -> Option<Error> {
        assert!(comm.group != "panics when asked", "the driver was told to panic");
        None
    }

    fn leaving(comm: &Comm, _: bool) {
        assert!(comm.group != "panics at the end", "the driver was told to panic");
    }
}
