use aether::{Chunk, Device, Stream, copy_async};

fn main() {
    let device = Device::cpu(0);
    let stream = Stream::new(&device).unwrap();
    let source = Chunk::allocate(&device, 8).unwrap();
    let mut chunk = Chunk::allocate(&device, 8).unwrap();
    let slice = chunk.slice::<u8>().unwrap();
    copy_async(&mut chunk, &source, &stream).unwrap();
    println!("{slice:?}");
}
