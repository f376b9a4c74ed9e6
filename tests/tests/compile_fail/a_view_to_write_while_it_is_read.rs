use aether::{Chunk, Device};

fn main() {
    let mut chunk = Chunk::allocate(&Device::cpu(0), 8).unwrap();
    let mut view = chunk.view_mut::<u8, 1>([8]).unwrap();
    let read = view.as_view();
    view.as_slice_mut().unwrap()[0] = 1;
    println!("{:?}", read.at([0]));
}
