//! burn-collective's all_reduce as a peer of the clock: a thread for each rank, on burn's CPU backend.
//!
//! Usage: `peer-burn RANKS MAX_BYTES`. It says `ready` and its version, then answers each line
//! `all_reduce BYTES WARMUP ITERATIONS` of its standard input with the microseconds of one operation, until the
//! input ends. Whatever goes wrong is a panic, which ends the program, and the clock sees that.

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};
use std::time::Instant;

use burn_collective::{AllReduceStrategy, CollectiveConfig, ReduceOperation, all_reduce, register};
use burn_tensor::{Tensor, TensorData, TensorPrimitive};

type Cpu = burn_flex::Flex;

/// One turn.
#[derive(Clone, Copy)]
struct Order {
    bytes: usize,
    warmup: u32,
    iterations: u32,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let ranks: usize = arguments.next().and_then(|it| it.parse().ok()).expect("RANKS");
    // A rank that panicked leaves the others waiting, so nothing but an exit ends this process.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        hook(panic);
        std::process::exit(101);
    }));
    let (answer, answers) = channel();
    let gate = Arc::new(Barrier::new(ranks));
    let orders: Vec<Sender<Order>> = (0..ranks)
        .map(|rank| {
            let (order, orders) = channel();
            let (gate, answer) = (gate.clone(), answer.clone());
            std::thread::spawn(move || serve(rank, ranks, &gate, &orders, &answer));
            order
        })
        .collect();
    println!("ready,burn-collective 0.21.0");
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("standard input");
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["all_reduce", bytes, warmup, iterations] = words[..] else { panic!("`{line}`?") };
        let number = |text: &str| text.parse::<u32>().expect("a number");
        let order = Order {
            bytes: number(bytes) as usize,
            warmup: number(warmup),
            iterations: number(iterations),
        };
        orders.iter().for_each(|it| it.send(order).expect("a rank"));
        let spans: Vec<(Instant, Instant)> = orders.iter().map(|_| answers.recv().expect("a rank")).collect();
        let begun = spans.iter().map(|it| it.0).min().expect("a rank");
        let ended = spans.iter().map(|it| it.1).max().expect("a rank");
        println!("{}", (ended - begun).as_secs_f64() * 1e6 / f64::from(order.iterations));
        std::io::stdout().flush().expect("standard output");
    }
}

fn serve(
    rank: usize,
    ranks: usize,
    gate: &Barrier,
    orders: &Receiver<Order>,
    answer: &Sender<(Instant, Instant)>,
) {
    let device = <Cpu as burn_backend::BackendTypes>::Device::default();
    let config = CollectiveConfig::default()
        .with_num_devices(ranks)
        .with_local_all_reduce_strategy(AllReduceStrategy::Tree(2));
    register::<Cpu>(rank.into(), device.clone(), config).expect("register");
    let mut tensors: HashMap<usize, Tensor<Cpu, 1>> = HashMap::new();
    for Order { bytes, warmup, iterations } in orders {
        let tensor = tensors.entry(bytes).or_insert_with(|| {
            let values = TensorData::new(vec![rank as f32; bytes / 4], [bytes / 4]);
            Tensor::from_data(values, &device)
        });
        let once = || {
            let part = tensor.clone().into_primitive().tensor();
            let sum = all_reduce::<Cpu>(rank.into(), part, ReduceOperation::Sum).expect("all_reduce");
            drop(Tensor::<Cpu, 1>::from_primitive(TensorPrimitive::Float(sum)));
        };
        (0..warmup).for_each(|_| once());
        gate.wait();
        let begun = Instant::now();
        (0..iterations).for_each(|_| once());
        answer.send((begun, Instant::now())).expect("the clock");
    }
}
