use aether::{Chunk, Device};

fn main() {
    let chunk = Chunk::allocate(&Device::cpu(0), 8).unwrap();
    println!("{:?}", chunk.view::<bool, 1>([8]).is_ok());
}
