use aether::{Chunk, Device};

fn main() {
    let mut chunk = Chunk::allocate(&Device::cpu(0), 8).unwrap();
    let view = chunk.view_mut::<u8, 1>([8]).unwrap();
    let same = view.clone();
    println!("{view:?} {same:?}");
}
