//! Random programs: copies, fills, host accesses and drops over several streams and devices, beside a
//! model that does the same one after the other on plain vectors.

use aether_core::{
    AsSpanMut, Chunk, Completion, DType, Device, Rows, Stream, copy, copy_async, copy_rows_async,
    fill, fill_async,
};

use crate::suite::{Failed, Random, chunk_of, expect_same, pattern};

/// How many steps a program has.
const STEPS: usize = 24;

/// What is on a device, and what should be.
type Twin = (Chunk, Vec<u8>);

/// What a copy moves: from where in which twin to where in which, and how much.
struct Move {
    dst: usize,
    to: usize,
    src: usize,
    from: usize,
    length: usize,
}

struct Program {
    devices: Vec<Device>,
    streams: Vec<Stream>,
    chunks: Vec<Twin>,
    pending: Vec<Completion>,
    random: Random,
}

/// Runs the program of this seed on the devices, which have one backend and are linked directly or
/// indirectly, and compares what every host access sees with the model.
///
/// # Errors
/// Where they differ, and whatever a call says.
pub fn run(devices: &[Device], seed: u64) -> Result<(), Failed> {
    let mut random = Random::new(seed);
    let count = 2 + random.below(4);
    let streams = (0..=random.below(4))
        .map(|_| Stream::new(pick(devices, &mut random)?).map_err(Failed::from))
        .collect::<Result<Vec<_>, _>>()?;
    let mut program = Program {
        devices: devices.to_vec(),
        streams,
        chunks: Vec::new(),
        pending: Vec::new(),
        random,
    };
    for _ in 0..count {
        let chunk = program.new_chunk()?;
        program.chunks.push(chunk);
    }
    for step in 0..STEPS {
        program.step().map_err(|error| at_step(seed, step, &error))?;
    }
    for at in 0..program.chunks.len() {
        program.read(at).map_err(|error| at_step(seed, STEPS, &error))?;
    }
    Ok(())
}

fn at_step(seed: u64, step: usize, error: &Failed) -> Failed {
    format!("program {seed}, step {step}: {}", error.message().unwrap_or("failed")).into()
}

fn pick<'a, T>(of: &'a [T], random: &mut Random) -> Result<&'a T, Failed> {
    let at = random.below(of.len());
    of.get(at).ok_or_else(|| "the fixture has no device".into())
}

impl Program {
    fn step(&mut self) -> Result<(), Failed> {
        let at = self.random.below(self.chunks.len());
        match self.random.below(16) {
            0..=5 => {
                let stream = self.stream()?;
                self.copy(at, Some(&stream))
            }
            6..=8 => self.fill(at),
            9 => self.copy_rows(at),
            10 => self.copy(at, None),
            11 => self.read(at),
            12 => self.write(at),
            13 => self.replace(at),
            14 => self.wait(),
            _ => {
                // Nobody is told of the end of this one.
                self.pending.drain(..).for_each(std::mem::forget);
                Ok(())
            }
        }
    }

    fn new_chunk(&mut self) -> Result<Twin, Failed> {
        let device = pick(&self.devices, &mut self.random)?.clone();
        let bytes = pattern(64 + 8 * self.random.below(60), self.random.next_u64());
        Ok((chunk_of(&device, &bytes)?, bytes))
    }

    fn stream(&mut self) -> Result<Stream, Failed> {
        pick(&self.streams, &mut self.random).cloned()
    }

    /// A range of `of` bytes, in whole `unit`s and beginning on one.
    fn range(&mut self, of: usize, unit: usize) -> (usize, usize) {
        let start = self.random.below(of / unit);
        let length = 1 + self.random.below(of / unit - start);
        (start * unit, length * unit)
    }

    /// Another chunk than this one.
    fn other(&mut self, dst: usize) -> usize {
        (dst + 1 + self.random.below(self.chunks.len() - 1)) % self.chunks.len()
    }

    fn size(&self, at: usize) -> usize {
        self.chunks.get(at).map_or(0, |it| it.1.len())
    }

    /// Two different chunks: what is written, and what is read.
    fn pair(&mut self, dst: usize, src: usize) -> Result<(&mut Twin, &Twin), Failed> {
        let (low, high) = self.chunks.split_at_mut(dst.max(src));
        let (low, high) = low.get_mut(dst.min(src)).zip(high.first_mut()).ok_or("no pair")?;
        Ok(if dst < src { (low, high) } else { (high, low) })
    }

    fn some_move(&mut self, dst: usize) -> Move {
        let src = self.other(dst);
        let (of, from) = (self.size(dst), self.size(src));
        let length = 1 + self.random.below(of.min(from));
        let to = self.random.below(of - length + 1);
        let from = self.random.below(from - length + 1);
        Move { dst, to, src, from, length }
    }

    /// A copy, blocking if there is no stream.
    fn copy(&mut self, dst: usize, stream: Option<&Stream>) -> Result<(), Failed> {
        let it = self.some_move(dst);
        let (to, from) = self.pair(dst, it.src)?;
        let source = from.0.span_of(it.from..it.from + it.length, DType::U8)?;
        let mut target = to.0.span_of_mut(it.to..it.to + it.length, DType::U8)?;
        let work = match stream {
            Some(stream) => Some(copy_async(&mut target, &source, stream)?),
            None => copy(&mut target, &source).map(|()| None)?,
        };
        self.moved(&it)?;
        self.pending.extend(work);
        Ok(())
    }

    fn copy_rows(&mut self, dst: usize) -> Result<(), Failed> {
        let stream = self.stream()?;
        let src = self.other(dst);
        let (to, from) = self.pair(dst, src)?;
        let rows = Rows { count: 3, bytes: 7, dst_pitch: 11, src_pitch: 9 };
        let work = copy_rows_async(&mut to.0, &from.0, rows, &stream)?;
        for row in 0..rows.count {
            let (to, from) = (row * rows.dst_pitch, row * rows.src_pitch);
            self.moved(&Move { dst, to, src, from, length: rows.bytes })?;
        }
        self.pending.push(work);
        Ok(())
    }

    /// Does to the model what a copy does.
    fn moved(&mut self, it: &Move) -> Result<(), Failed> {
        let (to, from) = self.pair(it.dst, it.src)?;
        let source = from.1.get(it.from..it.from + it.length);
        if let Some((to, from)) = to.1.get_mut(it.to..it.to + it.length).zip(source) {
            to.copy_from_slice(from);
        }
        Ok(())
    }

    fn fill(&mut self, at: usize) -> Result<(), Failed> {
        let stream = self.stream()?;
        let value = self.random.next_u64() as u32;
        let size = self.size(at);
        let (start, length) = self.range(size, 4);
        let Some((chunk, model)) = self.chunks.get_mut(at) else { return Ok(()) };
        let mut target = chunk.span_of_mut(start..start + length, DType::U32)?;
        let work = fill_async(&mut target, value, &stream)?;
        let words = model.iter_mut().skip(start).take(length);
        words.zip(value.to_ne_bytes().iter().cycle()).for_each(|(to, &from)| *to = from);
        self.pending.push(work);
        Ok(())
    }

    fn read(&mut self, at: usize) -> Result<(), Failed> {
        let size = self.size(at);
        let (start, length) = self.range(size, 1);
        let Some((chunk, model)) = self.chunks.get(at) else { return Ok(()) };
        let whole = chunk.view::<u8, 1>([size])?;
        let wanted = model.get(start..start + length).unwrap_or_default();
        if chunk.device().host_addressable() {
            return expect_same(whole.narrow(0, start, length)?.as_slice()?, wanted, "a host read");
        }
        expect_same(&chunk.to_vec::<u8>()?, model, "a copy to the host")
    }

    fn write(&mut self, at: usize) -> Result<(), Failed> {
        let byte = self.random.next_u64() as u8;
        let size = self.size(at);
        let (start, length) = self.range(size, 1);
        let Some((chunk, model)) = self.chunks.get_mut(at) else { return Ok(()) };
        let written = model.iter_mut().skip(start).take(length);
        if chunk.device().host_addressable() {
            let slice = chunk.slice_mut::<u8>()?;
            let found = slice.iter_mut().skip(start).take(length);
            found.zip(written).for_each(|(one, two)| {
                *one ^= byte;
                *two ^= byte;
            });
            return Ok(());
        }
        fill(&mut chunk.span_of_mut(start..start + length, DType::U8)?.span_mut()?, byte)?;
        written.for_each(|it| *it = byte);
        Ok(())
    }

    /// A chunk goes, whatever is still on it, and another comes in its place.
    fn replace(&mut self, at: usize) -> Result<(), Failed> {
        let new = self.new_chunk()?;
        if let Some(old) = self.chunks.get_mut(at) {
            *old = new;
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<(), Failed> {
        if !self.pending.is_empty() {
            let at = self.random.below(self.pending.len());
            self.pending.swap_remove(at).wait()?;
        }
        Ok(())
    }
}
