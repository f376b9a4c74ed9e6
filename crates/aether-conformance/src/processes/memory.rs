//! The memory of a worker's call: its own, laid out as the rank's pointers lie.

use aether_collective::{Message, Request, Work};
use aether_core::{DType, Device, Error, ErrorKind, Result, Span, SpanMut};

use super::wire::{self, Call, Lies, Memory};
use crate::collectives::bench::Stop;
use crate::collectives::buffer::Buffer;
use crate::collectives::operation::Operation;
use crate::suite::pattern;

/// A call with its memory.
pub(super) enum Laid {
    Barrier,
    /// Source and destination in buffers of their own, either of which may not be there.
    Apart {
        operation: Operation,
        src: Option<Buffer>,
        dst: Option<Buffer>,
        read: Vec<u8>,
    },
    /// One buffer that holds both.
    Together(Together),
    Batch(Vec<(wire::Message, Buffer)>),
}

/// Source and destination in one buffer, of which one is the whole.
pub(super) struct Together {
    operation: Operation,
    buffer: Buffer,
    src: (usize, usize),
    dst: (usize, usize),
    /// What the buffer holds before the call.
    before: Vec<u8>,
}

impl Laid {
    /// Memory of the device for the call, filled with what the rank's holds.
    pub(super) fn new(device: &Device, call: Call) -> Result<Self> {
        let make = |dtype: DType, held: &[u8], skew: usize| {
            Buffer::new(device, dtype, held, skew / dtype.size()).map_err(told)
        };
        let target = |dtype: DType, it: &Memory| make(dtype, &garbage(dtype, it.bytes), it.skew);
        Ok(match call {
            Call::Barrier => Self::Barrier,
            Call::Batch(messages) => Self::Batch(
                messages
                    .into_iter()
                    .map(|it| {
                        let (dtype, memory) = (it.dtype, &it.memory);
                        let buffer = match it.sends {
                            true => make(dtype, &memory.held, memory.skew),
                            false => target(dtype, memory),
                        };
                        Ok((it, buffer?))
                    })
                    .collect::<Result<_>>()?,
            ),
            Call::Collective { operation, dtype, lies, src, dst } => match (lies, src, dst) {
                (Lies::DestinationInside(at), Some(src), Some(dst)) => Self::Together(Together {
                    operation,
                    buffer: make(dtype, &src.held, src.skew)?,
                    src: (0, src.bytes),
                    dst: (at, dst.bytes),
                    before: src.held,
                }),
                (Lies::SourceInside(at), Some(src), Some(dst)) => {
                    let mut before = garbage(dtype, dst.bytes);
                    for (to, from) in before.iter_mut().skip(at).zip(&src.held) {
                        *to = *from;
                    }
                    let buffer = make(dtype, &before, dst.skew)?;
                    let (src, dst) = ((at, src.bytes), (0, dst.bytes));
                    Self::Together(Together { operation, buffer, src, dst, before })
                }
                (_, src, dst) => {
                    let from = src.as_ref().map(|it| make(dtype, &it.held, it.skew)).transpose()?;
                    let to = dst.as_ref().map(|it| target(dtype, it)).transpose()?;
                    let read = src.map(|it| it.held).unwrap_or_default();
                    Self::Apart { operation, src: from, dst: to, read }
                }
            },
        })
    }

    /// Makes the call by `submit`.
    pub(super) fn submit(
        &mut self,
        submit: impl FnOnce(Request<'_>) -> Result<Work>,
    ) -> Result<Work> {
        match self {
            Self::Barrier => submit(Request::Barrier),
            Self::Apart { operation, src, dst, .. } => {
                let src = src.as_ref().map(Buffer::span).transpose().map_err(told)?;
                let dst = dst.as_mut().map(Buffer::span_mut).transpose().map_err(told)?;
                submit(request(operation, src, dst)?)
            }
            Self::Together(it) => {
                let whole = it.buffer.span_mut().map_err(told)?;
                // SAFETY: both go into one request of one member ("they are only given to one operation,
                // which is told of both").
                let src = unsafe { whole.alias() }.part(it.src.0, it.src.1)?;
                let dst = whole.into_part(it.dst.0, it.dst.1)?;
                submit(request(&it.operation, Some(src), Some(dst))?)
            }
            Self::Batch(each) => {
                let messages = each.iter_mut().map(|(it, buffer)| {
                    let peer = it.peer;
                    Ok(match it.sends {
                        true => Message::Send { src: buffer.span().map_err(told)?, peer },
                        false => Message::Recv { dst: buffer.span_mut().map_err(told)?, peer },
                    })
                });
                let messages = messages.collect::<Result<Vec<_>>>()?;
                submit(Request::Batch(messages.into_iter().collect()))
            }
        }
    }

    /// What the call, which went well, left in its destinations. What it may not write is as it was.
    pub(super) fn written(&self) -> Result<Vec<Vec<u8>>> {
        match self {
            Self::Barrier => Ok(Vec::new()),
            Self::Apart { src, dst, read, .. } => {
                if let Some(src) = src {
                    unchanged(&src.read().map_err(told)?, read)?;
                }
                dst.iter().map(|it| it.read().map_err(told)).collect()
            }
            Self::Together(it) => {
                let mut found = it.buffer.read().map_err(told)?;
                let end = it.dst.0 + it.dst.1;
                let inside = |at: &usize| (it.dst.0..end).contains(at);
                let outside = |(at, byte): (usize, &u8)| (!inside(&at)).then_some(*byte);
                let left: Vec<u8> = found.iter().enumerate().filter_map(outside).collect();
                let before: Vec<u8> = it.before.iter().enumerate().filter_map(outside).collect();
                unchanged(&left, &before)?;
                found.truncate(end);
                found.drain(..it.dst.0);
                Ok(vec![found])
            }
            Self::Batch(each) => {
                let mut written = Vec::new();
                for (it, buffer) in each {
                    let found = buffer.read().map_err(told)?;
                    match it.sends {
                        true => unchanged(&found, &it.memory.held)?,
                        false => written.push(found),
                    }
                }
                Ok(written)
            }
        }
    }
}

fn request<'a>(
    operation: &'a Operation,
    src: Option<Span<'a>>,
    dst: Option<SpanMut<'a>>,
) -> Result<Request<'a>> {
    operation.request(src, dst).ok_or_else(|| wrong("a call lacks a buffer that every rank has"))
}

/// What a destination holds before the call.
fn garbage(dtype: DType, bytes: usize) -> Vec<u8> {
    match dtype {
        // A bool is 0 or 1.
        DType::Bool => vec![1; bytes],
        _ => pattern(bytes, 0x3C),
    }
}

fn unchanged(found: &[u8], before: &[u8]) -> Result<()> {
    match found.iter().zip(before).position(|(one, two)| one != two) {
        None => Ok(()),
        Some(at) => Err(wrong(format!("byte {at} of what is only read was written"))),
    }
}

fn wrong(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::Backend, "make a call in a worker", why)
}

/// What is wrong with memory, as an error.
fn told(stop: Stop) -> Error {
    match stop {
        Stop::Skipped(why) | Stop::Failed(why) => wrong(why),
    }
}
