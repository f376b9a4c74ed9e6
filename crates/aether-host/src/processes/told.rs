//! Errors as bytes: what one rank tells the others.

use aether_core::{Error, ErrorKind};

/// The kinds that can cross, by number. Another kind crosses as `Backend`.
const KINDS: [ErrorKind; 20] = [
    ErrorKind::Backend,
    ErrorKind::Cycle,
    ErrorKind::DTypeMismatch,
    ErrorKind::DeadlineExceeded,
    ErrorKind::GroupBroken,
    ErrorKind::InvalidArgument,
    ErrorKind::Io,
    ErrorKind::Misaligned,
    ErrorKind::NotMember,
    ErrorKind::OutOfBounds,
    ErrorKind::OutOfMemory,
    ErrorKind::Overflow,
    ErrorKind::Overlap,
    ErrorKind::Panicked,
    ErrorKind::Parse,
    ErrorKind::RankDied,
    ErrorKind::RankMismatch,
    ErrorKind::RankOutOfRange,
    ErrorKind::SizeMismatch,
    ErrorKind::Unsupported,
];

/// How long each of the three texts may be.
const MOST_TEXT: usize = 900;
/// How many ranks are named.
const MOST_RANKS: usize = super::shape::MOST_RANKS;

/// The error as bytes, fewer than 3 KiB; texts that are longer are cut.
pub(crate) fn encode(error: &Error) -> Vec<u8> {
    let kind = KINDS.iter().position(|it| *it == error.kind()).unwrap_or(0);
    let ranks = error.ranks().get(..MOST_RANKS).unwrap_or(error.ranks());
    let mut bytes = vec![kind as u8, ranks.len() as u8];
    bytes.extend(ranks.iter().map(|it| *it as u8));
    bytes.extend(error.bytes().map_or(u64::MAX, |it| it).to_le_bytes());
    for text in [error.attempted(), error.place().unwrap_or_default(), error.reason()] {
        let end = (0..=text.len().min(MOST_TEXT)).rev().find(|it| text.is_char_boundary(*it));
        let text = text.get(..end.unwrap_or(0)).unwrap_or_default();
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend(text.as_bytes());
    }
    bytes
}

/// The error that was made bytes of; nothing if they are none.
pub(crate) fn decode(mut bytes: &[u8]) -> Option<Error> {
    let (&[kind, ranks], rest) = bytes.split_first_chunk()?;
    let (ranks, rest) = rest.split_at_checked(usize::from(ranks))?;
    let (size, rest) = rest.split_first_chunk()?;
    bytes = rest;
    let mut text = || {
        let (length, rest) = bytes.split_first_chunk()?;
        let (text, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
        bytes = rest;
        String::from_utf8(text.to_vec()).ok()
    };
    let (attempted, place, reason) = (text()?, text()?, text()?);
    let mut error = Error::new(*KINDS.get(usize::from(kind))?, attempted, reason);
    error = error.about_ranks(ranks.iter().map(|it| usize::from(*it)).collect::<Vec<_>>());
    if !place.is_empty() {
        error = error.on(place);
    }
    let size = u64::from_le_bytes(*size);
    Some(if size == u64::MAX { error } else { error.of_bytes(size) })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn errors_cross_as_bytes() {
        for kind in KINDS {
            let error = Error::new(kind, "all_reduce", "because ü").about_ranks([1, 127]);
            for error in [error.clone(), error.on("rank 0 (cpu:0)").of_bytes(12)] {
                let crossed = decode(&encode(&error)).unwrap();
                assert_eq!(format!("{crossed:?}"), format!("{error:?}"));
                assert_eq!(crossed.ranks(), error.ranks());
            }
        }
    }

    #[test]
    fn long_texts_are_cut_and_all_fits_its_place() {
        let long = "ü".repeat(5000);
        let ranks: Vec<usize> = (0..500).collect();
        let error = Error::new(ErrorKind::Cycle, long.clone(), long.clone()).on(&long);
        let bytes = encode(&error.about_ranks(ranks));
        assert!(bytes.len() <= super::super::header::TEXT * 8);
        assert!(decode(&bytes).unwrap().reason().len() > 800);
    }

    #[test]
    fn bytes_that_are_no_error_are_none() {
        let bytes = encode(&Error::new(ErrorKind::Io, "a", "b"));
        for cut in 0..bytes.len() {
            assert!(decode(&bytes[..cut]).is_none(), "{cut}");
        }
    }
}
