use aether::{Chunk, Device};

fn main() {
    let mut chunk = Chunk::allocate(&Device::cpu(0), 8).unwrap();
    let mut view = chunk.view_mut::<u8, 1>([8]).unwrap();
    let slice = view.as_view().as_slice().unwrap();
    view.lane_mut([0]).unwrap()[0] = 1;
    println!("{slice:?}");
}
