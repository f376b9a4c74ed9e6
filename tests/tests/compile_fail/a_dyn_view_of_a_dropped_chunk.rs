use aether::{Chunk, Device};

fn main() {
    let chunk = Chunk::allocate(&Device::cpu(0), 8).unwrap();
    let view = chunk.view::<u8, 1>([8]).unwrap().to_dyn();
    drop(chunk);
    println!("{:?}", view.typed::<u8, 1>());
}
