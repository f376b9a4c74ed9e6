use aether::{Chunk, Device};

fn main() {
    let mut chunk = Chunk::allocate(&Device::cpu(0), 8).unwrap();
    let mut view = chunk.view_mut::<u8, 1>([8]).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| view.as_slice_mut().unwrap().fill(1));
        scope.spawn(|| view.as_slice_mut().unwrap().fill(2));
    });
}
