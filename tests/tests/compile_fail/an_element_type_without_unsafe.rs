use aether::{DType, Element};

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Flag(bool);

impl Element for Flag {
    const DTYPE: DType = DType::U8;
}

fn main() {
    println!("{:?}", Flag::DTYPE);
}
