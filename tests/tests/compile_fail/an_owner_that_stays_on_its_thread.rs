use std::rc::Rc;

use aether::{Chunk, Device};

struct Owner(Vec<u8>, Rc<()>);

impl AsMut<[u8]> for Owner {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

fn main() {
    let owner = Owner(vec![0; 8], Rc::new(()));
    println!("{:?} {:?}", owner.1.clone(), Chunk::from_owner(&Device::cpu(0), owner));
}
