use aether::{Chunk, Device, copy};

fn main() {
    let mut chunk = Chunk::allocate(&Device::cpu(0), 8).unwrap();
    copy(&mut chunk, &chunk).unwrap();
}
