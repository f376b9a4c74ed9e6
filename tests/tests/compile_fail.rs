//! What safe code must not be able to write down.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

use aether::{Chunk, DType, Device, Result, Stream, View, copy_async};

#[test]
fn what_must_not_compile_does_not() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}

/// The forms that the failing cases come close to: so each of those fails for its own reason.
#[test]
fn the_same_in_order_compiles_and_runs() -> Result<()> {
    let device = Device::cpu(0);
    let mut chunk = Chunk::from_vec(&device, vec![1u32, 2, 3, 4])?;
    let source = Chunk::from_vec(&device, vec![5u32, 6])?;
    let stream = Stream::new(&device)?;
    assert_eq!(chunk.slice::<u32>()?.len(), 4);
    let (mut front, mut back) = chunk.view_mut::<u32, 1>([4])?.split_at(0, 2)?;
    copy_async(&mut front, &source, &stream)?;
    back.as_slice_mut()?[0] = front.as_slice_mut()?[1];
    let end = copy_async(&mut chunk.span_of_mut(8..16, DType::U8)?, &source, &stream)?;
    let view: View<'_, u32, 2> = chunk.view([2, 2])?;
    let narrow = view.narrow(0, 1, 1)?;
    assert_eq!(narrow.as_slice()?, [5, 6]);
    std::thread::scope(|scope| {
        scope.spawn(|| view.at([0, 0]));
    });
    drop((source, stream));
    end.wait()?;
    let moved = chunk;
    assert_eq!(moved.slice::<u32>()?[3], 6);
    Ok(())
}
