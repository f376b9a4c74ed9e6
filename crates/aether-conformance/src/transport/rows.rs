//! Rows move with a pitch on each side, and what lies between them stays.

use aether_core::{AsSpan, AsSpanMut, Rows, Stream};

use super::{Bench, Case, passed_if, unless_blocking};
use crate::memory::expect_bytes;
use crate::suite::{Outcome, chunk_of, passed, pattern};

pub(super) const CASES: [Case; 2] = [
    Case { name: "rows::move_and_what_lies_between_stays", run: move_and_what_lies_between_stays },
    Case { name: "rows::move_on_a_stream_too", run: move_on_a_stream_too },
];

const ROWS: [Rows; 5] = [
    Rows { count: 5, bytes: 13, dst_pitch: 40, src_pitch: 17 },
    Rows { count: 5, bytes: 13, dst_pitch: 13, src_pitch: 29 },
    Rows { count: 3, bytes: 100, dst_pitch: 128, src_pitch: 100 },
    Rows { count: 1, bytes: 9, dst_pitch: 0, src_pitch: 0 },
    Rows { count: 0, bytes: 9, dst_pitch: 9, src_pitch: 9 },
];

/// What a destination should hold.
fn wanted(before: &[u8], source: &[u8], rows: Rows) -> Vec<u8> {
    let mut wanted = before.to_vec();
    for row in 0..rows.count {
        let (into, start) = (row * rows.dst_pitch, row * rows.src_pitch);
        let part = source.get(start..start + rows.bytes).unwrap_or_default();
        wanted.splice(into..into + rows.bytes, part.iter().copied());
    }
    wanted
}

fn move_and_what_lies_between_stays(bench: &Bench<'_>) -> Outcome {
    let (bytes, before) = (pattern(400, 1), pattern(400, 2));
    for (from, to) in bench.pairs() {
        let source = chunk_of(from, &bytes)?;
        for rows in ROWS {
            let mut target = chunk_of(to, &before)?;
            bench.transport.copy_rows(target.span_mut()?, source.span()?, rows)?;
            let what = format!("{rows:?} from {from} to {to}");
            expect_bytes(&target, &wanted(&before, &bytes, rows), &what)?;
        }
    }
    passed()
}

fn move_on_a_stream_too(bench: &Bench<'_>) -> Outcome {
    let (bytes, before) = (pattern(400, 3), pattern(400, 4));
    let mut any = false;
    for (from, to) in bench.pairs() {
        let source = chunk_of(from, &bytes)?;
        // The side that the host can't address has the streams that reach both.
        let stream = Stream::new(if to.host_addressable() { from } else { to })?;
        for rows in ROWS {
            let mut target = chunk_of(to, &before)?;
            let (into, part) = (target.span_mut()?, source.span()?);
            let found = bench.transport.copy_rows_async(into, part, rows, &stream);
            let Some(work) = unless_blocking(found)? else { continue };
            any = true;
            work.wait()?;
            let what = format!("{rows:?} from {from} to {to} on a stream");
            expect_bytes(&target, &wanted(&before, &bytes, rows), &what)?;
        }
    }
    passed_if(any)
}
