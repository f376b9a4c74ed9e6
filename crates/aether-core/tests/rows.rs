//! Copies of rows touch their rows alone: what lies between them belongs to others meanwhile.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod common;

use aether_core::{
    AsSpan, Chunk, Completion, DType, Device, Rows, Status, Stream, copy_async, copy_rows_async,
};
use common::{Held, bytes, eventually, look_hard, writes};

/// A matrix of 5 rows of 12 bytes, whose columns are written by copies of rows.
const ROWS: usize = 5;
const PITCH: usize = 12;

fn device() -> Device {
    Device::cpu(0)
}

fn stream() -> Stream {
    Stream::new(&device()).unwrap()
}

fn columns(bytes: usize) -> Rows {
    Rows { count: ROWS, bytes, dst_pitch: PITCH, src_pitch: bytes }
}

/// Copies a dense block into the columns that begin at `first`, on a stream of its own.
fn gather(whole: &mut Chunk, first: usize, block: &Chunk) -> Completion {
    let width = block.size() / ROWS;
    let end = (ROWS - 1) * PITCH + first + width;
    let mut to = whole.span_of_mut(first..end, DType::U8).unwrap();
    copy_rows_async(&mut to, block, columns(width), &stream()).unwrap()
}

/// A block whose write has not ended, and what ends it.
fn held_block(width: usize, seed: u8) -> (Chunk, std::sync::Arc<Held>) {
    let mut block = Chunk::from_vec(&device(), bytes(ROWS * width, seed)).unwrap();
    let held = Held::new();
    let end = block.size();
    writes(&stream(), &mut block, 0..end, &held);
    (block, held)
}

#[test]
fn columns_of_one_matrix_are_written_without_waiting_for_each_other() {
    let mut whole = Chunk::allocate(&device(), ROWS * PITCH).unwrap();
    let (late, held) = held_block(4, 1);
    let early = Chunk::from_vec(&device(), bytes(ROWS * 8, 2)).unwrap();
    let first = gather(&mut whole, 0, &late);
    let second = gather(&mut whole, 4, &early);
    eventually("the second block is there", || second.is_done());
    assert!(matches!(first.status(), Status::Pending));
    held.open();
    first.wait().unwrap();
    let (one, two) = (bytes(ROWS * 4, 1), bytes(ROWS * 8, 2));
    let expected: Vec<u8> = one
        .chunks(4)
        .zip(two.chunks(8))
        .flat_map(|(one, two)| one.iter().chain(two).copied())
        .collect();
    assert_eq!(whole.slice::<u8>().unwrap(), expected);
}

#[test]
fn columns_that_overlap_are_written_one_after_the_other() {
    let mut whole = Chunk::allocate(&device(), ROWS * PITCH).unwrap();
    let (late, held) = held_block(4, 1);
    let early = Chunk::from_vec(&device(), bytes(ROWS * 8, 2)).unwrap();
    let first = gather(&mut whole, 0, &late);
    let second = gather(&mut whole, 3, &early);
    look_hard();
    assert!(!second.is_done());
    held.open();
    second.wait().unwrap();
    assert!(first.is_done());
    let row = whole.slice::<u8>().unwrap().get(..12).unwrap();
    assert_eq!(row.get(..3).unwrap(), &bytes(ROWS * 4, 1)[..3]);
    assert_eq!(row.get(3..11).unwrap(), &bytes(ROWS * 8, 2)[..8]);
}

#[test]
fn whoever_needs_all_of_the_matrix_waits_for_every_column() {
    let mut whole = Chunk::allocate(&device(), ROWS * PITCH).unwrap();
    let (late, held) = held_block(4, 1);
    let early = Chunk::from_vec(&device(), bytes(ROWS * 8, 2)).unwrap();
    gather(&mut whole, 0, &late);
    gather(&mut whole, 4, &early);
    let mut copied = Chunk::allocate(&device(), ROWS * PITCH).unwrap();
    let copy = copy_async(&mut copied, &whole, &stream()).unwrap();
    look_hard();
    assert!(!copy.is_done());
    held.open();
    copy.wait().unwrap();
    assert_eq!(copied.slice::<u8>().unwrap(), whole.slice::<u8>().unwrap());
}

#[test]
fn a_failed_copy_of_rows_spoils_its_rows_and_not_what_lies_between() {
    let mut whole = Chunk::allocate(&device(), ROWS * PITCH).unwrap();
    let (bad, held) = held_block(4, 1);
    let good = Chunk::from_vec(&device(), bytes(ROWS * 8, 2)).unwrap();
    let failed = gather(&mut whole, 2, &bad);
    held.fail();
    assert!(failed.wait().is_err());
    let spoiled = |whole: &Chunk| -> Vec<bool> {
        let is_bad = |at| whole.span_of(at..at + 1, DType::U8).unwrap().check_readable().is_err();
        (0..whole.size()).map(is_bad).collect()
    };
    let expected = |columns: std::ops::Range<usize>| -> Vec<bool> {
        (0..ROWS * PITCH).map(|at| columns.contains(&(at % PITCH))).collect()
    };
    assert_eq!(spoiled(&whole), expected(2..6));
    // Other rows heal a part of each row, and a part of them alone.
    gather(&mut whole, 4, &good).wait().unwrap();
    assert_eq!(spoiled(&whole), expected(2..4));
    // Bytes at another distance heal what they cover.
    let mut some = whole.span_of_mut(2..2 + 2 * PITCH, DType::U8).unwrap();
    let rows = Rows { count: 2, bytes: 2, dst_pitch: 2 * PITCH - 2, src_pitch: 2 };
    copy_rows_async(&mut some, &good.span().unwrap(), rows, &stream()).unwrap().wait().unwrap();
    let bad = |at: usize| (2..4).contains(&(at % PITCH)) && !(2..4).contains(&at);
    assert_eq!(spoiled(&whole), (0..ROWS * PITCH).map(bad).collect::<Vec<_>>());
}
