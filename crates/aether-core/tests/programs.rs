//! Random programs of copies, fills and failures over many streams do what the same programs do one
//! operation after the other, whatever order the device runs them in.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod common;

use aether_core::{AsSpan, Chunk, DType, Device, Stream, copy, copy_async, fill_async, progress};
use common::{Held, Manual, Random, writes};

const SIZE: usize = 48;
const CHUNKS: usize = 4;
const STREAMS: usize = 4;

/// What each byte is: data, or what a failed write left.
type Model = Vec<[Option<u8>; SIZE]>;

struct Program {
    random: Random,
    model: Model,
    chunks: Vec<Chunk>,
    streams: Vec<Stream>,
    pending: Vec<std::sync::Arc<Held>>,
}

impl Program {
    fn new(seed: u64, devices: &[Device], on: &[Device]) -> Self {
        let chunk = |at| Chunk::allocate(&devices[at % devices.len()], SIZE).unwrap();
        let stream = |at| Stream::new(&on[at % on.len()]).unwrap();
        let mut it = Self {
            random: Random(seed),
            model: vec![[Some(0); SIZE]; CHUNKS],
            chunks: (0..CHUNKS).map(chunk).collect(),
            streams: (0..STREAMS).map(stream).collect(),
            pending: Vec::new(),
        };
        for chunk in &mut it.chunks {
            aether_core::fill(chunk, 0u8).unwrap();
        }
        it
    }

    fn range(&mut self) -> std::ops::Range<usize> {
        let start = self.random.below(SIZE);
        start..start + 1 + self.random.below(SIZE - start)
    }

    /// One more operation, in the program and in the model.
    fn step(&mut self, may_fail: bool) {
        let stream = self.streams[self.random.below(STREAMS)].clone();
        let target = self.random.below(CHUNKS);
        let range = self.range();
        match self.random.below(8) {
            0 | 1 => {
                let value = self.random.below(256) as u8;
                let mut span = self.chunks[target].span_of_mut(range.clone(), DType::U8).unwrap();
                fill_async(&mut span, value, &stream).unwrap();
                self.model[target][range].fill(Some(value));
            }
            2 if may_fail => {
                let held = Held::new();
                writes(&stream, &mut self.chunks[target], range.clone(), &held);
                if self.random.below(2) == 0 {
                    self.pending.push(held);
                } else {
                    held.fail();
                }
                self.model[target][range].fill(None);
            }
            _ => {
                let source = (target + 1 + self.random.below(CHUNKS - 1)) % CHUNKS;
                let shift = self.random.below(SIZE - range.len() + 1);
                let from = shift..shift + range.len();
                let [to, of] = self.chunks.get_disjoint_mut([target, source]).unwrap();
                let mut to = to.span_of_mut(range.clone(), DType::U8).unwrap();
                let bad = self.model[source][from.clone()].iter().any(Option::is_none);
                match copy_async(&mut to, &of.span_of(from.clone(), DType::U8).unwrap(), &stream) {
                    // The failure is known already: nothing is queued.
                    Err(_) => assert!(bad),
                    Ok(_) if bad => self.model[target][range].fill(None),
                    Ok(_) => {
                        let data = self.model[source];
                        self.model[target][range].copy_from_slice(&data[from]);
                    }
                }
            }
        }
        if self.random.below(4) == 0 {
            progress::look();
        }
    }

    fn check(self, seed: u64) {
        for held in &self.pending {
            held.fail();
        }
        for (at, chunk) in self.chunks.iter().enumerate() {
            let mut byte = [0u8];
            for offset in (0..SIZE).step_by(if cfg!(miri) { 12 } else { 1 }) {
                let span = chunk.span_of(offset..=offset, DType::U8).unwrap();
                let read = copy(&mut byte[..], &span.span().unwrap()).ok().map(|()| byte[0]);
                assert_eq!(read, self.model[at][offset], "seed {seed}, chunk {at}, byte {offset}");
            }
        }
    }
}

fn run(seed: u64, steps: usize, may_fail: bool, devices: &[Device], on: &[Device]) {
    let mut program = Program::new(seed * 7919 + 1, devices, on);
    for _ in 0..steps {
        program.step(may_fail);
    }
    program.check(seed);
}

const SEEDS: u64 = if cfg!(miri) { 1 } else { 24 };
const STEPS: usize = if cfg!(miri) { 10 } else { 80 };

#[test]
fn on_the_host() {
    let devices = Device::cpus(3);
    for seed in 0..SEEDS {
        run(seed, STEPS, seed % 2 == 1, &devices, &devices);
    }
}

#[test]
fn on_a_device_that_runs_them_in_any_order_it_may() {
    for seed in 0..SEEDS {
        let (device, lead) = Manual::device();
        let pump = lead.pump();
        let devices = [device];
        run(seed, STEPS, seed % 2 == 1, &devices, &devices);
        drop(pump);
        lead.check();
    }
}

#[test]
fn between_a_device_and_the_host() {
    for seed in 0..SEEDS {
        let (device, lead) = Manual::device();
        let pump = lead.pump();
        // Two chunks here and two there; the device's streams copy between both.
        let devices = [device.clone(), Device::cpu(0)];
        let mut program = Program::new(seed * 7919 + 1, &devices, &[device]);
        for _ in 0..STEPS {
            program.copies_only_step();
        }
        program.check(seed);
        drop(pump);
        lead.check();
    }
}

impl Program {
    /// Chunks of the host can't be filled on a stream of the device: they are copied to and from.
    fn copies_only_step(&mut self) {
        let target = self.random.below(CHUNKS);
        if target.is_multiple_of(2) && self.random.below(3) == 0 {
            let range = self.range();
            let value = self.random.below(256) as u8;
            let stream = self.streams[self.random.below(STREAMS)].clone();
            let mut span = self.chunks[target].span_of_mut(range.clone(), DType::U8).unwrap();
            fill_async(&mut span, value, &stream).unwrap();
            self.model[target][range].fill(Some(value));
            return;
        }
        // From here to there, or back.
        let source = (target + 1 + 2 * self.random.below(CHUNKS / 2)) % CHUNKS;
        let range = self.range();
        let stream = self.streams[self.random.below(STREAMS)].clone();
        let [to, of] = self.chunks.get_disjoint_mut([target, source]).unwrap();
        let mut to = to.span_of_mut(range.clone(), DType::U8).unwrap();
        copy_async(&mut to, &of.span_of(range.clone(), DType::U8).unwrap(), &stream).unwrap();
        let data = self.model[source];
        self.model[target][range.clone()].copy_from_slice(&data[range]);
    }
}
