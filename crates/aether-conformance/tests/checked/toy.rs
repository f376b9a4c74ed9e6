//! An engine so small that each of its ordering edges can be left out by number: with all of them
//! the detector is silent, without any one of them it reports, in every run.

use std::alloc::Layout;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

use aether_conformance::checked::{By, Checked, Fault, Report, What};
use aether_core::{
    Address, Backend, DeviceId, DeviceKind, HostBackend, NativeStream, Point, Region, Rows, Touch,
};

pub(crate) const DEVICE: DeviceId = DeviceId::new(DeviceKind::CPU, 0);

fn layout() -> Layout {
    Layout::from_size_align(BYTES, 64).unwrap()
}

const BYTES: usize = 64;

struct Toy {
    backend: Arc<Checked<HostBackend>>,
    streams: Vec<NativeStream>,
    tickets: RefCell<Vec<u64>>,
    left_out: Option<usize>,
    edges: Cell<usize>,
}

impl Toy {
    fn new(left_out: Option<usize>) -> Self {
        let backend = Checked::new(HostBackend::new());
        let streams = (0..3).map(|_| backend.open_stream(DEVICE).unwrap()).collect();
        let tickets = RefCell::new(vec![0; 3]);
        Self { backend, streams, tickets, left_out, edges: Cell::new(0) }
    }

    fn allocate(&self) -> Region {
        let address = self.backend.allocate(DEVICE, layout(), true).unwrap();
        Region { device: DEVICE, address, bytes: BYTES }
    }

    fn free(&self, it: Region) {
        // SAFETY: `allocate` gave it, each scenario frees it once, and the host backend's work has
        // ended when it returns.
        unsafe { self.backend.free(DEVICE, it.address, layout()) }
    }

    fn copy(&self, on: usize, dst: Region, src: Region) {
        // SAFETY: both are allocations of this size, live and different, and this thread alone
        // works on them.
        unsafe { self.backend.copy(self.streams[on], dst, src) }.unwrap();
        self.mark(on);
    }

    fn fill(&self, on: usize, dst: Region) {
        // SAFETY: as for `copy`.
        unsafe { self.backend.fill(self.streams[on], dst, &[7]) }.unwrap();
        self.mark(on);
    }

    fn work(&self, on: usize, region: Region, writes: bool) {
        self.backend.observe(Some(self.streams[on]), &[Touch { region, writes }]);
        self.mark(on);
    }

    fn host(&self, region: Region, writes: bool) {
        self.backend.observe(None, &[Touch { region, writes }]);
    }

    fn mark(&self, on: usize) {
        self.tickets.borrow_mut()[on] += 1;
        self.backend.mark(self.point(on)).unwrap();
    }

    fn point(&self, on: usize) -> Point {
        Point { stream: self.streams[on], ticket: self.tickets.borrow()[on] }
    }

    /// An edge: what is issued on `stream` from now on comes behind what is on `on`.
    fn behind(&self, stream: usize, on: usize) {
        if self.takes_edge() {
            self.backend.wait(self.streams[stream], self.point(on)).unwrap();
        }
    }

    /// An edge: the host goes on behind what is on `on`.
    fn host_behind(&self, on: usize) {
        if self.takes_edge() {
            self.backend.acquired(self.point(on));
        }
    }

    fn takes_edge(&self) -> bool {
        let edge = self.edges.replace(self.edges.get() + 1);
        self.left_out != Some(edge)
    }

    fn reports(&self) -> Vec<Report> {
        self.backend.reports()
    }
}

/// The kinds of the two accesses of an unordered pair, and the stream of the earlier.
type Pair = (What, u64, What);

fn pairs(reports: &[Report]) -> Vec<Pair> {
    let unordered = reports.iter().filter(|it| it.fault == Fault::Unordered);
    unordered
        .map(|it| {
            let (earlier, later) = (it.earlier.unwrap(), it.later.unwrap());
            let By::Stream { stream, .. } = earlier.by else { panic!("{it}") };
            (earlier.what, stream.0, later.what)
        })
        .collect()
}

/// Runs a scenario with all edges and without each of them: `wanted` has, for each edge, the pair
/// that nothing orders when it is left out.
fn check(scenario: fn(&Toy), wanted: &[Pair]) {
    for _ in 0..100 {
        let toy = Toy::new(None);
        scenario(&toy);
        assert_eq!(toy.reports(), []);
        assert_eq!(toy.edges.get(), wanted.len());
        for (edge, pair) in wanted.iter().enumerate() {
            let toy = Toy::new(Some(edge));
            scenario(&toy);
            let found = pairs(&toy.reports());
            assert_eq!(found.len(), toy.reports().len());
            assert!(found.contains(pair), "edge {edge}: {found:?} has not {pair:?}");
        }
    }
}

#[test]
fn a_read_after_a_write_needs_its_edge() {
    let scenario = |toy: &Toy| {
        let (x, y) = (toy.allocate(), toy.allocate());
        toy.fill(0, x);
        toy.behind(1, 0);
        toy.copy(1, y, x);
        toy.host_behind(1);
        toy.free(x);
        toy.free(y);
    };
    check(scenario, &[(What::Fill, 1, What::Copy), (What::Copy, 2, What::Free)]);
}

#[test]
fn a_write_after_a_read_needs_its_edge() {
    let scenario = |toy: &Toy| {
        let (x, y) = (toy.allocate(), toy.allocate());
        toy.copy(0, y, x);
        toy.behind(1, 0);
        toy.fill(1, x);
        toy.host_behind(1);
        toy.free(x);
        toy.free(y);
    };
    check(scenario, &[(What::Copy, 1, What::Fill), (What::Fill, 2, What::Free)]);
}

#[test]
fn a_write_after_a_write_needs_its_edge() {
    let scenario = |toy: &Toy| {
        let x = toy.allocate();
        toy.fill(0, x);
        toy.behind(1, 0);
        toy.fill(1, x);
        toy.host_behind(1);
        toy.free(x);
    };
    check(scenario, &[(What::Fill, 1, What::Fill), (What::Fill, 2, What::Free)]);
}

#[test]
fn a_write_after_several_reads_needs_an_edge_behind_each() {
    let scenario = |toy: &Toy| {
        let x = toy.allocate();
        toy.work(0, x, false);
        toy.work(1, x, false);
        toy.behind(2, 0);
        toy.behind(2, 1);
        toy.fill(2, x);
        toy.host_behind(2);
        toy.free(x);
    };
    check(
        scenario,
        &[(What::Work, 1, What::Fill), (What::Work, 2, What::Fill), (What::Fill, 3, What::Free)],
    );
}

#[test]
fn an_order_through_a_stream_that_touches_nothing_needs_both_edges() {
    let scenario = |toy: &Toy| {
        let x = toy.allocate();
        toy.fill(0, x);
        toy.behind(1, 0);
        toy.mark(1);
        toy.behind(2, 1);
        toy.work(2, x, true);
        toy.host_behind(2);
        toy.free(x);
    };
    check(
        scenario,
        &[(What::Fill, 1, What::Work), (What::Fill, 1, What::Work), (What::Work, 3, What::Free)],
    );
}

#[test]
fn the_host_needs_an_edge_before_it_reads_what_is_written() {
    let scenario = |toy: &Toy| {
        let x = toy.allocate();
        toy.fill(0, x);
        toy.host_behind(0);
        toy.host(x, false);
        toy.free(x);
    };
    check(scenario, &[(What::Fill, 1, What::Host)]);
}

#[test]
fn the_host_needs_an_edge_before_it_writes_what_is_read() {
    let scenario = |toy: &Toy| {
        let (x, y) = (toy.allocate(), toy.allocate());
        toy.copy(0, y, x);
        // To read what is only read needs none.
        toy.host(x, false);
        toy.host_behind(0);
        toy.host(x, true);
        toy.free(x);
        toy.free(y);
    };
    check(scenario, &[(What::Copy, 1, What::Host)]);
}

#[test]
fn the_host_needs_an_edge_before_it_frees_what_is_read() {
    let scenario = |toy: &Toy| {
        let x = toy.allocate();
        toy.work(0, x, false);
        toy.host_behind(0);
        toy.free(x);
    };
    check(scenario, &[(What::Work, 1, What::Free)]);
}

#[test]
fn an_edge_behind_an_earlier_ticket_is_not_enough() {
    let toy = Toy::new(None);
    let x = toy.allocate();
    toy.work(1, x, false);
    toy.fill(0, toy.allocate());
    let first = toy.point(0);
    toy.fill(0, x);
    toy.backend.wait(toy.streams[2], first).unwrap();
    toy.work(2, x, false);
    let found = pairs(&toy.reports());
    assert_eq!(found, [(What::Work, 2, What::Fill), (What::Fill, 1, What::Work)]);
}

#[test]
fn accesses_that_do_not_conflict_need_no_edge() {
    let toy = Toy::new(None);
    let x = toy.allocate();
    let half = |at: usize| Region { address: x.address.add(at), bytes: BYTES / 2, ..x };
    toy.fill(0, half(0));
    toy.fill(1, half(BYTES / 2));
    let y = toy.allocate();
    toy.work(0, y, false);
    toy.work(1, y, false);
    assert_eq!(toy.reports(), []);
    // One byte in common is enough for a conflict.
    toy.fill(2, Region { address: x.address.add(BYTES / 2 - 1), bytes: 1, ..x });
    assert_eq!(pairs(&toy.reports()), [(What::Fill, 1, What::Fill)]);
}

#[test]
fn a_read_that_is_ordered_does_not_hide_the_write_from_one_that_is_not() {
    let toy = Toy::new(None);
    let x = toy.allocate();
    toy.fill(0, x);
    toy.behind(1, 0);
    toy.work(1, x, false);
    assert_eq!(toy.reports(), []);
    toy.work(2, x, false);
    assert_eq!(pairs(&toy.reports()), [(What::Fill, 1, What::Work)]);
}

#[test]
fn every_row_of_a_copy_is_watched_and_nothing_between_them() {
    let toy = Toy::new(None);
    let (x, y) = (toy.allocate(), toy.allocate());
    let rows = Rows { count: 3, bytes: 4, dst_pitch: 16, src_pitch: 4 };
    // SAFETY: all rows lie within two allocations that this thread alone works on.
    unsafe { toy.backend.copy_rows(toy.streams[0], x, y, rows) }.unwrap();
    let part = |of: Region, at: usize| Region { address: of.address.add(at), bytes: 4, ..of };
    for between in [4, 12, 20, 28, 36] {
        toy.work(1, part(x, between), true);
    }
    toy.work(1, part(y, 12), true);
    assert_eq!(toy.reports(), []);
    for (row, of) in [(0, x), (16, x), (32, x), (0, y), (8, y)] {
        toy.work(1, part(of, row), true);
    }
    assert_eq!(pairs(&toy.reports()), [(What::Copy, 1, What::Work); 5]);
}

#[test]
fn that_somebody_looked_whether_it_is_done_orders_nothing() {
    let toy = Toy::new(None);
    let x = toy.allocate();
    toy.fill(0, x);
    assert!(toy.backend.is_done(toy.point(0)).unwrap());
    toy.host(x, false);
    assert_eq!(pairs(&toy.reports()), [(What::Fill, 1, What::Host)]);
}

#[test]
fn a_stream_that_opens_after_another_closed_is_not_ordered_behind_it() {
    let toy = Toy::new(None);
    let x = toy.allocate();
    toy.fill(0, x);
    toy.backend.close_stream(toy.streams[0]);
    let late = toy.backend.open_stream(DEVICE).unwrap();
    toy.backend.observe(Some(late), &[Touch { region: x, writes: false }]);
    assert_eq!(pairs(&toy.reports()), [(What::Fill, 1, What::Work)]);
}

#[test]
fn memory_of_others_is_watched_too() {
    let toy = Toy::new(None);
    let mut bytes = vec![0u8; BYTES];
    let address = Address::from_ptr(bytes.as_mut_ptr());
    let plain = Region { device: DEVICE, address, bytes: BYTES };
    toy.fill(0, plain);
    toy.work(1, plain, false);
    assert_eq!(pairs(&toy.reports()), [(What::Fill, 1, What::Work)]);
    assert_eq!(bytes, [7; BYTES]);
}

#[test]
fn a_report_names_both_accesses_and_the_order_that_is_missing() {
    let toy = Toy::new(None);
    let x = toy.allocate();
    toy.fill(0, toy.allocate());
    toy.behind(1, 0);
    toy.fill(0, x);
    toy.copy(1, toy.allocate(), x);
    let findings = toy.backend.verdict().unwrap_err();
    let text = findings.to_string();
    let address = format!("{:?}+64", x.address);
    for part in [
        "1 findings",
        "unordered accesses",
        &format!("earlier: fill writing cpu:0 {address} on stream #1 (issue 2, after ticket 1)"),
        &format!("later: copy reading cpu:0 {address} on stream #2 (issue 1, after ticket 0)"),
        "stream #2 is ordered behind stream #1 up to issue 1, and not behind issue 2",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}
