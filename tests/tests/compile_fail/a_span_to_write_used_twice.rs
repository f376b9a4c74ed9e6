use aether::{Chunk, DType, Device};

fn main() {
    let mut chunk = Chunk::allocate(&Device::cpu(0), 8).unwrap();
    let mut span = chunk.span_of_mut(.., DType::U8).unwrap();
    let one = span.part(0, 4).unwrap();
    let two = span.part(0, 4).unwrap();
    println!("{one:?} {two:?}");
}
