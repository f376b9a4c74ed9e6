//! Which slice comes next: every thread has a strip of the call's memory, and goes through it from one
//! end to the other, so that call after call it finds the same memory in its core's caches. Who is done
//! with its own strip helps with the others.
//!
//! That a slice may be done at all is for the [`Round`](crate::round::Round) to say, which counts how
//! many were taken. This only chooses which one it is.

use crate::sync::{AtomicU64, Ordering};

/// The slices of one call, in as many strips as threads can work on it at once.
#[derive(Debug)]
pub(crate) struct Strips(Box<[Strip]>);

/// Apart from each other by two cache lines, because processors fetch lines in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Strip {
    next: AtomicU64,
    end: u64,
}

impl Strips {
    /// For that many threads, at least one.
    pub(crate) fn new(threads: usize) -> Self {
        Self((0..threads.max(1)).map(|_| Strip { next: AtomicU64::new(0), end: 0 }).collect())
    }

    /// How many strips there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Deals out the slices of a new call: to each strip those next to each other, and equally many but
    /// for one.
    pub(crate) fn deal(&mut self, slices: u64) {
        let strips = self.0.len() as u64;
        // The quotient and the rest, because the product of the two counts could overflow.
        let (each, rest) = (slices / strips, slices % strips);
        let mut start = 0;
        for (at, strip) in (0..strips).zip(&mut self.0) {
            strip.next = AtomicU64::new(start);
            start += each + u64::from(at < rest);
            strip.end = start;
        }
    }

    /// A slice that nobody else gets, from the strip of this number (modulo how many there are) or, if
    /// that has none left, from the next that has. None only where as many were got as were dealt out.
    ///
    /// It orders nothing: who asks has seen [`Strips::deal`] already, as it has the call itself.
    pub(crate) fn next(&self, strip: usize) -> Option<u64> {
        let first = strip % self.0.len();
        let (before, from) = self.0.split_at_checked(first)?;
        // Once a strip has none left it stays so: whoever finds none in any has seen all of them given
        // to somebody.
        from.iter().chain(before).find_map(|strip| {
            // Looked at first, so that those who find nothing don't write to others' lines.
            if strip.next.load(Ordering::Relaxed) >= strip.end {
                return None;
            }
            let slice = strip.next.fetch_add(1, Ordering::Relaxed);
            (slice < strip.end).then_some(slice)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What one thread that asks for this strip is given, in order.
    fn all(strips: &Strips, strip: usize) -> Vec<u64> {
        std::iter::from_fn(|| strips.next(strip)).collect()
    }

    #[test]
    fn a_thread_goes_through_its_own_strip_and_then_the_next_ones() {
        let mut strips = Strips::new(3);
        strips.deal(8);
        assert_eq!(all(&strips, 1), [3, 4, 5, 6, 7, 0, 1, 2]);
        assert_eq!(strips.next(0), None);
        strips.deal(2);
        assert_eq!(all(&strips, 5), [0, 1]);
        strips.deal(0);
        assert_eq!(strips.next(0), None);
    }

    #[test]
    fn threads_together_get_every_slice_once() {
        let mut strips = Strips::new(3);
        for slices in [1, 2, 100, 1001] {
            strips.deal(slices);
            let strips = &strips;
            let mut given = std::thread::scope(|scope| {
                let threads: Vec<_> =
                    (0..4).map(|strip| scope.spawn(move || all(strips, strip))).collect();
                let given = threads.into_iter().flat_map(|it| it.join().unwrap_or_default());
                given.collect::<Vec<_>>()
            });
            given.sort_unstable();
            assert_eq!(given, (0..slices).collect::<Vec<_>>());
        }
    }
}
