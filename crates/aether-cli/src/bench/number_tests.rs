use super::*;

/// The types that are reduced.
fn types() -> impl Iterator<Item = DType> {
    DType::ALL.into_iter().filter(|it| *it != DType::Bool)
}

#[test]
fn f32_and_f64_are_those_of_the_language() {
    for value in [0.0_f32, -0.0, 1.0, -1.5, 3.4e38, 1e-45, 1.2e-38, 0.1, -16777216.0] {
        let bits = u64::from(value.to_bits());
        assert_eq!(narrow(value.into(), 8, 23, DType::F32), bits, "{value}");
        assert_eq!(widen(bits, 8, 23), f64::from(value), "{value}");
    }
    for value in [1.0_f64, -0.1, 1e300, 9007199254740992.0] {
        assert_eq!(narrow(value, 11, 52, DType::F64), value.to_bits(), "{value}");
    }
}

#[test]
fn every_value_of_a_narrow_float_survives_both_ways() {
    for (dtype, exponent, fraction) in
        [(DType::F8E4M3, 4, 3), (DType::F8E5M2, 5, 2), (DType::F16, 5, 10), (DType::BF16, 8, 7)]
    {
        let infinity = ((1_u64 << exponent) - 1) << fraction;
        for bits in 0..infinity {
            let value = widen(bits, exponent, fraction);
            assert_eq!(narrow(value, exponent, fraction, dtype), bits, "{dtype} {bits:#x}");
        }
    }
}

#[test]
fn narrow_floats_have_their_published_limits() {
    assert_eq!(widen(0x7e, 4, 3), 448.0);
    assert_eq!(widen(0x7b, 5, 2), 57344.0);
    assert_eq!(widen(0x7bff, 5, 10), 65504.0);
    assert_eq!(widen(0x0001, 5, 10), 2_f64.powi(-24));
    assert_eq!(narrow(449.0, 4, 3, DType::F8E4M3), 0x7e);
    assert_eq!(narrow(1e6, 4, 3, DType::F8E4M3), 0x7f, "NaN, for there is no infinity");
    assert_eq!(narrow(1e6, 5, 2, DType::F8E5M2), 0x7c);
    assert_eq!(narrow(-1e6, 5, 10, DType::F16), 0xfc00);
}

#[test]
fn halves_between_two_values_go_to_the_even_one() {
    // Around 1 the values of bf16 are 1/128 apart.
    let round = |it: f64| narrow(it, 8, 7, DType::BF16);
    assert_eq!(round(1.0 + 1.0 / 256.0), 0x3f80);
    assert_eq!(round(1.0 + 3.0 / 256.0), 0x3f82);
    assert_eq!(round(1.0 + 1.01 / 256.0), 0x3f81);
    assert_eq!(round(2.0 - 1.0 / 256.0), 0x4000, "the carry reaches the exponent");
}

#[test]
fn every_integer_up_to_the_limit_is_exact_and_the_next_is_not() {
    for dtype in types() {
        let limit = exact_limit(dtype);
        let values = [0, 1, 2, 3, limit / 2 + 1, limit - 1, limit];
        let mut seen: Vec<u64> = values.iter().map(|it| from_integer(dtype, *it as i64)).collect();
        seen.sort_unstable();
        seen.dedup();
        let mut distinct = values.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(seen.len(), distinct.len(), "{dtype}");
        if let Kind::Float(..) = kind(dtype) {
            let next = from_integer(dtype, limit as i64 + 1);
            assert_eq!(next, from_integer(dtype, limit as i64), "{dtype}");
        }
    }
}

#[test]
fn reductions_of_small_integers_are_the_same_numbers_in_every_type() {
    for dtype in types() {
        let elements = [6, 2, 1].map(|it| from_integer(dtype, it));
        let result = |op| reduce(dtype, op, &elements) & (u64::MAX >> (64 - 8 * dtype.size()));
        for (op, expected) in [(ReduceOp::Max, 6), (ReduceOp::Min, 1), (ReduceOp::Mean, 3)] {
            assert_eq!(result(op), from_integer(dtype, expected), "{dtype} {op}");
        }
        if exact_limit(dtype) >= 12 {
            assert_eq!(result(ReduceOp::Sum), from_integer(dtype, 9), "{dtype}");
            assert_eq!(result(ReduceOp::Prod), from_integer(dtype, 12), "{dtype}");
        }
    }
}

#[test]
fn integers_wrap_and_their_mean_truncates_toward_zero() {
    let bits = |values: &[i8]| values.iter().map(|it| *it as u8 as u64).collect::<Vec<_>>();
    let i8 = |op, values: &[i8]| reduce(DType::I8, op, &bits(values)) as u8 as i8;
    assert_eq!(i8(ReduceOp::Sum, &[100, 100]), -56);
    assert_eq!(i8(ReduceOp::Prod, &[100, 3]), 44);
    assert_eq!(i8(ReduceOp::Mean, &[100, 100, 101]), 100);
    assert_eq!(i8(ReduceOp::Mean, &[-3, -4]), -3);
    assert_eq!(i8(ReduceOp::Min, &[3, -4]), -4);
    assert_eq!(reduce(DType::U8, ReduceOp::Max, &[3, 252]), 252);
}

#[test]
fn sums_go_in_rank_order_and_halves_are_rounded_once() {
    let f32 = |values: &[f32]| {
        let bits: Vec<u64> = values.iter().map(|it| it.to_bits().into()).collect();
        f32::from_bits(reduce(DType::F32, ReduceOp::Sum, &bits) as u32)
    };
    assert_eq!(f32(&[1e8, -1e8, 1.0]), 1.0);
    assert_eq!(f32(&[1.0, 1e8, -1e8]), 0.0);
    // 256 + 1 + 1 in bf16: rounded after each step it would stay 256.
    let bits = [256, 1, 1].map(|it| from_integer(DType::BF16, it));
    assert_eq!(reduce(DType::BF16, ReduceOp::Sum, &bits), from_integer(DType::BF16, 258));
}
