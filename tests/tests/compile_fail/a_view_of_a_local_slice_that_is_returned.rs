use aether::View;

fn broken() -> View<'static, u8, 1> {
    let elements = vec![1u8, 2];
    View::new(&elements, [2]).unwrap()
}

fn main() {
    println!("{:?}", broken());
}
