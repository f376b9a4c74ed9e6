//! A thread for each rank.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Scope;
use std::time::Instant;

use aether::{DType, Device, Element, Error, ErrorKind, Group, GroupConfig, Host, ReduceOp};

use crate::cell::{Cell, Op};
use crate::contender::{Contender, Took};
use crate::failure::{Failure, Result};
use crate::memory::{Buffers, Memory};

/// What a rank says of its turn: when it began and ended.
type Answer = aether::Result<(Instant, Instant)>;

/// The threads, which sleep between their turns and end when this is dropped.
pub struct Threads {
    ranks: Vec<Sender<Order>>,
    answers: Receiver<Answer>,
}

/// What the ranks are asked to do.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// A cell of the table.
    Cell(Cell),
    /// An all_reduce of so many bytes of another type, or by another reduction.
    Reduce(DType, ReduceOp, usize),
}

/// One turn.
#[derive(Clone, Copy)]
struct Order {
    work: Work,
    warmup: u32,
    iterations: u32,
}

impl Threads {
    /// The name in tables.
    pub const NAME: &'static str = "aether";

    /// Starts a thread for each device, whose chunks `memory` has.
    ///
    /// # Errors
    /// A thread that can't be started.
    pub fn new<'scope, 'env>(
        scope: &'scope Scope<'scope, 'env>,
        memory: &'env Memory,
        devices: &'env [Device],
    ) -> Result<Self> {
        let (answer, answers) = channel();
        let config = super::own_group();
        let mut ranks = Vec::with_capacity(devices.len());
        for rank in 0..devices.len() {
            let (order, orders) = channel();
            let (answer, config) = (answer.clone(), config.clone());
            std::thread::Builder::new()
                .spawn_scoped(scope, move || {
                    serve(rank, memory, devices, &config, &orders, &answer)
                })
                .map_err(|error| {
                    Failure::new(format!("start {} threads: {error}", devices.len()))
                })?;
            ranks.push(order);
        }
        Ok(Self { ranks, answers })
    }

    /// Carries the work out on all ranks: untimed first, then timed.
    ///
    /// # Errors
    /// The one that a rank met.
    pub fn turn(&mut self, work: Work, warmup: u32, iterations: u32) -> Result<Took> {
        let order = Order { work, warmup, iterations };
        let gone = || Failure::new("a rank's thread has ended");
        for rank in &self.ranks {
            rank.send(order).map_err(|_| gone())?;
        }
        let mut spans = Vec::with_capacity(self.ranks.len());
        let mut failures = Vec::new();
        for _ in &self.ranks {
            match self.answers.recv().map_err(|_| gone())? {
                Ok(span) => spans.push(span),
                Err(error) => failures.push(error),
            }
        }
        // That the group is broken is what the others say of one rank's failure.
        failures.sort_by_key(|error| error.kind() == ErrorKind::GroupBroken);
        match failures.into_iter().next() {
            Some(error) => Err(error.into()),
            None => Took::between(&spans, iterations),
        }
    }
}

impl Contender for Threads {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn takes(&self, cell: &Cell) -> bool {
        cell.ranks == self.ranks.len()
    }

    fn sample(&mut self, cell: &Cell, warmup: u32, iterations: u32) -> Result<Took> {
        self.turn(Work::Cell(*cell), warmup, iterations)
    }
}

/// One rank: joins, then carries out orders until there are no more. Every order is answered.
fn serve(
    rank: usize,
    memory: &Memory,
    devices: &[Device],
    config: &GroupConfig,
    orders: &Receiver<Order>,
    answer: &Sender<Answer>,
) {
    let mut group = Group::<Host>::join_with(devices, &devices[rank], config);
    for order in orders {
        let done = match &mut group {
            Ok(group) => {
                let done = turn(group, &mut memory.of(rank), order);
                if let Err(error) = &done {
                    // The others hear of it now, and not at the deadline.
                    group.abort(error);
                }
                done
            }
            Err(error) => Err(error.clone()),
        };
        if answer.send(done).is_err() {
            return;
        }
    }
}

fn turn(group: &mut Group<Host>, buffers: &mut Buffers, order: Order) -> Answer {
    let Order { work, warmup, iterations } = order;
    for _ in 0..warmup {
        carry_out(group, buffers, work)?;
    }
    group.barrier()?;
    let begun = Instant::now();
    for _ in 0..iterations {
        carry_out(group, buffers, work)?;
    }
    Ok((begun, Instant::now()))
}

fn carry_out(group: &mut Group<Host>, buffers: &mut Buffers, work: Work) -> aether::Result<()> {
    match work {
        Work::Cell(cell) => call(group, buffers, &cell),
        Work::Reduce(dtype, op, bytes) => reduce(group, buffers, dtype, op, bytes),
    }
}

/// One call as anybody would write it, from chunks to the end of the operation.
fn call(group: &mut Group<Host>, buffers: &mut Buffers, cell: &Cell) -> aether::Result<()> {
    let Buffers { source, destination } = buffers;
    if cell.op == Op::Broadcast && group.rank() == 0 {
        return group.broadcast_in_place(&mut source.view_mut::<f32, 1>([cell.given()])?, 0);
    }
    let source = source.view::<f32, 1>([cell.given()])?;
    let mut destination = destination.view_mut::<f32, 1>([cell.got()])?;
    match cell.op {
        Op::AllReduce => group.all_reduce(&source, &mut destination, ReduceOp::Sum),
        Op::AllGather => group.all_gather(&source, &mut destination),
        Op::ReduceScatter => group.reduce_scatter(&source, &mut destination, ReduceOp::Sum),
        Op::Broadcast => group.broadcast_in_place(&mut destination, 0),
        Op::AllToAll => group.all_to_all(&source, &mut destination),
    }
}

/// An all_reduce by the type that is known only at run time.
fn reduce(
    group: &mut Group<Host>,
    buffers: &mut Buffers,
    dtype: DType,
    op: ReduceOp,
    bytes: usize,
) -> aether::Result<()> {
    macro_rules! typed {
        ($($dtype:ident => $element:ty),*) => {
            match dtype {
                $(DType::$dtype => reduce_typed::<$element>(group, buffers, op, bytes),)*
                other => {
                    let reason = format!("{other} is not reduced");
                    Err(Error::new(ErrorKind::Unsupported, "bench", reason))
                }
            }
        };
    }
    typed!(
        BF16 => half::bf16, F16 => half::f16, F32 => f32, F64 => f64, F8E4M3 => float8::F8E4M3,
        F8E5M2 => float8::F8E5M2, I16 => i16, I32 => i32, I64 => i64, I8 => i8, U16 => u16, U32 => u32,
        U64 => u64, U8 => u8
    )
}

fn reduce_typed<T: Element>(
    group: &mut Group<Host>,
    buffers: &mut Buffers,
    op: ReduceOp,
    bytes: usize,
) -> aether::Result<()> {
    let elements = [bytes / size_of::<T>()];
    let mut destination = buffers.destination.view_mut::<T, 1>(elements)?;
    group.all_reduce(&buffers.source.view::<T, 1>(elements)?, &mut destination, op)
}
