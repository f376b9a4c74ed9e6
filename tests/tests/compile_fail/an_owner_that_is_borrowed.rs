use aether::{Chunk, Device};

fn main() {
    let mut elements = vec![0u8; 8];
    let chunk = Chunk::from_owner(&Device::cpu(0), &mut elements[..]).unwrap();
    elements[0] = 1;
    println!("{chunk:?}");
}
