//! Sums over samples, which lie next to each other.

const LANES: usize = 16;

/// `out += factor * x`, element by element.
pub(super) fn add_scaled(out: &mut [f32], factor: f32, x: &[f32]) {
    for (out, x) in out.iter_mut().zip(x) {
        *out += factor * x;
    }
}

/// The sum of the products, in sixteen partial sums: vectors can do it, and the error grows with a
/// sixteenth of the length.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a.iter().zip(b) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += a * b;
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    fold(lanes) + rest
}

/// The sum, in the same order.
pub(super) fn sum(a: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    let (a, rest) = a.as_chunks::<LANES>();
    for a in a {
        for (lane, a) in lanes.iter_mut().zip(a) {
            *lane += a;
        }
    }
    fold(lanes) + rest.iter().sum::<f32>()
}

fn fold(lanes: [f32; LANES]) -> f32 {
    let (low, high) = lanes.split_at(LANES / 2);
    low.iter().zip(high).map(|(low, high)| low + high).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_reach_every_element_at_every_length() {
        for len in 0..70 {
            // Powers and places as values: an element that is skipped or doubled shows.
            let a: Vec<f32> = (0..len).map(|it| (it * it % 97) as f32).collect();
            let b: Vec<f32> = (0..len).map(|it| (it + 1) as f32).collect();
            let expected: f32 = a.iter().zip(&b).map(|(a, b)| a * b).sum();
            assert_eq!(dot(&a, &b), expected, "{len}");
            assert_eq!(sum(&a), a.iter().sum::<f32>(), "{len}");
            let mut out = b.clone();
            add_scaled(&mut out, 2.0, &a);
            assert!(out.iter().zip(&a).zip(&b).all(|((out, a), b)| *out == b + 2.0 * a), "{len}");
        }
    }
}
