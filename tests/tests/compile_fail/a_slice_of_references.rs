use aether::{Chunk, Device};

fn main() {
    let chunk = Chunk::allocate(&Device::cpu(0), 8).unwrap();
    println!("{:?}", chunk.slice::<&'static u8>().unwrap());
}
