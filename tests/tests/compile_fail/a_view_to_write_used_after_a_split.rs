use aether::{Chunk, Device};

fn main() {
    let mut chunk = Chunk::allocate(&Device::cpu(0), 8).unwrap();
    let mut view = chunk.view_mut::<u8, 1>([8]).unwrap();
    let (front, back) = view.split_at(0, 4).unwrap();
    view.as_slice_mut().unwrap()[0] = 1;
    println!("{front:?} {back:?}");
}
