//! A member of a group with a defect: what it passes on to the host, and what it makes of the answers.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex};

use aether_collective::{CollectiveDriver, Elements, GroupConfig};
use aether_conformance::collectives::operation::Operation;
use aether_core::{Address, DType, Device, DeviceId, Error, ErrorKind, NativeStream, Result};
use aether_host::{Communicator, Host, HostId, HostRange};

use crate::board::{Board, Brought, lock, read, write};
use crate::defect::Defect::{self, *};
use crate::wrong::Ended;

/// Elements as the host names them.
pub(crate) type Named = Elements<DType>;
/// Memory as the host addresses it.
pub(crate) type Range = HostRange;

/// A member of a group with a defect.
pub(crate) struct Comm {
    inner: Option<Communicator>,
    device: DeviceId,
    pub(crate) rank: usize,
    ranks: usize,
    checked: bool,
    pub(crate) defect: Defect,
    board: Arc<Board>,
    state: Mutex<State>,
    /// What was sent last, by receiver.
    sent: Mutex<HashMap<usize, Vec<u8>>>,
}

#[derive(Default)]
struct State {
    calls: u64,
    /// The call whose result is to be made wrong.
    call: Option<Call>,
    /// The call in hands ends at once, whatever the host says.
    at_once: bool,
    batch: Option<Vec<Message>>,
    /// Messages that are passed on when those before them have ended.
    later: VecDeque<Message>,
}

struct Call {
    number: u64,
    operation: Operation,
    dtype: DType,
    src: Option<HostRange>,
    dst: Option<HostRange>,
}

/// One end of a message.
#[derive(Clone, Copy)]
pub(crate) struct Message {
    pub(crate) sends: bool,
    pub(crate) memory: Range,
    pub(crate) elements: Named,
    pub(crate) peer: usize,
}

/// Devices that were in a group that failed.
static FAILED: Mutex<Option<HashSet<DeviceId>>> = Mutex::new(None);

impl Comm {
    /// Joins a group of the host with the defect that the group's name tells.
    pub(crate) fn join(
        id: HostId,
        ranks: usize,
        rank: usize,
        device: &Device,
        config: &GroupConfig,
    ) -> Result<Self> {
        let defect = Defect::of_group(config.name.as_deref());
        let failed = || lock(&FAILED).get_or_insert_default().contains(&device.id());
        if defect == NoNewGroup && failed() {
            let reason = "the device was in a group that failed";
            return Err(Error::new(ErrorKind::GroupBroken, "join a group", reason).on(device));
        }
        let mut lied = config.clone();
        match defect {
            DeadlineMuchLater => lied.deadline *= 1000,
            DeadlineSooner => lied.deadline /= 10,
            _ => {}
        }
        let inner = Some(Host::join(id, ranks, rank, device, &lied)?);
        let (board, checked) = (Board::of(id), config.checked);
        let (device, state, sent) = (device.id(), Mutex::default(), Mutex::default());
        Ok(Self { inner, device, rank, ranks, checked, defect, board, state, sent })
    }

    /// The host's member.
    pub(crate) fn inner(&self) -> Result<&Communicator> {
        let gone = || Error::new(ErrorKind::GroupBroken, "make a call", "the member is gone");
        self.inner.as_ref().ok_or_else(gone)
    }

    /// Records a collective, and passes it on by `pass` unless the defect keeps it.
    pub(crate) fn collective(
        &self,
        operation: Operation,
        elements: Named,
        (src, dst): (Option<Range>, Option<Range>),
        pass: impl FnOnce(&Communicator, Named) -> Result<()>,
    ) -> Result<()> {
        let inner = self.inner()?;
        let mut state = lock(&self.state);
        *state = State { calls: state.calls + 1, ..State::default() };
        let number = state.calls - 1;
        if self.defect == FailureForgotten && Host::failure(inner).is_some() {
            state.at_once = true;
            return Ok(());
        }
        if self.defect == LateRankWrites && Host::failure(inner).is_some() {
            for target in self.board.call(number, self.ranks).iter().filter_map(|it| it.target) {
                write(target.address, &vec![0x77; target.bytes]);
            }
        }
        let source = src.map(read).unwrap_or_default();
        let before = dst.map(read).unwrap_or_default();
        self.board.put(number, self.rank, Brought { source, before, target: dst });
        let dtype = elements.data_type;
        state.call = Some(Call { number, operation, dtype, src, dst });
        state.at_once = self.defect == CollectivesEndAtOnce;
        if self.defect == ZeroElementsSkipped && elements.count == 0 {
            state.at_once = true;
            return Ok(());
        }
        drop(state);
        pass(inner, self.lie(elements))
    }

    /// The elements as the defect tells them to the host.
    fn lie(&self, elements: Named) -> Named {
        let Elements { data_type, count } = elements;
        match self.defect {
            CountIgnored => Elements { data_type, count: count.min(4) },
            TypeIgnored if data_type == DType::F32 => Elements { data_type: DType::I32, count },
            MessagesOfBytes => {
                Elements { data_type: DType::U8, count: count * data_type.size() as u64 }
            }
            _ => elements,
        }
    }

    /// Passes a barrier on, unless the defect keeps it.
    pub(crate) fn barrier(&self, stream: NativeStream) -> Result<()> {
        let inner = self.inner()?;
        let mut state = lock(&self.state);
        *state = State { calls: state.calls + 1, ..State::default() };
        let forgotten = self.defect == FailureForgotten && Host::failure(inner).is_some();
        if forgotten || self.defect == BarrierSkipped {
            state.at_once = true;
            return Ok(());
        }
        drop(state);
        // SAFETY: a barrier has no memory.
        unsafe { Host::barrier(inner, stream) }
    }

    pub(crate) fn batch_begin(&self) {
        lock(&self.state).batch = Some(Vec::new());
    }

    pub(crate) fn batch_end(&self) -> Result<()> {
        let batch = lock(&self.state).batch.take();
        self.post(batch.unwrap_or_default())
    }

    /// The group's failure as the defect tells it.
    pub(crate) fn failure(&self) -> Option<Error> {
        let failure = Host::failure(self.inner.as_ref()?)?;
        match self.defect {
            FailureForgotten | LateRankWrites => None,
            FailureNotNamed => {
                Some(Error::new(ErrorKind::GroupBroken, "make a call", "something failed"))
            }
            _ => Some(self.told(failure)),
        }
    }

    pub(crate) fn message(&self, message: Message) -> Result<()> {
        let mut state = lock(&self.state);
        if let Some(batch) = &mut state.batch {
            batch.push(message);
            return Ok(());
        }
        drop(state);
        self.post(vec![message])
    }

    /// Passes messages on, as one batch unless the defect has it otherwise.
    fn post(&self, mut messages: Vec<Message>) -> Result<()> {
        let mut state = lock(&self.state);
        *state = State { calls: state.calls + 1, ..State::default() };
        match self.defect {
            BatchReceivesReversed if messages.iter().all(|it| !it.sends) => messages.reverse(),
            BatchOneAfterTheOther => {
                state.later = messages.drain(1..).collect();
            }
            MessagesToItselfSkipped => messages.retain(|it| it.peer != self.rank),
            RankAsPeer => {
                for it in messages.iter_mut().filter(|it| !it.sends && self.ranks > 2) {
                    it.peer = (self.rank + 1) % self.ranks;
                }
            }
            MessageTakesTheOneBefore => {
                for it in messages.iter_mut().filter(|it| it.sends) {
                    let before = lock(&self.sent).insert(it.peer, read(it.memory));
                    if let Some(before) = before.filter(|before| before.len() == it.memory.bytes) {
                        // Never freed: nobody knows when it has been read.
                        let before = before.leak();
                        it.memory.address = Address::from_ptr(before.as_mut_ptr());
                    }
                }
            }
            ZeroElementsSkipped => messages.retain(|it| it.elements.count > 0),
            ReceivesEndAtOnce => state.at_once = messages.iter().any(|it| !it.sends),
            SendsEndAtOnce => {
                state.at_once = messages.iter().any(|it| it.sends);
                for it in messages.iter_mut().filter(|it| it.sends) {
                    // A copy that is never freed, for the same reason.
                    let copy = read(it.memory).leak();
                    it.memory.address = Address::from_ptr(copy.as_mut_ptr());
                }
            }
            _ => {}
        }
        drop(state);
        self.pass_on(&messages)
    }

    fn pass_on(&self, messages: &[Message]) -> Result<()> {
        let inner = self.inner()?;
        if messages.is_empty() {
            return Ok(());
        }
        Host::batch_begin(inner)?;
        let stream = NativeStream(0);
        let passed = messages.iter().try_for_each(|it| {
            let (memory, elements) = (&it.memory, self.lie(it.elements));
            match it.sends {
                // SAFETY: what aether promised for this wrapper's call, in the same words.
                true => unsafe { Host::send(inner, memory, elements, it.peer, stream) },
                // SAFETY: as above.
                false => unsafe { Host::recv(inner, memory, elements, it.peer, stream) },
            }
        });
        passed.and(Host::batch_end(inner))
    }

    /// Makes the result wrong, if that is the defect.
    fn spoil(&self, call: &Call) {
        let brought = self.board.call(call.number, self.ranks);
        let Some(dst) = call.dst else { return };
        let (start, end) = (dst.address.addr(), dst.address.addr() + dst.bytes);
        let inside = |it: Range| {
            let from = it.address.addr();
            it.bytes > 0 && from < end && start < from + it.bytes
        };
        let in_place = call.src.is_some_and(inside);
        let ended = Ended {
            operation: &call.operation,
            dtype: call.dtype,
            rank: self.rank,
            brought: &brought,
            right: &read(dst),
            in_place,
            address: start,
            call: call.number,
            checked: self.checked,
        };
        if let Some(wrong) = ended.wrong(self.defect) {
            let most = wrong.len().min(dst.bytes);
            write(dst.address, wrong.get(..most).unwrap_or_default());
        }
        match (self.defect, call.src) {
            (WritesBehindTheEnd, _) => write(dst.address.add(dst.bytes), &[0]),
            (ZeroElementsWriteOne, _) if dst.bytes == 0 => write(dst.address, &[0]),
            (WritesTheSource, Some(src)) if src.bytes > 0 && !in_place => {
                write(src.address, &[0x77]);
            }
            (InPlaceScatterSpills, Some(src)) if in_place && src.bytes > dst.bytes => {
                write(src.address, &vec![0x77; start - src.address.addr()]);
                write(
                    dst.address.add(dst.bytes),
                    &vec![0x77; src.address.addr() + src.bytes - end],
                );
            }
            _ => {}
        }
    }

    /// The error as the defect tells it.
    fn told(&self, error: Error) -> Error {
        let again = |kind, reason: &str| {
            Error::new(kind, error.attempted().to_owned(), reason).about_ranks(error.ranks())
        };
        match self.defect {
            RanksNotNamed => error.about_ranks([]),
            WordsMissing => again(error.kind(), "the call failed"),
            CircleNotSeen if error.kind() == ErrorKind::Cycle => {
                again(ErrorKind::DeadlineExceeded, "the deadline passed")
            }
            _ => error,
        }
    }

    pub(crate) fn issued(&self) -> Result<bool> {
        let inner = self.inner()?;
        let state = lock(&self.state);
        if state.at_once {
            return Ok(true);
        }
        drop(state);
        match Host::issued(inner) {
            Ok(false) => return Ok(false),
            Ok(true) => {}
            Err(_) if self.defect == FailureReportedAsSuccess => return Ok(true),
            Err(error) => {
                lock(&FAILED).get_or_insert_default().insert(self.device);
                return Err(self.told(error));
            }
        }
        let mut state = lock(&self.state);
        if let Some(next) = state.later.pop_front() {
            drop(state);
            self.pass_on(&[next])?;
            return Ok(false);
        }
        let call = state.call.take();
        drop(state);
        if let Some(call) = call {
            self.spoil(&call);
        }
        Ok(true)
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        let Some(inner) = self.inner.take() else { return };
        match self.defect {
            DepartureUnseen => std::mem::forget(inner),
            DepartureBreaks => {
                let why = Error::new(ErrorKind::RankDied, "leave", "a rank left");
                // Nobody can be told here if it can't be done.
                drop(Host::abort(&inner, &why));
            }
            _ => {}
        }
    }
}
