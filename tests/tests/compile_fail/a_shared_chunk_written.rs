use aether::{Chunk, Device, Stream, copy_async};

fn main() {
    let device = Device::cpu(0);
    let stream = Stream::new(&device).unwrap();
    let source = Chunk::allocate(&device, 8).unwrap();
    let chunk = Chunk::allocate(&device, 8).unwrap();
    copy_async(&mut &chunk, &source, &stream).unwrap();
    copy_async(&chunk, &source, &stream).unwrap();
}
