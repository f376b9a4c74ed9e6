use ::aether::Device;

use super::*;
use crate::cell::{Cell, Op, sizes};
use crate::contender::Contender;
use crate::limit::{Limit, Stores};
use crate::memory::Memory;

/// What every rank has after `contender` carried the cell out.
fn results(memory: &Memory, contender: &mut dyn Contender, cell: &Cell) -> Vec<Vec<f32>> {
    for buffers in &mut memory.all() {
        buffers.destination.slice_mut::<f32>().unwrap().fill(-1.0);
    }
    assert!(contender.takes(cell));
    assert!(contender.sample(cell, 1, 2).unwrap().rounded() > 0.0);
    let results = memory.all();
    results.iter().map(|it| it.destination.to_vec::<f32>().unwrap()).collect()
}

#[test]
fn threads_and_one_caller_do_the_same_work_as_the_limit() {
    let devices = Device::cpus(4);
    let memory = Memory::new(&devices, 16384).unwrap();
    std::thread::scope(|scope| {
        let mut limit = Limit::new(&memory, 2, Stores::Ordinary);
        let mut threads = Threads::new(scope, &memory, &devices).unwrap();
        let mut set = Set::new(&memory, &devices).unwrap();
        for op in Op::ALL {
            for bytes in sizes(4, 16384) {
                let cell = Cell { op, ranks: 4, bytes };
                let by_threads = results(&memory, &mut threads, &cell);
                assert_eq!(by_threads, results(&memory, &mut set, &cell), "{cell}");
                if limit.takes(&cell) {
                    assert_eq!(by_threads, results(&memory, &mut limit, &cell), "{cell}");
                }
            }
        }
    });
}

#[test]
fn a_failure_of_a_turn_is_told_at_once_and_is_no_deadlock() {
    let devices = Device::cpus(2);
    let memory = Memory::new(&devices, 64).unwrap();
    std::thread::scope(|scope| {
        let mut threads = Threads::new(scope, &memory, &devices).unwrap();
        let beyond = Cell { op: Op::AllReduce, ranks: 2, bytes: 128 };
        let why = threads.sample(&beyond, 1, 1).unwrap_err().to_string();
        assert!(why.contains("needs 32 elements"), "{why}");
    });
}
