use aether::{Chunk, Device};

fn main() {
    let mut chunk = Chunk::allocate(&Device::cpu(0), 8).unwrap();
    let mut view = chunk.view_mut::<u8, 1>([8]).unwrap();
    let one = view.as_slice_mut().unwrap();
    let two = view.lane_mut([0]).unwrap();
    one[0] = two[0];
}
