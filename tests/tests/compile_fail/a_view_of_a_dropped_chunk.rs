use aether::{Chunk, Device};

fn main() {
    let chunk = Chunk::allocate(&Device::cpu(0), 8).unwrap();
    let view = chunk.view::<u8, 1>([8]).unwrap();
    let part = view.narrow(0, 2, 3).unwrap();
    drop(chunk);
    println!("{part:?}");
}
