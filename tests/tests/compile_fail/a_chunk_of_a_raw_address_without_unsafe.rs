use aether::{Address, Chunk, DType, Device, Span};

fn main() {
    println!("{:?}", Chunk::borrow(&Device::cpu(0), Address::from_raw(64), 8));
    println!("{:?}", Span::from_raw(Address::from_raw(64), 8, DType::U8));
    println!("{:?}", Chunk::allocate_uninit(&Device::cpu(0), 8));
}
