use aether::AsSpan;

fn main() {
    let elements = vec![1u32, 2];
    let span = elements.as_slice().span().unwrap();
    drop(elements);
    println!("{span:?}");
}
