//! Copies move every byte that they say and no other, between all pairs that are linked.

use aether_core::{
    Chunk, DType, Device, DeviceKind, ErrorKind, Link, Rows, Stream, copy, copy_async, copy_rows,
    link,
};

use super::{Bench, Case, expect_bytes};
use crate::suite::{
    Failed, Outcome, chunk_of, expect, expect_equal, expect_error, expect_same, passed, pattern,
};

pub(super) const CASES: [Case; 6] = [
    Case {
        name: "copies::every_pair_copies_as_its_link_says",
        run: every_pair_copies_as_its_link_says,
    },
    Case { name: "copies::parts_of_any_size_at_any_offset", run: parts_of_any_size_at_any_offset },
    Case { name: "copies::large_ones", run: large_ones },
    Case {
        name: "copies::rows_move_and_what_lies_between_stays",
        run: rows_move_and_what_lies_between_stays,
    },
    Case {
        name: "copies::a_vector_goes_there_and_comes_back",
        run: a_vector_goes_there_and_comes_back,
    },
    Case { name: "copies::a_link_is_the_same_both_ways", run: a_link_is_the_same_both_ways },
];

/// The devices of the fixture, those that they are staged through, and the host.
fn all_devices(bench: &Bench<'_>) -> Vec<Device> {
    let mut all = bench.devices().to_vec();
    let staging = bench.devices().iter().filter_map(|it| it.backend().staging(it.id()));
    let more: Vec<Device> = staging.chain([Device::cpu(0)]).collect();
    for device in more {
        if !all.contains(&device) {
            all.push(device);
        }
    }
    all
}

fn a_link_is_the_same_both_ways(bench: &Bench<'_>) -> Outcome {
    let all = all_devices(bench);
    for one in &all {
        expect(link(one, one) >= Link::Indirect, || format!("{one} does not reach itself"))?;
        for other in &all {
            let what = format!("the link of {one} and {other}, from either side");
            expect_equal(link(one, other), link(other, one), &what)?;
            if one.shares_backend(other) {
                let (there, back) = (one.backend(), other.backend());
                let there = there.link(one.id(), other);
                expect_equal(there, back.link(other.id(), one), &what)?;
            }
        }
    }
    passed()
}

fn every_pair_copies_as_its_link_says(bench: &Bench<'_>) -> Outcome {
    let all = all_devices(bench);
    for (index, from) in all.iter().enumerate() {
        for to in &all {
            let wanted = pattern(777, index as u64);
            let source = chunk_of(from, &wanted)?;
            let mut target = Chunk::allocate(to, wanted.len())?;
            let mut nothing = (Chunk::allocate(to, 0)?, Chunk::allocate(from, 0)?);
            let what = format!("a copy from {from} to {to}");
            let found = link(to, from);
            // The side that the host can't address copies.
            let copier = if to.host_addressable() { from } else { to };
            let stream = Stream::new(copier)?;
            if found == Link::None {
                expect_error(copy(&mut target, &source), ErrorKind::IllegalPair, &what)?;
                let empty = copy(&mut nothing.0, &nothing.1);
                expect_error(empty, ErrorKind::IllegalPair, &format!("{what} of nothing"))?;
            } else {
                copy(&mut target, &source)?;
                expect_bytes(&target, &wanted, &what)?;
                copy(&mut nothing.0, &nothing.1)?;
            }
            if found < Link::Indirect {
                let refused = copy_async(&mut target, &source, &stream);
                expect_error(refused, ErrorKind::IllegalPair, &format!("{what} on a stream"))?;
                let refused = copy_async(&mut nothing.0, &nothing.1, &stream);
                expect_error(refused, ErrorKind::IllegalPair, &format!("{what} of nothing"))?;
            } else {
                let mut target = Chunk::allocate(to, wanted.len())?;
                copy_async(&mut target, &source, &stream)?.wait()?;
                expect_bytes(&target, &wanted, &format!("{what} on a stream"))?;
            }
        }
    }
    passed()
}

fn parts_of_any_size_at_any_offset(bench: &Bench<'_>) -> Outcome {
    let devices = Bench::linked(bench.devices());
    let (Some(from), Some(to)) = (devices.first(), devices.last()) else { return passed() };
    let (source_bytes, before) = (pattern(5000, 1), pattern(5000, 2));
    let source = chunk_of(from, &source_bytes)?;
    for bytes in [0, 1, 2, 3, 7, 8, 9, 15, 16, 31, 63, 64, 65, 127, 255, 4097] {
        for (start, into) in [(0, 0), (1, 0), (0, 1), (3, 5), (255, 64), (903, 902)] {
            let mut target = chunk_of(to, &before)?;
            copy(
                &mut target.span_of_mut(into..into + bytes, DType::U8)?,
                &source.span_of(start..start + bytes, DType::U8)?,
            )?;
            let mut wanted = before.clone();
            let part = source_bytes.get(start..start + bytes).unwrap_or_default();
            wanted.splice(into..into + bytes, part.iter().copied());
            let what = format!("{bytes} bytes from offset {start} to offset {into}");
            expect_bytes(&target, &wanted, &what)?;
        }
    }
    expect_bytes(&source, &source_bytes, "the source of the copies")?;
    passed()
}

fn large_ones(bench: &Bench<'_>) -> Outcome {
    let devices = Bench::linked(bench.devices());
    let (Some(from), Some(to)) = (devices.first(), devices.last()) else { return passed() };
    let wanted = pattern((3 << 20) + 13, 5);
    let source = chunk_of(from, &wanted)?;
    let mut target = Chunk::allocate(to, wanted.len())?;
    copy(&mut target, &source)?;
    expect_bytes(&target, &wanted, "a large copy")?;
    passed()
}

fn rows_move_and_what_lies_between_stays(bench: &Bench<'_>) -> Outcome {
    let devices = Bench::linked(bench.devices());
    let (Some(from), Some(to)) = (devices.first(), devices.last()) else { return passed() };
    let rows = [
        Rows { count: 5, bytes: 13, dst_pitch: 40, src_pitch: 17 },
        Rows { count: 5, bytes: 13, dst_pitch: 13, src_pitch: 29 },
        Rows { count: 7, bytes: 8, dst_pitch: 32, src_pitch: 8 },
        Rows { count: 1, bytes: 9, dst_pitch: 0, src_pitch: 0 },
        Rows { count: 0, bytes: 9, dst_pitch: 9, src_pitch: 9 },
    ];
    let (source_bytes, before) = (pattern(300, 3), pattern(300, 4));
    let source = chunk_of(from, &source_bytes)?;
    for rows in rows {
        let mut target = chunk_of(to, &before)?;
        copy_rows(&mut target, &source, rows)?;
        let mut wanted = before.clone();
        for row in 0..rows.count {
            let (into, start) = (row * rows.dst_pitch, row * rows.src_pitch);
            let part = source_bytes.get(start..start + rows.bytes).unwrap_or_default();
            wanted.splice(into..into + rows.bytes, part.iter().copied());
        }
        expect_bytes(&target, &wanted, &format!("{rows:?}"))?;
    }
    passed()
}

fn a_vector_goes_there_and_comes_back(bench: &Bench<'_>) -> Outcome {
    fn there_and_back<T>(device: &Device, elements: Vec<T>) -> Result<(), Failed>
    where
        T: aether_core::Element + PartialEq + std::fmt::Debug,
    {
        let chunk = Chunk::from_vec(device, elements.clone())?;
        expect_same(&chunk.to_vec::<T>()?, &elements, &format!("a vector by way of {device}"))
    }
    for device in bench.devices() {
        there_and_back(device, pattern(1001, 8))?;
        there_and_back(device, (0..501_u32).map(|it| it * 3 + 1).collect())?;
        there_and_back(device, (0..501).map(|it| f64::from(it) / 7.0).collect())?;
        there_and_back(device, Vec::<i16>::new())?;
        let kind: DeviceKind = device.kind();
        expect_equal(Chunk::from_vec(device, vec![1u8])?.device().kind(), kind, "the kind")?;
    }
    passed()
}
