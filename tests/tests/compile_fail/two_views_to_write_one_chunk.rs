use aether::{Chunk, Device};

fn main() {
    let mut chunk = Chunk::allocate(&Device::cpu(0), 8).unwrap();
    let mut one = chunk.view_mut::<u8, 1>([8]).unwrap();
    let mut two = chunk.view_mut::<u8, 1>([8]).unwrap();
    one.as_slice_mut().unwrap()[0] = two.as_slice_mut().unwrap()[0];
}
