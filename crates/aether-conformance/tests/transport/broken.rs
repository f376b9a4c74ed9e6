//! Transports that each break one thing, and the case that has to catch it.

use aether_conformance::doubles::Remote;
use aether_conformance::suite::{Completion as Ended, Failed};
use aether_conformance::transport::{self, TransportFixture};
use aether_core::{Completion, Device, Result, Rows, Span, SpanMut, Stream};
use aether_residency::{StreamTransport, Transport};
use libtest_mimic::Trial;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    CopiesHalf,
    CopiesNothing,
    CopiesNothingLater,
    CopiesTheStart,
    CopiesWhatFits,
    HidesFailures,
    IgnoresRows,
    PacksRows,
    TakesBorrowedMemory,
}

const MUTANTS: [(Broken, &str); 12] = [
    (Broken::CopiesHalf, "moves::every_byte_between_every_pair"),
    (Broken::CopiesHalf, "moves::large_ones"),
    (Broken::CopiesNothing, "moves::plain_memory_of_the_host_both_ways"),
    (Broken::CopiesNothingLater, "moves::every_byte_on_a_stream_of_either_side"),
    (Broken::CopiesNothingLater, "ordering::copies_on_streams_see_what_came_before_and_not_after"),
    (Broken::CopiesTheStart, "moves::every_byte_between_every_pair"),
    (Broken::CopiesWhatFits, "refusals::sizes_that_differ"),
    (Broken::HidesFailures, "refusals::a_copy_that_fails_is_told_and_remembered"),
    (Broken::IgnoresRows, "rows::move_and_what_lies_between_stays"),
    (Broken::PacksRows, "rows::move_on_a_stream_too"),
    (Broken::PacksRows, "refusals::rows_that_are_none"),
    (Broken::TakesBorrowedMemory, "refusals::memory_that_is_only_borrowed_on_streams"),
];

/// A trial for each: it passes if the case fails.
pub(crate) fn trials() -> Vec<Trial> {
    let trial = |(broken, name): (Broken, &'static str)| {
        Trial::test(format!("mutant::{broken:?}::{name}"), move || {
            let cases = transport::cases();
            let case = cases.iter().find(|it| it.name == name).ok_or("there is no such case")?;
            match case.run(&broken) {
                Err(_) => Ok(()),
                Ok(Ended::Completed) => Err(Failed::from("the case passed")),
                Ok(Ended::Ignored { reason }) => {
                    Err(format!("the case was skipped: {}", reason.unwrap_or_default()).into())
                }
            }
        })
        .with_kind("broken")
    };
    MUTANTS.into_iter().map(trial).collect()
}

impl TransportFixture for Broken {
    fn transport(&self) -> Result<Box<dyn Transport>, String> {
        Ok(Box::new(Wrong { broken: *self, inner: StreamTransport::new() }))
    }

    fn devices(&self) -> Result<Vec<Device>, String> {
        Ok(Device::cpus(2))
    }

    fn failing(&self) -> Option<(Device, Device, Box<dyn Fn()>)> {
        let remote = Remote::builder().build().ok()?;
        let devices = remote.devices();
        let (from, to) = (devices.first()?.clone(), devices.last()?.clone());
        Some((from, to, Box::new(move || remote.fail_copy_after(0))))
    }
}

struct Wrong {
    broken: Broken,
    inner: StreamTransport,
}

impl Transport for Wrong {
    fn copy(&self, mut dst: SpanMut<'_>, src: Span<'_>) -> Result<()> {
        let bytes = src.bytes();
        match self.broken {
            Broken::CopiesHalf => {
                let half = bytes / 2;
                self.inner.copy(dst.part(0, half)?, src.part(0, half)?)
            }
            Broken::CopiesNothing => Ok(()),
            Broken::CopiesTheStart if bytes > 1 => {
                // The first half twice, as if an offset were forgotten.
                let half = bytes / 2;
                self.inner.copy(dst.part(0, half)?, src.part(0, half)?)?;
                self.inner.copy(dst.part(bytes - half, half)?, src.part(0, half)?)
            }
            Broken::CopiesWhatFits => {
                let least = bytes.min(dst.as_span().bytes());
                self.inner.copy(dst.part(0, least)?, src.part(0, least)?)
            }
            Broken::HidesFailures => {
                drop(self.inner.copy(dst, src));
                Ok(())
            }
            _ => self.inner.copy(dst, src),
        }
    }

    fn copy_async(
        &self,
        mut dst: SpanMut<'_>,
        src: Span<'_>,
        stream: &Stream,
    ) -> Result<Completion> {
        match self.broken {
            Broken::CopiesNothingLater => Ok(stream.last()),
            Broken::TakesBorrowedMemory => {
                self.inner.copy(dst.reborrow(), src)?;
                Ok(stream.last())
            }
            _ => self.inner.copy_async(dst, src, stream),
        }
    }

    fn copy_rows(&self, dst: SpanMut<'_>, src: Span<'_>, rows: Rows) -> Result<()> {
        self.inner.copy_rows(dst, src, self.rows(rows))
    }

    fn copy_rows_async(
        &self,
        dst: SpanMut<'_>,
        src: Span<'_>,
        rows: Rows,
        stream: &Stream,
    ) -> Result<Completion> {
        self.inner.copy_rows_async(dst, src, self.rows(rows), stream)
    }
}

impl Wrong {
    fn rows(&self, rows: Rows) -> Rows {
        match self.broken {
            Broken::IgnoresRows => Rows { count: rows.count.min(1), ..rows },
            Broken::PacksRows => Rows { dst_pitch: rows.bytes, src_pitch: rows.bytes, ..rows },
            _ => rows,
        }
    }
}
