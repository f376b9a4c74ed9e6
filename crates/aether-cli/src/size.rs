//! Sizes as nccl-tests writes them: `32`, `512K`, `4M`, `1G`, in powers of 1024.

/// Reads a size in bytes.
///
/// The letters are those of nccl-tests (`parsesize` in its src/common.cu), in either case. Unlike
/// there, a fraction, a trailing letter and a size past 64 bits are refused.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1_u64),
    };
    if digits.is_empty() || !digits.bytes().all(|it| it.is_ascii_digit()) {
        return Err("expected a whole number, alone or followed by K, M or G".to_owned());
    }
    digits
        .parse::<u64>()
        .ok()
        .and_then(|it| it.checked_mul(unit))
        .ok_or_else(|| "more bytes than 64 bits can count".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_powers_of_1024_in_either_case() {
        for (text, bytes) in [
            ("0", 0),
            ("32", 32),
            ("512K", 512 << 10),
            ("3k", 3 << 10),
            ("4M", 4 << 20),
            ("4m", 4 << 20),
            ("1G", 1 << 30),
            ("7g", 7 << 30),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn the_largest_size_is_read_and_the_next_is_refused() {
        assert_eq!(parse_size("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(parse_size("17179869183G"), Ok(u64::MAX - ((1 << 30) - 1)));
        for text in ["18446744073709551616", "17179869184G", "99999999999999999999999K"] {
            assert!(parse_size(text).is_err_and(|it| it.contains("64 bits")), "{text}");
        }
    }

    #[test]
    fn junk_is_refused() {
        for text in ["", "K", "-1", "+1", "1.5M", "4MB", "4 M", " 4", "4x", "0x10", "é", "1é"] {
            assert!(parse_size(text).is_err_and(|it| it.contains("whole number")), "{text:?}");
        }
    }
}
