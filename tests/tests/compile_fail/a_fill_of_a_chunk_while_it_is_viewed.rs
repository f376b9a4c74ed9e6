use aether::{Chunk, Device, fill};

fn main() {
    let mut chunk = Chunk::allocate(&Device::cpu(0), 8).unwrap();
    let view = chunk.view::<u8, 1>([8]).unwrap();
    fill(&mut chunk, 1u8).unwrap();
    println!("{:?}", view.at([0]));
}
