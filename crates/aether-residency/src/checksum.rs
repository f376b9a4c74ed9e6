//! A checksum of memory on any device.

use aether_core::{AsSpan, AsSpanMut, Chunk, Result};
use xxhash_rust::xxh3::Xxh3Default;

use crate::Transport;

/// How much of a device that the host can't address is looked at in one piece, in bytes.
const PIECE: usize = 4 << 20;

/// The checksum of all bytes, once what writes them has ended.
///
/// # Errors
/// The failure of the last write of any byte; those of the transport.
pub(crate) fn checksum<Tr: Transport>(chunk: &Chunk, transport: &Tr) -> Result<u128> {
    let mut hash = Xxh3Default::new();
    if chunk.device().host_addressable() {
        hash.update(chunk.slice::<u8>()?);
        return Ok(hash.digest128());
    }
    let all = chunk.span()?;
    let mut piece = vec![0u8; PIECE.min(all.bytes())];
    for start in (0..all.bytes()).step_by(PIECE) {
        let bytes = PIECE.min(all.bytes() - start);
        let piece = piece.get_mut(..bytes).unwrap_or_default();
        transport.copy(piece.span_mut()?, all.part(start, bytes)?)?;
        hash.update(piece);
    }
    Ok(hash.digest128())
}

/// The indices whose value is not that of more than half; all of them where no value has more than
/// half.
pub(crate) fn outside_the_majority<T: PartialEq>(values: &[T]) -> Vec<usize> {
    // The candidate of Boyer and Moore is the majority's value wherever there is one.
    let mut candidate = None;
    let mut lead = 0usize;
    for value in values {
        match candidate {
            Some(it) if it == value => lead += 1,
            _ if lead == 0 => (candidate, lead) = (Some(value), 1),
            _ => lead -= 1,
        }
    }
    let outside = |it: &usize| values.get(*it) != candidate;
    let outvoted: Vec<_> = (0..values.len()).filter(outside).collect();
    if outvoted.len() * 2 < values.len() { outvoted } else { (0..values.len()).collect() }
}

#[cfg(test)]
mod tests {
    use super::outside_the_majority;

    #[test]
    fn those_outside_of_the_majority_are_named() {
        assert_eq!(outside_the_majority::<u8>(&[]), [0; 0]);
        assert_eq!(outside_the_majority(&[7]), [0; 0]);
        assert_eq!(outside_the_majority(&[7, 7, 7]), [0; 0]);
        assert_eq!(outside_the_majority(&[7, 1, 7]), [1]);
        assert_eq!(outside_the_majority(&[1, 7, 2, 7, 7]), [0, 2]);
    }

    #[test]
    fn all_are_named_where_there_is_no_majority() {
        assert_eq!(outside_the_majority(&[7, 1]), [0, 1]);
        assert_eq!(outside_the_majority(&[7, 7, 1, 1]), [0, 1, 2, 3]);
        assert_eq!(outside_the_majority(&[7, 7, 1, 2]), [0, 1, 2, 3]);
        assert_eq!(outside_the_majority(&[1, 2, 3]), [0, 1, 2]);
    }
}
