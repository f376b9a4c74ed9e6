use aether::{Chunk, Device};

fn main() {
    let chunk = Chunk::allocate(&Device::cpu(0), 8).unwrap();
    let slice = chunk.slice::<u8>().unwrap();
    drop(chunk);
    println!("{slice:?}");
}
