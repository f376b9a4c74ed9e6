//! Views: shapes, strides, parts, lanes, and what they refuse.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod common;

use aether_core::{
    AsSpan, AsSpanMut, Chunk, DType, Device, DynView, Element, ErrorKind, View, ViewMut,
};
use common::{bytes, numbers};

fn chunk(count: usize) -> Chunk {
    Chunk::from_vec(&Device::cpu(0), numbers(count)).unwrap()
}

fn kind<T>(result: aether_core::Result<T>) -> ErrorKind {
    result.map(|_| ()).unwrap_err().kind()
}

#[test]
fn a_dense_view_has_the_last_dimension_innermost() {
    let chunk = chunk(24);
    let view = chunk.view::<u32, 3>([2, 3, 4]).unwrap();
    assert_eq!((view.shape(), view.strides(), view.len()), ([2, 3, 4], [12, 4, 1], 24));
    assert!(view.is_contiguous() && !view.is_empty());
    assert_eq!(view.device(), Some(&Device::cpu(0)));
    assert_eq!(view.as_slice().unwrap(), numbers(24));
    for (at, expected) in numbers(24).into_iter().enumerate() {
        assert_eq!(view.at([at / 12, at / 4 % 3, at % 4]).unwrap(), expected);
    }
    for index in [[2, 0, 0], [0, 3, 0], [0, 0, 4], [usize::MAX, 0, 0]] {
        assert_eq!(kind(view.at(index)), ErrorKind::OutOfBounds);
    }
    // The first elements of a longer chunk.
    assert_eq!(chunk.view::<u32, 1>([5]).unwrap().as_slice().unwrap(), numbers(5));
}

#[test]
fn a_view_of_no_dimensions_is_one_element() {
    let mut chunk = chunk(3);
    let view = chunk.view::<u32, 0>([]).unwrap();
    assert_eq!((view.len(), view.at([]).unwrap()), (1, numbers(1)[0]));
    assert_eq!(view.lane([]).unwrap(), numbers(1));
    assert_eq!(view.pack().unwrap(), numbers(1));
    assert_eq!(kind(view.narrow(0, 0, 1)), ErrorKind::OutOfBounds);
    chunk.view_mut::<u32, 0>([]).unwrap().as_slice_mut().unwrap()[0] = 8;
    assert_eq!(chunk.slice::<u32>().unwrap()[0], 8);
}

#[test]
fn too_short_a_chunk_is_refused_with_sizes() {
    let mut chunk = chunk(10);
    let error = chunk.view::<u32, 2>([3, 4]).unwrap_err();
    assert_eq!((error.kind(), error.bytes()), (ErrorKind::OutOfBounds, Some(40)));
    assert_eq!(error.place(), Some("cpu:0"));
    assert!(error.reason().contains("[3, 4]") && error.reason().contains("12 elements of u32"));
    assert_eq!(kind(chunk.view::<u32, 1>([11])), ErrorKind::OutOfBounds);
    assert_eq!(kind(chunk.view::<f64, 1>([6])), ErrorKind::OutOfBounds);
    assert_eq!(kind(chunk.view_mut::<u32, 1>([11])), ErrorKind::OutOfBounds);
    assert_eq!(kind(chunk.view_strided::<u32, 2>([2, 2], [9, 1])), ErrorKind::OutOfBounds);
    assert!(chunk.view_strided::<u32, 2>([2, 2], [8, 1]).is_ok());
    let slice = numbers(10);
    assert_eq!(kind(View::new(&slice, [11])), ErrorKind::OutOfBounds);
    assert_eq!(kind(View::strided(&slice, [6], [2])), ErrorKind::OutOfBounds);
    assert_eq!(View::strided(&slice, [5], [2]).unwrap().pack().unwrap().len(), 5);
}

#[test]
fn a_refusal_names_the_shape_and_the_device_where_there_is_one() {
    let chunk = chunk(10);
    let told = |error: aether_core::Error| (error.place().map(str::to_owned), error.to_string());
    let (place, text) = told(chunk.view::<u32, 2>([1 << 40, 1 << 40]).unwrap_err());
    assert_eq!(place.as_deref(), Some("cpu:0"));
    assert!(text.contains("[1099511627776, 1099511627776]") && !text.contains("strides"), "{text}");
    let view = chunk.view::<u32, 2>([2, 5]).unwrap();
    let transposed = chunk.view_strided::<u32, 2>([5, 2], [1, 5]).unwrap();
    for error in [
        view.at([2, 0]).unwrap_err(),
        view.lane([0, 6]).unwrap_err(),
        view.narrow(1, 3, 3).unwrap_err(),
        transposed.as_slice().unwrap_err(),
        transposed.lane([0, 0]).unwrap_err(),
    ] {
        assert_eq!(told(error).0.as_deref(), Some("cpu:0"));
    }
    let elements = numbers(10);
    let plain = View::new(&elements, [2, 5]).unwrap();
    assert_eq!(told(plain.at([2, 0]).unwrap_err()).0, None);
}

#[test]
fn extents_and_strides_that_overflow_are_refused() {
    let mut chunk = chunk(10);
    let most = usize::MAX;
    for shape in [[most, 2], [1 << 40, 1 << 40], [1 << 62, 2], [2, 1 << 62], [most, most]] {
        assert_eq!(kind(chunk.view::<u32, 2>(shape)), ErrorKind::Overflow, "{shape:?}");
        assert_eq!(kind(chunk.view_mut::<u32, 2>(shape)), ErrorKind::Overflow, "{shape:?}");
        let dynamic = DynView::new(&chunk, 0, DType::U32, &shape, &[0, 0]);
        assert_eq!(kind(dynamic), ErrorKind::Overflow, "{shape:?}");
    }
    for strides in [[most, 1], [1 << 63, 1], [1, most]] {
        assert_eq!(kind(chunk.view_strided::<u32, 2>([3, 3], strides)), ErrorKind::Overflow);
        assert_eq!(kind(chunk.view_strided_mut::<u32, 2>([3, 3], strides)), ErrorKind::Overflow);
    }
    // In elements it fits, in bytes it doesn't.
    assert_eq!(kind(chunk.view_strided::<u32, 1>([2], [1 << 61])), ErrorKind::OutOfBounds);
    let dynamic = DynView::new(&chunk, most, DType::U32, &[1], &[1]);
    assert_eq!(kind(dynamic), ErrorKind::OutOfBounds);
}

#[test]
fn an_empty_view_is_legal_however_large_its_other_extents_are() {
    let mut chunk = chunk(10);
    let huge = usize::MAX;
    let view = chunk.view_strided::<u32, 3>([huge, huge, 0], [huge, huge, 1]).unwrap();
    assert!(view.is_empty() && view.is_contiguous());
    assert_eq!((view.len(), view.as_slice().unwrap().len()), (0, 0));
    assert_eq!(view.pack().unwrap(), [0u32; 0]);
    assert_eq!(view.span().unwrap().bytes(), 0);
    assert_eq!(kind(view.at([0, 0, 0])), ErrorKind::OutOfBounds);
    let dynamic = DynView::new(&chunk, 40, DType::U64, &[0, huge], &[huge, huge]).unwrap();
    assert_eq!(dynamic.typed::<u64, 2>().unwrap().len(), 0);
    let mut view = chunk.view_strided_mut::<u32, 2>([0, huge], [0, 0]).unwrap();
    assert_eq!(view.as_slice_mut().unwrap().len(), 0);
}

#[test]
fn narrow_takes_a_part_of_one_dimension() {
    let chunk = chunk(24);
    let view = chunk.view::<u32, 2>([4, 6]).unwrap();
    let rows = view.narrow(0, 1, 2).unwrap();
    assert_eq!(rows.as_slice().unwrap(), &numbers(24)[6..18]);
    let columns = view.narrow(1, 4, 2).unwrap();
    assert_eq!((columns.shape(), columns.strides()), ([4, 2], [6, 1]));
    assert!(!columns.is_contiguous());
    let expected: Vec<u32> =
        (0..4).flat_map(|row| numbers(24)[row * 6 + 4..row * 6 + 6].to_vec()).collect();
    assert_eq!(columns.pack().unwrap(), expected);
    let block = rows.narrow(1, 2, 3).unwrap();
    assert_eq!(block.lane([1, 0]).unwrap(), &numbers(24)[14..17]);
    assert_eq!(block.lane([1, 2]).unwrap(), &numbers(24)[16..17]);
    // The address of an empty part stays within the view, at its end as elsewhere.
    for (dimension, start) in [(0, 4), (1, 6), (0, 2), (1, 0)] {
        let empty = view.narrow(dimension, start, 0).unwrap();
        assert!(empty.is_empty());
        assert_eq!(empty.address(), view.address());
        assert_eq!(empty.as_slice().unwrap(), [0u32; 0]);
    }
    for (dimension, start, length) in
        [(0, 3, 2), (0, 5, 0), (1, 0, 7), (2, 0, 0), (1, usize::MAX, 1), (1, 1, usize::MAX)]
    {
        let error = view.narrow(dimension, start, length).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfBounds);
        assert!(error.reason().contains(&format!("{start}+{length}")), "{error}");
    }
}

#[test]
fn split_parts_share_no_element() {
    let mut chunk = chunk(24);
    let view = chunk.view_mut::<u32, 2>([4, 6]).unwrap();
    let (mut front, mut back) = view.split_at(1, 2).unwrap();
    assert_eq!((front.shape(), back.shape()), ([4, 2], [4, 4]));
    // Side by side, and each row by itself.
    for row in 0..4 {
        let (one, two) = (front.lane_mut([row, 0]).unwrap(), back.lane_mut([row, 1]).unwrap());
        one.fill(row as u32);
        two.fill(100 + row as u32);
    }
    assert_eq!(kind(front.as_slice_mut()), ErrorKind::NotContiguous);
    let mut expected = numbers(24);
    for row in 0..4 {
        expected[row * 6..row * 6 + 2].fill(row as u32);
        expected[row * 6 + 3..row * 6 + 6].fill(100 + row as u32);
    }
    assert_eq!(chunk.slice::<u32>().unwrap(), expected);
    let view = chunk.view_mut::<u32, 1>([24]).unwrap();
    let (mut front, mut back) = view.split_at(0, 24).unwrap();
    assert!(back.is_empty());
    assert_eq!((front.as_slice_mut().unwrap().len(), back.as_slice_mut().unwrap().len()), (24, 0));
    assert_eq!(
        kind(chunk.view_mut::<u32, 1>([24]).unwrap().split_at(0, 25)),
        ErrorKind::OutOfBounds
    );
    assert_eq!(
        kind(chunk.view_mut::<u32, 1>([24]).unwrap().split_at(1, 0)),
        ErrorKind::OutOfBounds
    );
}

#[test]
fn a_view_to_write_never_names_an_element_twice_and_one_to_read_may() {
    let mut chunk = chunk(24);
    let twice: [([usize; 2], [usize; 2]); 6] = [
        ([3, 4], [0, 1]),
        ([3, 4], [1, 0]),
        ([3, 4], [2, 1]),
        ([3, 4], [1, 1]),
        ([4, 3], [1, 3]),
        ([2, 2], [0, 0]),
    ];
    for (shape, strides) in twice {
        let error = chunk.view_strided_mut::<u32, 2>(shape, strides).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Overlap, "{shape:?} {strides:?}");
        let mut slice = numbers(24);
        assert_eq!(kind(ViewMut::strided(&mut slice, shape, strides)), ErrorKind::Overlap);
        let view = chunk.view_strided::<u32, 2>(shape, strides).unwrap();
        let expected = (0..shape[0])
            .flat_map(|row| (0..shape[1]).map(move |column| row * strides[0] + column * strides[1]))
            .map(|at| numbers(24)[at])
            .collect::<Vec<_>>();
        assert_eq!(view.pack().unwrap(), expected);
    }
    for (shape, strides) in [
        ([3, 4], [4, 1]),
        ([3, 4], [1, 3]),
        ([3, 4], [5, 1]),
        ([1, 4], [0, 1]),
        ([3, 1], [1, 0]),
        ([3, 2], [2, 7]),
    ] {
        assert!(chunk.view_strided_mut::<u32, 2>(shape, strides).is_ok(), "{shape:?} {strides:?}");
    }
}

#[test]
fn lanes_follow_the_last_dimension() {
    let mut chunk = chunk(24);
    let view = chunk.view::<u32, 2>([4, 6]).unwrap();
    assert_eq!(view.lane([2, 1]).unwrap(), &numbers(24)[13..18]);
    assert_eq!(view.lane([2, 6]).unwrap(), [0u32; 0]);
    assert_eq!(kind(view.lane([2, 7])), ErrorKind::OutOfBounds);
    assert_eq!(kind(view.lane([4, 0])), ErrorKind::OutOfBounds);
    assert_eq!(kind(view.lane([4, 6])), ErrorKind::OutOfBounds);
    let transposed = chunk.view_strided::<u32, 2>([6, 4], [1, 6]).unwrap();
    assert_eq!(kind(transposed.lane([0, 0])), ErrorKind::NotContiguous);
    assert_eq!(transposed.lane([1, 3]).unwrap(), [numbers(24)[19]]);
    let mut view = chunk.view_mut::<u32, 2>([4, 6]).unwrap();
    view.lane_mut([3, 4]).unwrap().copy_from_slice(&[1, 2]);
    assert_eq!(view.as_view().at([3, 5]).unwrap(), 2);
    assert_eq!(kind(view.lane_mut([3, 9])), ErrorKind::OutOfBounds);
}

#[test]
fn strides_of_dimensions_of_one_do_not_matter() {
    let chunk = chunk(12);
    let view = chunk.view_strided::<u32, 4>([1, 3, 1, 4], [7, 4, 99, 1]).unwrap();
    assert!(view.is_contiguous());
    assert_eq!(view.as_slice().unwrap(), numbers(12));
    let view = chunk.view_strided::<u32, 2>([3, 2], [4, 1]).unwrap();
    assert!(!view.is_contiguous());
    let error = view.as_slice().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotContiguous);
    assert!(error.reason().contains("View::pack"), "{error}");
    assert_eq!(kind(view.span()), ErrorKind::NotContiguous);
}

#[test]
fn views_of_slices_are_like_views_of_chunks() {
    let mut elements = numbers(12);
    let view = View::new(&elements, [3, 4]).unwrap();
    assert_eq!(view.device(), None);
    assert_eq!(view.narrow(0, 1, 1).unwrap().as_slice().unwrap(), &numbers(12)[4..8]);
    let mut view = ViewMut::new(&mut elements, [3, 4]).unwrap();
    view.reborrow().as_slice_mut().unwrap()[11] = 5;
    let span = view.span_mut().unwrap();
    assert_eq!((span.as_span().bytes(), span.as_span().is_tracked()), (48, false));
    let (mut front, _back) = view.split_at(0, 1).unwrap();
    front.lane_mut([0, 0]).unwrap().fill(6);
    assert_eq!((elements[3], elements[4], elements[11]), (6, numbers(12)[4], 5));
}

#[test]
fn a_view_of_a_misaligned_chunk_is_refused() {
    struct Odd(Vec<u64>);
    impl AsMut<[u8]> for Odd {
        fn as_mut(&mut self) -> &mut [u8] {
            let pointer = self.0.as_mut_ptr().cast::<u8>();
            // SAFETY: the vector has four elements, and these are 24 of their bytes.
            unsafe { std::slice::from_raw_parts_mut(pointer.wrapping_add(2), 24) }
        }
    }
    let mut odd = Chunk::from_owner(&Device::cpu(2), Odd(vec![0; 4])).unwrap();
    odd.slice_mut::<u8>().unwrap().copy_from_slice(&bytes(24, 1));
    let error = odd.view::<u32, 1>([4]).unwrap_err();
    assert_eq!((error.kind(), error.place()), (ErrorKind::Misaligned, Some("cpu:2")));
    assert_eq!(kind(odd.view_mut::<u64, 1>([1])), ErrorKind::Misaligned);
    assert_eq!(kind(DynView::new(&odd, 0, DType::U32, &[1], &[1])), ErrorKind::Misaligned);
    assert!(DynView::new(&odd, 2, DType::U32, &[1], &[1]).is_ok());
    assert_eq!(kind(odd.span_of(0..4, DType::F32)), ErrorKind::Misaligned);
    assert!(odd.span_of(2..6, DType::F32).is_ok());
    assert_eq!(odd.view::<u16, 1>([12]).unwrap().len(), 12);
    assert!(odd.view::<u32, 1>([0]).is_ok());
}

#[test]
fn a_view_without_its_type_becomes_a_typed_one_by_a_check() {
    let chunk = chunk(12);
    let view = DynView::new(&chunk, 8, DType::U32, &[2, 3], &[4, 1]).unwrap();
    assert_eq!(
        (view.dtype(), view.shape(), view.strides()),
        (DType::U32, &[2, 3][..], &[4, 1][..])
    );
    assert_eq!((view.address(), view.device()), (chunk.data().add(8), Some(chunk.device())));
    let typed = view.typed::<u32, 2>().unwrap();
    let all = numbers(12);
    assert_eq!(typed.pack().unwrap(), [&all[2..5], &all[6..9]].concat());
    assert_eq!(kind(view.typed::<i32, 2>()), ErrorKind::DTypeMismatch);
    assert_eq!(kind(view.typed::<u32, 1>()), ErrorKind::SizeMismatch);
    assert_eq!(kind(view.typed::<u32, 3>()), ErrorKind::SizeMismatch);
    let again = typed.to_dyn().typed::<u32, 2>().unwrap();
    assert_eq!(
        (again.shape(), again.strides(), again.address()),
        ([2, 3], [4, 1], typed.address())
    );
    let unequal = DynView::new(&chunk, 0, DType::U32, &[2, 3], &[1]).unwrap_err();
    assert_eq!((unequal.kind(), unequal.bytes()), (ErrorKind::InvalidArgument, Some(48)));
    assert_eq!(kind(DynView::new(&chunk, 44, DType::U32, &[2], &[1])), ErrorKind::OutOfBounds);
    // A bool is moved as bytes, and never read as a `bool`.
    let bools = DynView::new(&chunk, 0, DType::Bool, &[48], &[1]).unwrap();
    assert_eq!(kind(bools.typed::<u8, 1>()), ErrorKind::DTypeMismatch);
}

#[test]
fn every_element_type_reads_any_bytes() {
    fn check<T: Element>() {
        let device = Device::cpu(0);
        let all: Vec<u8> = bytes(256, 0);
        let chunk = Chunk::from_owner(&device, Aligned::new(&all)).unwrap();
        let count = 256 / size_of::<T>();
        let view = chunk.view::<T, 1>([count]).unwrap();
        assert_eq!(view.as_slice().unwrap().len(), count);
        let span = view.span().unwrap();
        assert_eq!((span.bytes(), span.dtype()), (256, T::DTYPE));
        // Moving them changes no bit, not even of a NaN.
        let packed = view.pack().unwrap();
        assert_eq!(Chunk::from_vec(&device, packed).unwrap().slice::<u8>().unwrap(), all);
    }
    struct Aligned(Vec<u64>);
    impl Aligned {
        fn new(bytes: &[u8]) -> Self {
            Self(bytes.chunks(8).map(|it| u64::from_ne_bytes(it.try_into().unwrap())).collect())
        }
    }
    impl AsMut<[u8]> for Aligned {
        fn as_mut(&mut self) -> &mut [u8] {
            let (pointer, length) = (self.0.as_mut_ptr().cast(), self.0.len() * 8);
            // SAFETY: the vector's elements are that many bytes.
            unsafe { std::slice::from_raw_parts_mut(pointer, length) }
        }
    }
    check::<half::bf16>();
    check::<half::f16>();
    check::<f32>();
    check::<f64>();
    check::<float8::F8E4M3>();
    check::<float8::F8E5M2>();
    check::<i16>();
    check::<i32>();
    check::<i64>();
    check::<i8>();
    check::<u16>();
    check::<u32>();
    check::<u64>();
    check::<u8>();
}
