//! crates/aether-cli
fn main() {}
