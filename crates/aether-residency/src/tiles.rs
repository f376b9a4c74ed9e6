//! Cutting rows into pieces that fit into staging memory.

use aether_core::Rows;

/// The pieces of a pitched copy, each at most so large. Inside of a piece rows lie densely.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tiles {
    rows: Rows,
    /// The width of a piece, in bytes.
    width: usize,
    /// How many rows a piece has.
    height: usize,
    /// How many pieces lie side by side.
    across: usize,
    count: usize,
}

/// One piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tile {
    /// Where it begins in the destination.
    pub(crate) dst: usize,
    /// Where it begins in the source.
    pub(crate) src: usize,
    /// How many rows of it there are.
    pub(crate) rows: usize,
    /// The length of such a row.
    pub(crate) bytes: usize,
}

impl Tiles {
    /// Rows whose extent doesn't overflow, in pieces of at most `piece` bytes.
    pub(crate) fn new(rows: Rows, piece: usize) -> Self {
        let piece = piece.max(1);
        if rows.count == 0 || rows.bytes == 0 {
            return Self { rows, width: 1, height: 1, across: 0, count: 0 };
        }
        let width = rows.bytes.min(piece);
        let height = (piece / width).min(rows.count);
        let across = rows.bytes.div_ceil(width);
        Self { rows, width, height, across, count: across * rows.count.div_ceil(height) }
    }

    /// How many pieces there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// How large the largest piece is.
    pub(crate) fn largest(&self) -> usize {
        if self.count == 0 { 0 } else { self.width * self.height }
    }

    /// One of the pieces.
    pub(crate) fn at(&self, index: usize) -> Tile {
        let across = self.across.max(1);
        let (row, column) = (index / across * self.height, index % across * self.width);
        Tile {
            dst: row * self.rows.dst_pitch + column,
            src: row * self.rows.src_pitch + column,
            rows: self.height.min(self.rows.count - row),
            bytes: self.width.min(self.rows.bytes - column),
        }
    }

    /// The rows that all pieces make up.
    pub(crate) fn rows(&self) -> Rows {
        self.rows
    }
}

impl Tile {
    /// How many bytes it moves.
    pub(crate) fn size(self) -> usize {
        self.rows * self.bytes
    }

    /// How many bytes lie from its first to its last, where rows have this pitch.
    pub(crate) fn extent(self, pitch: usize) -> usize {
        (self.rows - 1) * pitch + self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte of every row is in one piece, at the same place in source and destination.
    #[test]
    fn pieces_cover_every_byte_of_every_row_once() {
        // Miri is slow, and has seen the arithmetic after a few sizes.
        let step = if cfg!(miri) { 7 } else { 1 };
        for count in 0..5 {
            for bytes in 0..9 {
                for piece in (1..20).step_by(step) {
                    let rows = Rows { count, bytes, dst_pitch: bytes + 2, src_pitch: bytes + 3 };
                    let tiles = Tiles::new(rows, piece);
                    let mut found = Vec::new();
                    for index in 0..tiles.count() {
                        let tile = tiles.at(index);
                        assert!(tile.size() <= piece && tile.size() <= tiles.largest());
                        for row in 0..tile.rows {
                            for at in 0..tile.bytes {
                                let dst = tile.dst + row * rows.dst_pitch + at;
                                let src = tile.src + row * rows.src_pitch + at;
                                assert!(dst < tile.dst + tile.extent(rows.dst_pitch));
                                found.push((dst, src));
                            }
                        }
                    }
                    found.sort_unstable();
                    let all = (0..count).flat_map(|row| {
                        (0..bytes).map(move |at| (row * (bytes + 2) + at, row * (bytes + 3) + at))
                    });
                    assert_eq!(found, all.collect::<Vec<_>>(), "{rows:?} by {piece}");
                }
            }
        }
    }

    #[test]
    fn short_rows_share_a_piece() {
        let rows = Rows { count: 7, bytes: 10, dst_pitch: 10, src_pitch: 20 };
        assert_eq!(Tiles::new(rows, 64).count(), 2);
        assert_eq!(Tiles::new(rows, 64).at(1), Tile { dst: 60, src: 120, rows: 1, bytes: 10 });
        assert_eq!(Tiles::new(rows, 4).count(), 21);
    }
}
