//! How bytes are written to host memory: through the caches, or past them.
//!
//! A line that is written through the cache is read from memory first, although all of it is
//! overwritten, and throws out another. Where a call writes more than the caches hold, nobody finds its
//! bytes there afterwards anyway: then stores that go past the caches save a third to a half of the
//! traffic.

use std::sync::OnceLock;

/// How what a call writes goes to memory. The bytes are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stores {
    /// Through the caches, where whoever reads the result soon will find it.
    Ordinary,
    /// Past the caches, in whole lines. No other thread may be told of them before
    /// [`Stores::settle`]: a release does not cover them.
    Streaming,
}

impl Stores {
    /// What suits a call that reads and writes so many bytes in all, by however many threads.
    pub fn for_traffic(bytes: usize) -> Self {
        let streams = cfg!(all(target_arch = "x86_64", not(miri)));
        if streams && bytes > limit() { Self::Streaming } else { Self::Ordinary }
    }

    /// Ends what this thread has stored in this way: after it, whatever tells other threads of the
    /// bytes tells of all of them. It is part of the work, and costs a fence where stores are streaming.
    pub fn settle(self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self == Self::Streaming {
            // SAFETY: it needs SSE, which every processor of this architecture has.
            unsafe { std::arch::x86_64::_mm_sfence() };
        }
    }

    /// Copies `bytes` bytes; [`Stores::settle`] has to follow before anybody else is told.
    ///
    /// # Safety
    /// `from` is valid for reads of `bytes` bytes and `to` for writes, at any alignment; they don't
    /// overlap; meanwhile nobody else writes the one or touches the other.
    pub unsafe fn copy(self, from: *const u8, to: *mut u8, bytes: usize) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self == Self::Streaming {
            // SAFETY: the contract is the same.
            return unsafe { streaming::copy(from, to, bytes) };
        }
        // SAFETY: the contract is the same; bytes have no alignment.
        unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
    }
}

/// What a call may read and write so that what it writes stays in the caches.
///
/// Second-level caches are this program's own, as the last level often is not: other programs share it,
/// and on a rented machine other tenants do, while the whole of it is what the system reports. So the
/// measure is the former: twice as much as all of them hold, and no more than the last level. Measured with
/// 2 MiB on each of two cores: calls of 4 MiB were as fast or faster through the cache, those of 12 MiB a
/// quarter faster past it.
fn limit() -> usize {
    static LIMIT: OnceLock<usize> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let cores = std::thread::available_parallelism().map_or(1, |it| it.get());
        let private = cache(2).unwrap_or(USUAL).saturating_mul(cores).saturating_mul(2);
        cache(3).map_or(private, |shared| private.min(shared.max(USUAL)))
    })
}

/// What a second-level cache has where the system doesn't say.
const USUAL: usize = 1 << 20;

/// The size of a cache of this level of the first core, as Linux tells it.
fn cache(level: usize) -> Option<usize> {
    let folder = std::path::Path::new("/sys/devices/system/cpu/cpu0/cache");
    let read = |index: usize, name: &str| {
        let text = std::fs::read_to_string(folder.join(format!("index{index}")).join(name)).ok()?;
        Some(text.trim().to_owned())
    };
    let index = (0..8).find(|&it| {
        read(it, "level").is_some_and(|it| it.parse() == Ok(level))
            && read(it, "type").is_some_and(|it| it != "Instruction")
    })?;
    let kib: usize = read(index, "size")?.strip_suffix('K')?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod streaming {
    use std::arch::x86_64::{
        __m128i, __m256i, _mm_loadu_si128, _mm_stream_si128, _mm256_loadu_si256,
        _mm256_stream_si256,
    };

    /// A line of memory: what is written past the caches has to be whole ones.
    const LINE: usize = 64;

    /// As [`super::Stores::copy`]. Lines that belong to others in part are written as usual.
    pub(super) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
        let head = to.align_offset(LINE).min(bytes);
        let lines = (bytes - head) / LINE;
        let tail = head + lines * LINE;
        // SAFETY: `head` is at most `bytes`, for which the caller vouches.
        unsafe { std::ptr::copy_nonoverlapping(from, to, head) };
        let (first_from, first_to) = (from.wrapping_add(head), to.wrapping_add(head));
        if std::arch::is_x86_feature_detected!("avx") {
            // SAFETY: the processor has AVX; the lines end at `tail`, which is at most `bytes`, and
            // the first begins on a line, being past the head.
            unsafe { by_32(first_from, first_to, lines) };
        } else {
            // SAFETY: as above; every processor of this architecture has SSE2.
            unsafe { by_16(first_from, first_to, lines) };
        }
        let (from, to) = (from.wrapping_add(tail), to.wrapping_add(tail));
        // SAFETY: from `tail` there are `bytes - tail` left, for which the caller vouches.
        unsafe { std::ptr::copy_nonoverlapping(from, to, bytes - tail) };
    }

    macro_rules! by_vectors {
        ($name:ident, $feature:literal, $vector:ty, $load:ident, $stream:ident) => {
            /// Copies whole lines.
            ///
            /// # Safety
            /// As [`copy`], for so many lines, with a destination that begins on one.
            #[target_feature(enable = $feature)]
            unsafe fn $name(from: *const u8, to: *mut u8, lines: usize) {
                const VECTORS: usize = LINE / size_of::<$vector>();
                let (from, to) =
                    (from.cast::<[$vector; VECTORS]>(), to.cast::<[$vector; VECTORS]>());
                for line in 0..lines {
                    let (from, to) = (from.wrapping_add(line), to.wrapping_add(line));
                    for at in 0..VECTORS {
                        let (from, to) = (from.cast::<$vector>(), to.cast::<$vector>());
                        // SAFETY: the line lies within the source, as the caller vouches; the load is
                        // for any alignment.
                        let vector = unsafe { $load(from.wrapping_add(at)) };
                        // SAFETY: the line lies within the destination and on a line of memory, as the
                        // caller vouches, hence on a multiple of the vector's size.
                        unsafe { $stream(to.wrapping_add(at), vector) };
                    }
                }
            }
        };
    }

    by_vectors!(by_16, "sse2", __m128i, _mm_loadu_si128, _mm_stream_si128);
    by_vectors!(by_32, "avx", __m256i, _mm256_loadu_si256, _mm256_stream_si256);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_exact_whatever_the_stores_the_size_and_the_alignment() {
        for stores in [Stores::Ordinary, Stores::Streaming] {
            let step = if cfg!(miri) { 63 } else { 1 };
            for bytes in (0..200).step_by(step).chain([255, 256, 257, 1000]) {
                for (from, to) in [(0, 0), (1, 0), (0, 1), (3, 61), (64, 63), (17, 16)] {
                    let source: Vec<u8> = (0..from + bytes).map(|at| (at * 7 + 1) as u8).collect();
                    let mut target = vec![0xee_u8; to + bytes + 64];
                    let base = target.as_mut_ptr().wrapping_add(to);
                    // SAFETY: both vectors have the bytes, and are two.
                    unsafe { stores.copy(source.as_ptr().wrapping_add(from), base, bytes) };
                    stores.settle();
                    assert!(target[..to].iter().all(|it| *it == 0xee), "{bytes} at {to}: before");
                    assert_eq!(
                        target[to..to + bytes],
                        source[from..],
                        "{bytes} from {from} to {to}"
                    );
                    let after = &target[to + bytes..];
                    assert!(after.iter().all(|it| *it == 0xee), "{bytes} at {to}: after");
                }
            }
        }
    }

    #[test]
    fn what_fits_into_the_caches_goes_through_them() {
        assert_eq!(Stores::for_traffic(1 << 18), Stores::Ordinary);
        let streams = cfg!(all(target_arch = "x86_64", not(miri)));
        assert_eq!(Stores::for_traffic(usize::MAX) == Stores::Streaming, streams);
    }
}
