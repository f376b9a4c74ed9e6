//! Quotes, by the rules of the csv crate, which takes the end of a file for a closing quote.

enum State {
    CellStart,
    Unquoted,
    Quoted {
        open: usize,
    },
    /// A quote in a quoted cell: it closes the cell, or the next one makes it a part of the text.
    MaybeClosed {
        open: usize,
    },
}

/// The place of a quote that opens a cell and is never closed.
pub(super) fn unclosed_quote(bytes: &[u8]) -> Option<usize> {
    let mut state = State::CellStart;
    for (at, byte) in bytes.iter().enumerate() {
        state = match (state, byte) {
            (State::CellStart, b'"') => State::Quoted { open: at },
            (State::Quoted { open }, b'"') => State::MaybeClosed { open },
            (State::MaybeClosed { open }, b'"') | (State::Quoted { open }, _) => {
                State::Quoted { open }
            }
            (_, b',' | b'\r' | b'\n') => State::CellStart,
            _ => State::Unquoted,
        };
    }
    match state {
        State::Quoted { open } => Some(open),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_quote_that_opens_a_cell_and_is_never_closed_is_found() {
        for (text, place) in [
            ("", None),
            ("1,\"a\"", None),
            ("1,\"a, \"\"b\"\"\"\n2,b\n", None),
            ("1,5\"\n2,\"b\"", None),
            ("1, \"a\n2,b", None),
            ("1,\"\"", None),
            ("\"", Some(0)),
            ("1,\"a\n2,b\n", Some(2)),
            ("1,\"a\"\"", Some(2)),
            ("1,\"a\"\r\"b\"\n\"c", Some(10)),
            ("1,\"a\"b\",\"c", Some(8)),
        ] {
            assert_eq!(unclosed_quote(text.as_bytes()), place, "{text:?}");
        }
    }
}
