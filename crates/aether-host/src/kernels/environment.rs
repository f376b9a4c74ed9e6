//! The floating-point environment that the kernels run under, whatever the caller's.
//!
//! A caller may have set subnormals to be flushed to zero (as many numerical libraries do), or
//! another rounding; on another thread it may not have. The results would then depend on who
//! computes them.

/// The default environment, for as long as this lives: rounding to nearest even, subnormals kept,
/// no traps. The thread's own environment, its exception flags included, comes back with the drop.
///
/// Arithmetic that must stay between the two belongs behind a call that isn't inlined.
pub(super) struct DefaultEnvironment {
    saved: Word,
    /// The environment is the thread's: the guard must not be dropped on another.
    _thread: std::marker::PhantomData<*const ()>,
}

impl DefaultEnvironment {
    /// Saves the thread's environment and sets the default one.
    #[inline]
    pub(super) fn enter() -> Self {
        let saved = read();
        // SAFETY: this is the environment that Rust code is compiled for.
        unsafe { write(DEFAULT) };
        Self { saved, _thread: std::marker::PhantomData }
    }
}

impl Drop for DefaultEnvironment {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the thread had this environment when it entered, so that nothing is worse for
        // what follows than it was; no floating-point code of ours runs after.
        unsafe { write(self.saved) };
    }
}

// The instructions keep their place relative to memory accesses, and so to the kernels, because
// neither is declared to leave memory alone.

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod control {
    /// MXCSR.
    pub(super) type Word = u32;

    /// All exceptions masked, nearest even, neither flush-to-zero nor denormals-are-zero.
    pub(super) const DEFAULT: Word = 0x1f80;

    #[inline]
    pub(super) fn read() -> Word {
        let mut word: Word = 0;
        // SAFETY: it stores four bytes at the address given, which is that of `word`.
        unsafe {
            std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut word, options(nostack, preserves_flags));
        }
        word
    }

    /// # Safety
    /// `word` is the default, or what `read` gave on this thread.
    #[inline]
    pub(super) unsafe fn write(word: Word) {
        // SAFETY: it loads four bytes from the address of `word`, whose reserved bits are zero as
        // the caller promises.
        unsafe {
            std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const word, options(nostack, preserves_flags));
        }
    }
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
mod control {
    /// FPCR.
    pub(super) type Word = u64;

    /// No traps, nearest even, no flush-to-zero.
    pub(super) const DEFAULT: Word = 0;

    #[inline]
    pub(super) fn read() -> Word {
        let word: Word;
        // SAFETY: it only reads the register.
        unsafe {
            std::arch::asm!("mrs {}, fpcr", out(reg) word, options(nostack, preserves_flags));
        }
        word
    }

    /// # Safety
    /// `word` is the default, or what `read` gave on this thread.
    #[inline]
    pub(super) unsafe fn write(word: Word) {
        // SAFETY: the caller promises a value that the register has had or that is its default.
        unsafe {
            std::arch::asm!("msr fpcr, {}", in(reg) word, options(nostack, preserves_flags));
        }
    }
}

/// Other processors, and the interpreter, which knows one environment only: nothing is changed.
#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
mod control {
    pub(super) type Word = ();

    pub(super) const DEFAULT: Word = ();

    #[inline]
    pub(super) fn read() -> Word {}

    /// # Safety
    /// None is needed: this does nothing.
    #[inline]
    pub(super) unsafe fn write((): Word) {}
}

use control::{DEFAULT, Word, read, write};

#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod tests {
    use super::super::tests::reduced;
    use super::*;
    use aether_collective::ReduceOp;
    use aether_core::DType;

    /// Flush-to-zero, denormals-are-zero, rounding down, exceptions masked.
    const FLUSH_ROUND_DOWN: u32 = 0x1f80 | 0x8000 | 0x0040 | 0x2000;

    /// Runs `body` under a caller's environment, and gives what that environment was afterwards.
    fn under<T>(word: u32, body: impl FnOnce() -> T) -> (T, u32) {
        let saved = read();
        // SAFETY: no bit of the word is reserved, and what runs under it is the code under test,
        // which sets its own before any arithmetic.
        unsafe { write(word) };
        let result = body();
        let after = read();
        // SAFETY: this is the environment that the test began with.
        unsafe { write(saved) };
        (result, after)
    }

    #[test]
    fn the_environment_is_the_default_inside_and_the_callers_after() {
        let (inside, after) = under(FLUSH_ROUND_DOWN, || {
            let _environment = DefaultEnvironment::enter();
            read()
        });
        assert_eq!(inside, DEFAULT);
        assert_eq!(after, FLUSH_ROUND_DOWN);
    }

    #[test]
    fn a_caller_that_flushes_and_rounds_down_gets_the_same_bits() {
        // Subnormals, ties, and sums that cancel to a zero whose sign depends on the rounding.
        let single: Vec<u8> = [1_u32, 0x8000_0001, 0x0040_0000, 0x3f80_0001, 0xbf80_0000]
            .iter()
            .flat_map(|bits| bits.to_ne_bytes())
            .collect();
        let other: Vec<u8> = [2_u32, 1, 0x0040_0000, 0x3380_0001, 0x3f80_0000]
            .iter()
            .flat_map(|bits| bits.to_ne_bytes())
            .collect();
        let small: Vec<u8> = (0..=255).collect();
        let mirrored: Vec<u8> = (0..=255).map(|byte| byte ^ 0x80).collect();
        for dtype in DType::ALL.into_iter().filter(|it| *it != DType::Bool) {
            for op in ReduceOp::ALL {
                for sources in [[&single, &other], [&small, &small], [&small, &mirrored]] {
                    let sources: Vec<Vec<u8>> = sources
                        .iter()
                        .map(|it| it[..it.len() / dtype.size() * dtype.size()].to_vec())
                        .collect();
                    let expected = reduced(dtype, op, &sources);
                    let (found, after) = under(FLUSH_ROUND_DOWN, || reduced(dtype, op, &sources));
                    assert_eq!(found, expected, "{op} of {dtype}");
                    assert_eq!(after, FLUSH_ROUND_DOWN, "{op} of {dtype} gave it back");
                }
            }
        }
    }
}
