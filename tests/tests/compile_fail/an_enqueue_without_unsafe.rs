use std::sync::Arc;

use aether::{Device, Operation, Stream, enqueue};

fn put(stream: &Stream, operation: Arc<dyn Operation>) {
    println!("{:?}", enqueue(stream, &[], &[], operation, 0));
}

fn main() {
    println!("{:?} {}", Stream::new(&Device::cpu(0)), put as usize);
}
