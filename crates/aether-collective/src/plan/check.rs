//! The single checks that a request has to pass.

use std::ops::Range;

use aether_core::{DType, DeviceKind, Error, ErrorKind, Result, Span};

use super::Check;
use crate::{CollectiveDriver, Elements, ReduceOp};

impl Check<'_> {
    /// The source, unless it is exactly `place`, which is the in-place form; anything else that has a
    /// byte in common with the destination is refused. All are on this member's device.
    pub(super) fn apart<'a>(
        &self,
        src: Option<Span<'a>>,
        place: &Span<'_>,
        dst: &Span<'_>,
    ) -> Result<Option<Span<'a>>> {
        let src = src.filter(|it| !is_same(it, place));
        src.iter().try_for_each(|it| self.no_overlap(it, dst))?;
        Ok(src)
    }

    pub(super) fn no_overlap(&self, one: &Span<'_>, other: &Span<'_>) -> Result<()> {
        if !one.overlaps(other) {
            return Ok(());
        }
        let reason =
            format!("{one:?} and {other:?} overlap, and not in the way of the in-place form");
        Err(self.refuse(ErrorKind::Overlap, reason, one.bytes()))
    }

    /// A buffer that this member's device reaches, of a type the driver knows, whole and aligned.
    pub(super) fn buffer<D: CollectiveDriver>(
        &self,
        span: &Span<'_>,
    ) -> Result<Elements<D::DataType>> {
        let device = self.asker.device;
        let on_host = || device.kind() == DeviceKind::CPU && device.host_addressable();
        if !span.device().map_or_else(on_host, |it| D::reaches(device, it)) {
            let where_ = span.device().map_or("the host".to_owned(), |it| it.to_string());
            let reason = format!("the buffer is on {where_}");
            return Err(self.refuse(ErrorKind::WrongDevice, reason, span.bytes()));
        }
        let (address, dtype) = (span.address(), span.dtype());
        if !address.addr().is_multiple_of(dtype.size()) && span.bytes() > 0 {
            let reason =
                format!("{address:?} is not a multiple of {}, as {dtype} needs", dtype.size());
            return Err(self.refuse(ErrorKind::Misaligned, reason, span.bytes()));
        }
        self.elements::<D>(span)
    }

    /// A buffer beside another of the same call: as [`Check::buffer`], and of the same type.
    pub(super) fn beside<D: CollectiveDriver>(
        &self,
        one: &Span<'_>,
        other: &Span<'_>,
    ) -> Result<Elements<D::DataType>> {
        let elements = self.buffer::<D>(one)?;
        if one.dtype() == other.dtype() {
            return Ok(elements);
        }
        let reason = format!("the buffers are {} and {}", one.dtype(), other.dtype());
        Err(self.refuse(ErrorKind::DTypeMismatch, reason, one.bytes()))
    }

    pub(super) fn elements<D: CollectiveDriver>(
        &self,
        span: &Span<'_>,
    ) -> Result<Elements<D::DataType>> {
        D::elements(span.dtype(), span.bytes() as u64).map_err(|error| {
            self.refuse(error.kind(), error.reason().to_owned(), span.bytes()).caused_by(error)
        })
    }

    pub(super) fn sized(&self, bytes: usize, needed: usize, what: &str, like: &str) -> Result<()> {
        if bytes == needed {
            return Ok(());
        }
        let reason = format!("{what} has {bytes} bytes and {like} {needed}");
        Err(self.refuse(ErrorKind::SizeMismatch, reason, bytes))
    }

    /// The size of a chunk of a buffer that holds one for every rank.
    pub(super) fn chunk(&self, span: &Span<'_>) -> Result<usize> {
        let ranks = self.asker.ranks;
        let elements = span.bytes() / span.dtype().size();
        if elements.is_multiple_of(ranks) {
            return Ok(span.bytes() / ranks);
        }
        let reason = format!(
            "{elements} {} elements don't divide into {ranks} chunks; the vector variants take a \
             count for each rank",
            span.dtype()
        );
        Err(self.refuse(ErrorKind::SizeMismatch, reason, span.bytes()))
    }

    /// This rank's chunk of a buffer that [`Check::chunk`] divided.
    pub(super) fn own<'a>(&self, span: &Span<'a>, chunk: usize) -> Result<Span<'a>> {
        span.part(self.asker.rank * chunk, chunk)
    }

    /// The counts of all ranks in bytes. Their sum doesn't overflow.
    pub(super) fn sizes(&self, counts: &[u64], size: usize, expected: usize) -> Result<Vec<usize>> {
        if counts.len() != expected {
            let reason = format!("{} counts were given and {expected} are needed", counts.len());
            return Err(self.refuse(ErrorKind::InvalidArgument, reason, 0));
        }
        let bytes = |&count: &u64| usize::try_from(count).ok()?.checked_mul(size);
        let sizes: Option<Vec<usize>> = counts.iter().map(bytes).collect();
        let sizes = sizes.ok_or_else(|| self.overflow())?;
        let total = sizes.iter().try_fold(0usize, |sum, &it| sum.checked_add(it));
        total.map(|_| sizes).ok_or_else(|| self.overflow())
    }

    pub(super) fn total(
        &self,
        sizes: impl Iterator<Item = usize>,
        span: &Span<'_>,
        what: &str,
    ) -> Result<()> {
        self.sized(span.bytes(), sizes.sum(), what, "the sum of its counts")
    }

    pub(super) fn in_group(&self, what: &str, rank: usize) -> Result<()> {
        if rank < self.asker.ranks {
            return Ok(());
        }
        let reason = format!("{what} {rank} is out of range: there are {} ranks", self.asker.ranks);
        Err(self.refuse(ErrorKind::RankOutOfRange, reason, 0).about_ranks([rank]))
    }

    pub(super) fn only_root(&self, what: &str, right: bool) -> Result<()> {
        if right {
            return Ok(());
        }
        let reason = format!("the root has {what}, and nobody else");
        Err(self.refuse(ErrorKind::InvalidArgument, reason, 0))
    }

    pub(super) fn reduces<D: CollectiveDriver>(&self, dtype: DType, op: ReduceOp) -> Result<()> {
        if D::reduces(dtype, op) {
            return Ok(());
        }
        let reason = format!("{} does not reduce {dtype} by {op}", D::name());
        Err(self.refuse(ErrorKind::Unsupported, reason, 0))
    }

    pub(super) fn overflow(&self) -> Error {
        self.refuse(ErrorKind::Overflow, "the product of counts and sizes overflows".to_owned(), 0)
    }

    fn refuse(&self, kind: ErrorKind, reason: String, bytes: usize) -> Error {
        let place = format!("rank {} ({})", self.asker.rank, self.asker.device);
        let error = Error::new(kind, self.operation.name(), reason).on(place);
        if bytes > 0 { error.of_bytes(bytes as u64) } else { error }
    }
}

/// Whether both are the same bytes, if both are on one device.
pub(super) fn is_same(one: &Span<'_>, other: &Span<'_>) -> bool {
    one.range() == other.range()
}

/// Where chunk `rank` of chunks of these sizes lies. Their sum doesn't overflow.
pub(crate) fn chunk_of(sizes: impl Iterator<Item = usize>, rank: usize) -> Range<usize> {
    let mut start = 0;
    for (at, size) in sizes.enumerate() {
        if at == rank {
            return start..start + size;
        }
        start += size;
    }
    start..start
}
