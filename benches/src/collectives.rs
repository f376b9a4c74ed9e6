//! The main part: every cell, by everybody who takes it.

use std::path::PathBuf;
use std::time::Duration;

use aether::Device;

use crate::aether::{Set, Threads};
use crate::cell::{Cell, Op, sizes};
use crate::contender::Contender;
use crate::failure::{Failure, Result};
use crate::limit::{Limit, Stores};
use crate::memory::Memory;
use crate::peers::{Buffers, Library, Peer, Processes};
use crate::results::Collectives;
use crate::setting::{Setting, cores};
use crate::turns::{Plan, measure};

/// What is measured.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The numbers of ranks.
    pub ranks: Vec<usize>,
    /// The largest array, in bytes.
    pub most: usize,
    /// Of the sizes, every how manieth; the largest is always among them.
    pub every: usize,
    /// Cells whose name holds one of these; all if there is none.
    pub only: Vec<String>,
    /// The other libraries.
    pub peers: Vec<Library>,
    /// Whether aether's ranks in processes take turns too.
    pub processes: bool,
    /// Where the libraries' programs are built.
    pub directory: PathBuf,
    /// How often and how long.
    pub plan: Plan,
}

impl Choice {
    /// The cells between so many ranks.
    pub fn cells(&self, ranks: usize) -> Vec<Cell> {
        let all: Vec<usize> = sizes(ranks, self.most).collect();
        let mut bytes: Vec<usize> = all.into_iter().rev().step_by(self.every.max(1)).collect();
        bytes.reverse();
        let cells = Op::ALL
            .into_iter()
            .flat_map(|op| bytes.iter().map(move |&bytes| Cell { op, ranks, bytes }));
        cells.filter(|cell| self.wants(cell)).collect()
    }

    fn wants(&self, cell: &Cell) -> bool {
        let name = cell.to_string();
        self.only.is_empty() || self.only.iter().any(|text| name.contains(text))
    }
}

/// Measures it, and tells `progress` of each cell before it begins.
///
/// # Errors
/// What kept a contender from its turn. A library that isn't there is none: it is told among what was
/// skipped.
pub fn run(choice: &Choice, mut progress: impl FnMut(&Cell)) -> Result<Collectives> {
    let mut results =
        Collectives { setting: Setting::here(choice.plan.turns), ..Collectives::default() };
    let mut programs = Vec::new();
    for &library in &choice.peers {
        match library.build(&choice.directory)? {
            Ok(program) => programs.push((library, program)),
            Err(why) => results.skipped.push(why),
        }
    }
    let processes = match choice.processes.then(Processes::build).transpose()? {
        Some(Ok(program)) => Some(program),
        Some(Err(why)) => {
            results.skipped.push(why);
            None
        }
        None => None,
    };
    for &ranks in &choice.ranks {
        let cells = choice.cells(ranks);
        let Some(most) = cells.iter().map(|cell| cell.bytes).max() else { continue };
        let mut peers: Vec<Box<dyn Contender>> = Vec::new();
        for (library, program) in &programs {
            if let Some(why) = library.refuses(ranks, cores()) {
                results.skipped.push(why);
                continue;
            }
            let peer = Peer::start(*library, program, ranks, most)?;
            let version = peer.version().to_owned();
            if !results.setting.peers.contains(&version) {
                results.setting.peers.push(version);
            }
            peers.push(Box::new(peer));
        }
        if let Some(program) = &processes {
            for buffers in Buffers::ALL {
                match Processes::new(program, buffers, ranks) {
                    Ok(it) => peers.push(Box::new(it)),
                    Err(why) => results.skipped.push(why),
                }
            }
        }
        session(&cells, most, peers, choice.plan, &mut progress, &mut results)?;
    }
    Ok(results)
}

/// All cells of one number of ranks.
fn session(
    cells: &[Cell],
    most: usize,
    peers: Vec<Box<dyn Contender>>,
    plan: Plan,
    progress: &mut impl FnMut(&Cell),
    results: &mut Collectives,
) -> Result<()> {
    let ranks = cells.first().map_or(0, |cell| cell.ranks);
    let count =
        u32::try_from(ranks).map_err(|_| Failure::new(format!("{ranks} ranks are too many")))?;
    let devices = Device::cpus(count);
    let memory = Memory::new(&devices, most)?;
    std::thread::scope(|scope| {
        let mut contenders: Vec<Box<dyn Contender + '_>> = vec![
            Box::new(Limit::new(&memory, cores(), Stores::Ordinary)),
            Box::new(Threads::new(scope, &memory, &devices)?),
            Box::new(Limit::new(&memory, cores(), Stores::NonTemporal)),
            Box::new(Set::new(&memory, &devices)?),
        ];
        contenders.extend(peers.into_iter().map(|it| -> Box<dyn Contender + '_> { it }));
        for cell in cells {
            progress(cell);
            results.rows.push(measure(cell, &mut contenders, plan)?);
        }
        Ok(())
    })
}

impl Plan {
    /// As the figures of docs/performance/ are taken.
    pub const FULL: Self = Self { turns: 15, span: Duration::from_millis(4) };
    /// For a look.
    pub const QUICK: Self = Self { turns: 5, span: Duration::from_millis(2) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice() -> Choice {
        Choice {
            ranks: vec![2],
            most: 8192,
            every: 1,
            only: Vec::new(),
            peers: Vec::new(),
            processes: false,
            directory: PathBuf::new(),
            plan: Plan { turns: 2, span: Duration::from_micros(10) },
        }
    }

    #[test]
    fn a_choice_of_every_second_size_keeps_the_largest() {
        let bytes = |every| {
            let cells = Choice { every, ..choice() }.cells(2);
            assert!(cells.chunks(cells.len() / 5).all(|it| it[0].op == it[it.len() - 1].op));
            cells.iter().filter(|it| it.op == Op::Broadcast).map(|it| it.bytes).collect::<Vec<_>>()
        };
        assert_eq!(bytes(1), [16, 128, 1024, 8192]);
        assert_eq!(bytes(2), [128, 8192]);
    }

    #[test]
    fn only_cells_whose_name_holds_the_text_are_measured_each_with_all_turns() {
        let choice = Choice { only: vec!["gather ranks 2 bytes 8192".into()], ..choice() };
        let mut seen = Vec::new();
        let results = run(&choice, |cell| seen.push(*cell)).unwrap();
        let cell = Cell { op: Op::AllGather, ranks: 2, bytes: 8192 };
        assert_eq!(seen, [cell]);
        let row = &results.rows[0];
        assert_eq!((results.rows.len(), row.cell), (1, cell));
        let names: Vec<&str> = row.series.iter().map(|it| it.name.as_str()).collect();
        let [ordinary, streaming] = Stores::ALL.map(Stores::name);
        assert_eq!(names, [ordinary, "aether", streaming, "aether GroupSet"]);
        assert!(row.series.iter().all(|it| it.micros.len() == 2));
    }
}
