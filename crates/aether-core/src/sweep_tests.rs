//! Slices, passes and who takes them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

use std::collections::BTreeSet;

use super::*;
use crate::{AsSpan, AsSpanMut, Chunk};

fn dense(bytes: usize) -> Rows {
    Rows { count: 1, bytes, dst_pitch: bytes, src_pitch: bytes }
}

fn numbered(bytes: usize) -> Chunk {
    let numbers = (0..bytes).map(|it| (it * 7 % 251) as u8).collect();
    Chunk::from_vec(&Device::cpu(0), numbers).unwrap()
}

fn target(chunk: &mut Chunk) -> Target {
    let region = chunk.span_mut().unwrap().as_span().region();
    Target::on(&Stream::new(&Device::cpu(0)).unwrap(), region)
}

/// Looks until the copy has ended.
fn end(sweep: &Sweep, at: usize) {
    // SAFETY: the chunks of the tests are of the sweep's size and of the host, whose backend
    // shares its copies; they live and are left alone meanwhile.
    while unsafe { sweep.step(at, false) }.unwrap() == Step::Pending {
        std::thread::yield_now();
    }
}

fn arrive(sweep: &Sweep, at: usize) {
    // SAFETY: as in `end`.
    assert_eq!(unsafe { sweep.step(at, true) }.unwrap(), Step::Pending);
}

#[test]
#[cfg_attr(miri, ignore = "many shapes, and safe arithmetic alone")]
fn slices_cover_every_byte_of_every_row_once() {
    for count in 1..5 {
        for bytes in 1..9 {
            for slice in 1..20 {
                let rows = Rows { count, bytes, dst_pitch: bytes + 2, src_pitch: bytes + 3 };
                let slices = Slices::new(rows, slice);
                let mut found = Vec::new();
                for Slice { dst, src, rows } in (0..slices.count).map(|it| slices.at(it)) {
                    assert!(rows.count * rows.bytes <= slice);
                    for row in 0..rows.count {
                        let (dst, src) = (dst + row * rows.dst_pitch, src + row * rows.src_pitch);
                        found.extend((0..rows.bytes).map(|at| (dst + at, src + at)));
                    }
                }
                let all = (0..count).flat_map(|row| {
                    (0..bytes).map(move |at| (row * (bytes + 2) + at, row * (bytes + 3) + at))
                });
                let distinct: BTreeSet<_> = found.iter().copied().collect();
                assert_eq!(found.len(), distinct.len(), "{rows:?} by {slice}");
                assert_eq!(distinct, all.collect(), "{rows:?} by {slice}");
            }
        }
    }
}

#[test]
fn nothing_begins_before_all_destinations_are_known() {
    let source = numbered(100);
    let sweep = Sweep::by(source.span().unwrap().region(), dense(100), 8);
    let [mut one, mut two] = [0; 2].map(|_| Chunk::allocate(&Device::cpu(0), 100).unwrap());
    let first = sweep.add(target(&mut one));
    arrive(&sweep, first);
    assert!(sweep.pass_of(first).is_none());
    let second = sweep.add(target(&mut two));
    arrive(&sweep, second);
    sweep.close();
    end(&sweep, first);
    // The second was in the same pass, and is told by it.
    end(&sweep, second);
    assert_eq!(one.slice::<u8>().unwrap(), source.slice::<u8>().unwrap());
    assert_eq!(two.slice::<u8>().unwrap(), source.slice::<u8>().unwrap());
}

#[test]
fn a_destination_that_comes_late_keeps_none_waiting_and_gets_a_pass_of_its_own() {
    let source = numbered(100);
    let sweep = Sweep::by(source.span().unwrap().region(), dense(100), 8);
    let mut chunks = [0; 3].map(|_| Chunk::allocate(&Device::cpu(0), 100).unwrap());
    let places: Vec<_> = chunks.iter_mut().map(|it| sweep.add(target(it))).collect();
    sweep.close();
    arrive(&sweep, places[0]);
    arrive(&sweep, places[2]);
    end(&sweep, places[0]);
    assert!(sweep.pass_of(places[1]).is_none());
    arrive(&sweep, places[1]);
    end(&sweep, places[1]);
    end(&sweep, places[2]);
    let same = |at: usize| {
        let (one, two) = (sweep.pass_of(places[0]).unwrap(), sweep.pass_of(places[at]).unwrap());
        Arc::ptr_eq(&one.0, &two.0)
    };
    assert!(same(2) && !same(1));
    for chunk in &chunks {
        assert_eq!(chunk.slice::<u8>().unwrap(), source.slice::<u8>().unwrap());
    }
}

#[test]
fn a_pass_ends_with_the_last_slice_whoever_takes_it() {
    let source = numbered(1000);
    let sweep = Sweep::by(source.span().unwrap().region(), dense(1000), 10);
    let mut chunk = Chunk::allocate(&Device::cpu(0), 1000).unwrap();
    let at = sweep.add(target(&mut chunk));
    sweep.close();
    arrive(&sweep, at);
    let (pass, _) = sweep.pass_of(at).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| while pass.help(End::Back, Some(Instant::now())) {});
        }
        end(&sweep, at);
    });
    assert!(!pass.help(End::Front, None));
    assert_eq!(chunk.slice::<u8>().unwrap(), source.slice::<u8>().unwrap());
}
