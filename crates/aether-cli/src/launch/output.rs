//! What ranks print, each line with its rank in front.

use std::io::{self, Read, Write};

use crate::failure::{Failure, Result};

/// A line that is longer than this is cut into several, so that no rank can fill the memory.
const LONGEST: usize = 64 << 10;

/// Where a rank's output goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// What is told of a stream.
#[derive(Debug)]
pub(crate) enum Told {
    /// Its lines can't be printed any more: the rest is read and not printed, so that no rank waits for
    /// a reader.
    Unprintable(io::Error),
    /// It has ended. Nothing more is told.
    End,
}

/// Prints what comes from there, line by line and whatever bytes they are, until it ends, on a thread
/// of its own. Standard error is no result, so that nothing is told if nobody can read it.
pub(crate) fn forward(
    from: impl Read + Send + 'static,
    rank: usize,
    to: Stream,
    mut tell: impl FnMut(Told) + Send + 'static,
) -> Result<()> {
    let copy = move || {
        let mut printable = true;
        copy(from, rank, |lines| {
            if printable && let Err(error) = print(to, lines) {
                printable = false;
                tell(Told::Unprintable(error));
            }
        });
        tell(Told::End);
    };
    let started = std::thread::Builder::new().name(format!("output of {rank}")).spawn(copy);
    started
        .map(drop)
        .map_err(|it| Failure::new(format!("launch rank {rank}: start a thread: {it}")))
}

fn print(to: Stream, lines: &[u8]) -> io::Result<()> {
    match to {
        Stream::Out => {
            let mut out = io::stdout().lock();
            out.write_all(lines)?;
            out.flush()
        }
        Stream::Err => {
            // As everywhere in this program: nothing depends on whether that can be read.
            drop(io::stderr().lock().write_all(lines));
            Ok(())
        }
    }
}

/// Reads to the end, and hands on whole lines, as many as there are.
fn copy(mut from: impl Read, rank: usize, mut print: impl FnMut(&[u8])) {
    let mut lines = Lines { prefix: format!("[{rank}] ").into_bytes(), rest: Vec::new() };
    let (mut buffer, mut out) = (vec![0; 16 << 10], Vec::new());
    loop {
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => lines.push(&buffer[..count], &mut out),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A pipe that can't be read has ended.
            Err(_) => break,
        }
        if !out.is_empty() {
            print(&out);
            out.clear();
        }
    }
    lines.finish(&mut out);
    if !out.is_empty() {
        print(&out);
    }
}

/// Cuts bytes into lines.
struct Lines {
    prefix: Vec<u8>,
    /// The beginning of a line whose end has not come.
    rest: Vec<u8>,
}

impl Lines {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for part in bytes.split_inclusive(|it| *it == b'\n') {
            self.rest.extend_from_slice(part);
            if part.ends_with(b"\n") || self.rest.len() >= LONGEST {
                self.finish(out);
            }
        }
    }

    /// Ends the line, if there is one.
    fn finish(&mut self, out: &mut Vec<u8>) {
        if self.rest.is_empty() {
            return;
        }
        out.extend_from_slice(&self.prefix);
        out.append(&mut self.rest);
        if !out.ends_with(b"\n") {
            out.push(b'\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its parts one by one, as a pipe does.
    struct Parts<'a>(std::slice::Iter<'a, &'a [u8]>);

    impl Read for Parts<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let Some(part) = self.0.next() else { return Ok(0) };
            buffer[..part.len()].copy_from_slice(part);
            Ok(part.len())
        }
    }

    fn printed(parts: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut printed = Vec::new();
        copy(Parts(parts.iter()), 7, |lines| printed.push(lines.to_vec()));
        printed
    }

    #[test]
    fn lines_have_their_rank_in_front_wherever_they_were_cut() {
        assert_eq!(
            printed(&[b"one\ntw", b"o\n", b"\nthree"]).concat(),
            *b"[7] one\n[7] two\n[7] \n[7] three\n"
        );
        assert!(printed(&[]).is_empty());
    }

    #[test]
    fn only_whole_lines_are_printed_and_all_that_there_are_at_once() {
        assert_eq!(
            printed(&[b"one\ntwo\nthr", b"ee", b"\n"]),
            [&b"[7] one\n[7] two\n"[..], b"[7] three\n"]
        );
    }

    #[test]
    fn bytes_that_are_no_text_come_out_as_they_are() {
        let bytes: Vec<u8> = (0..=255).collect();
        let mut expected = b"[7] ".to_vec();
        expected.extend(0..=10);
        expected.extend(b"[7] ");
        expected.extend(11..=255);
        expected.push(b'\n');
        assert_eq!(printed(&[&bytes]).concat(), expected);
    }

    #[test]
    fn a_line_without_end_comes_out_in_pieces() {
        let part = [b'x'; 10_000];
        let printed = printed(&[&part[..]; 20]);
        assert!(printed.len() > 2 && printed.iter().all(|it| it.len() <= LONGEST + part.len() + 5));
        let count = printed.concat().iter().filter(|it| **it == b'x').count();
        assert_eq!(count, 200_000);
    }
}
