//! A block of several rows moves as one pitched copy.
#![allow(clippy::unwrap_used)]

use aether_core::{Completion, Device, Result, Rows, Span, SpanMut, Stream};
use aether_residency::{PartitionedArray, StreamTransport, Transport};

/// Remembers which copies of rows go through it.
struct Watching {
    inner: StreamTransport,
    rows: std::cell::RefCell<Vec<Rows>>,
}

impl Transport for Watching {
    fn copy(&self, dst: SpanMut<'_>, src: Span<'_>) -> Result<()> {
        self.inner.copy(dst, src)
    }

    fn copy_async(&self, dst: SpanMut<'_>, src: Span<'_>, on: &Stream) -> Result<Completion> {
        self.inner.copy_async(dst, src, on)
    }

    fn copy_rows(&self, dst: SpanMut<'_>, src: Span<'_>, rows: Rows) -> Result<()> {
        self.rows.borrow_mut().push(rows);
        self.inner.copy_rows(dst, src, rows)
    }

    fn copy_rows_async(
        &self,
        dst: SpanMut<'_>,
        src: Span<'_>,
        rows: Rows,
        on: &Stream,
    ) -> Result<Completion> {
        self.rows.borrow_mut().push(rows);
        self.inner.copy_rows_async(dst, src, rows, on)
    }
}

#[test]
fn a_block_of_several_rows_moves_as_one_pitched_copy_of_its_samples() {
    let watching = Watching { inner: StreamTransport::new(), rows: Default::default() };
    let devices = Device::cpus(3);
    let mut array =
        PartitionedArray::<u32, 3, _>::with_transport(&devices, [2, 2, 20], 8, &watching).unwrap();
    array.scatter().unwrap();
    let rows = |bytes, dst_pitch, src_pitch| Rows { count: 4, bytes, dst_pitch, src_pitch };
    let scattered = [rows(32, 32, 80), rows(32, 32, 80), rows(16, 32, 80)];
    assert_eq!(watching.rows.take(), scattered);
    array.gather().unwrap();
    assert_eq!(watching.rows.take(), [rows(32, 80, 32), rows(32, 80, 32), rows(16, 80, 32)]);
    array.move_to(2, &Device::cpu(7)).unwrap();
    assert_eq!(watching.rows.take(), [rows(16, 32, 32)]);
    // Without padding there is one row.
    array.move_to(1, &Device::cpu(7)).unwrap();
    let one = Rows { count: 1, bytes: 128, dst_pitch: 128, src_pitch: 128 };
    assert_eq!(watching.rows.take(), [one]);
}
