use aether::{Chunk, Device};

fn main() {
    let chunk = Chunk::allocate(&Device::cpu(0), 8).unwrap();
    let same = chunk.clone();
    println!("{same:?}");
}
