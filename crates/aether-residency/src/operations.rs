//! What residency puts on streams besides copies: the one module with unsafe code.

use std::sync::Arc;

use aether_core::{
    Address, Completion, Device, Error, ErrorKind, Operation, Result, Rows, Span, SpanMut, Step,
    Stream, check_tracked, enqueue,
};

/// A point on the stream that comes when everything that writes `dst` now has ended, and that fails
/// if any of it failed.
pub(crate) fn arrival(dst: &SpanMut<'_>, stream: &Stream) -> Result<Completion> {
    check_tracked("copy_async", &dst.as_span())?;
    // SAFETY: the operation touches no memory at all, and the span belongs to a chunk.
    unsafe { enqueue(stream, &[dst.as_span()], &[], Arc::new(Arrival), 0) }
}

/// Has every row of `dst` give this error until it is overwritten, as a failed write does, for a
/// copy of which a part is under way already. The completion fails with the error.
pub(crate) fn fail(
    dst: &mut SpanMut<'_>,
    rows: Rows,
    stream: &Stream,
    error: Error,
) -> Result<Completion> {
    check_tracked("copy_async", &dst.as_span())?;
    let operation: Arc<dyn Operation> = Arc::new(Failure(error));
    let dense = rows.count <= 1 || rows.dst_pitch == rows.bytes;
    let (count, bytes) =
        if dense { (1, rows.count * rows.bytes) } else { (rows.count, rows.bytes) };
    let mut last = stream.last();
    for row in 0..count {
        let part = dst.part(row * rows.dst_pitch, bytes)?;
        // SAFETY: the operation touches no memory at all, and the span belongs to a chunk.
        last = unsafe { enqueue(stream, &[], &[part], operation.clone(), 0) }?;
    }
    Ok(last)
}

/// Copies rows between two devices that the host can address, by the processor, on `stream`, which is
/// one of [`host_stream`].
pub(crate) fn host_copy(
    dst: SpanMut<'_>,
    src: Span<'_>,
    rows: Rows,
    stream: &Stream,
) -> Result<Completion> {
    let to = addressable(&dst.as_span())?;
    let from = addressable(&src)?;
    crate::transport::check_rows(&dst, &src, rows)?;
    if dst.as_span().overlaps(&src) {
        let reason = "source and destination overlap";
        return Err(Error::new(ErrorKind::Overlap, "copy", reason).of_bytes(src.bytes() as u64));
    }
    let operation = HostCopy { dst: to, src: from, rows };
    // SAFETY: `check_rows` proved that all rows, which are all that the operation touches, lie within
    // the two spans; it writes only the destination's, and is done when the copy has returned.
    // `addressable` refused spans that don't belong to chunks.
    unsafe { enqueue(stream, &[src], &[dst], Arc::new(operation), 0) }
}

/// A stream whose operations begin when everything that they depend on has ended, wherever it ran:
/// the processor works on it.
pub(crate) fn host_stream() -> Result<Stream> {
    Stream::new(&Device::cpu(0))
}

fn addressable(span: &Span<'_>) -> Result<(Device, Address)> {
    check_tracked("copy_async", span)?;
    match span.device().filter(|it| it.host_addressable()) {
        Some(device) => Ok((device.clone(), span.address())),
        None => {
            let reason = "the host can't address the device";
            Err(Error::new(ErrorKind::IllegalPair, "copy_async", reason)
                .of_bytes(span.bytes() as u64))
        }
    }
}

struct Arrival;

// SAFETY: it touches no memory.
unsafe impl Operation for Arrival {
    fn issue(&self, _: u64) -> Result<Step> {
        Ok(Step::Issued)
    }

    fn advance(&self, _: u64) -> Result<Step> {
        Ok(Step::Issued)
    }

    fn refused(&self, _: u64, _: &Error) {}
}

struct Failure(Error);

// SAFETY: it touches no memory.
unsafe impl Operation for Failure {
    fn issue(&self, _: u64) -> Result<Step> {
        Err(self.0.clone())
    }

    fn advance(&self, _: u64) -> Result<Step> {
        Err(self.0.clone())
    }

    fn refused(&self, _: u64, _: &Error) {}
}

struct HostCopy {
    dst: (Device, Address),
    src: (Device, Address),
    rows: Rows,
}

// SAFETY: it touches its memory in `advance` alone, which has ended with the copy when it answers.
unsafe impl Operation for HostCopy {
    fn issue(&self, _: u64) -> Result<Step> {
        Ok(Step::Pending)
    }

    fn advance(&self, _: u64) -> Result<Step> {
        let Rows { count, bytes, dst_pitch, src_pitch } = self.rows;
        for row in 0..count {
            let to = self.dst.1.add(row * dst_pitch);
            let from = self.src.1.add(row * src_pitch);
            let touch = |device: &Device, address, writes| {
                let region = aether_core::Region { device: device.id(), address, bytes };
                device.backend().observe(None, &[aether_core::Touch { region, writes }]);
            };
            touch(&self.src.0, from, false);
            touch(&self.dst.0, to, true);
            // SAFETY: `host_copy` proved both rows to lie within chunks of devices that the host can
            // address, and to have no byte in common. The operation is on record for both, so they
            // are valid and nobody conflicts with it until it has ended; what came before it has
            // ended and was not only ordered by a device, because the backend of `Device::cpu`, whose
            // stream this is, has the provided `Backend::wait`, which answers `Ordered::ByHost`
            // ("aether issues nothing on the stream until the point is done").
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), bytes) };
        }
        Ok(Step::Issued)
    }

    fn refused(&self, _: u64, _: &Error) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use aether_core::{AsSpan, Chunk};

    #[test]
    fn the_processor_copies_rows_and_leaves_what_lies_between() {
        let device = Device::cpu(0);
        let source = Chunk::from_vec(&device, (0..40u8).collect()).unwrap();
        let mut target = Chunk::from_vec(&device, vec![99u8; 20]).unwrap();
        let rows = Rows { count: 3, bytes: 4, dst_pitch: 6, src_pitch: 10 };
        let copy = HostCopy {
            dst: addressable(&target.span().unwrap()).unwrap(),
            src: addressable(&source.span().unwrap()).unwrap(),
            rows,
        };
        assert_eq!(copy.issue(0).unwrap(), Step::Pending);
        assert!(target.slice::<u8>().unwrap().iter().all(|&it| it == 99));
        assert_eq!(copy.advance(0).unwrap(), Step::Issued);
        drop(copy);
        let expected = [0, 1, 2, 3, 99, 99, 10, 11, 12, 13, 99, 99, 20, 21, 22, 23, 99, 99, 99, 99];
        assert_eq!(target.slice_mut::<u8>().unwrap(), expected);
    }

    #[test]
    fn borrowed_memory_is_not_put_on_streams() {
        let data = [1u8; 8];
        let error = addressable(&data[..].span().unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BorrowedMemory);
    }
}
