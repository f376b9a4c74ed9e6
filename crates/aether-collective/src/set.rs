//! All members of a group for one caller.

mod agree;
mod overlap;
#[cfg(test)]
mod tests;
mod typed;

use std::fmt;

use aether_core::{Completion, Device, Error, ErrorKind, InHand, Result, Span};
use smallvec::SmallVec;

use crate::compose::compose;
use crate::formation::{self, Place};
use crate::member::{Member, check_supported};
use crate::plan::Plan;
use crate::{CollectiveDriver, CommunicationId, GroupConfig, Request, Work};

/// All members of a group for one caller. Buffers come in rank order, which
/// [`GroupSet::devices`] tells.
///
/// Everything of all members is checked before anything of any is queued.
pub struct GroupSet<D: CollectiveDriver> {
    members: Vec<Member<D>>,
    /// The devices by rank.
    devices: Vec<Device>,
    /// Goes after the members.
    place: Place,
}

/// A request for each member, by rank.
pub(crate) type Requests<'a> = SmallVec<[Request<'a>; 8]>;

impl<D: CollectiveDriver> GroupSet<D> {
    /// Joins all devices as one group. A rank is the device's position among the sorted devices, whatever
    /// the order of the list.
    ///
    /// # Errors
    /// `Empty`, `DuplicateDevice`; `InvalidArgument` if a living group has the same devices and name;
    /// `Unsupported` if the driver doesn't run on one of them.
    pub fn join(devices: &[Device]) -> Result<Self> {
        Self::join_with(devices, &GroupConfig::default())
    }

    /// As [`GroupSet::join`], configured.
    ///
    /// # Errors
    /// Those of [`GroupSet::join`].
    pub fn join_with(devices: &[Device], config: &GroupConfig) -> Result<Self> {
        let devices = formation::by_rank(devices)?;
        devices.iter().try_for_each(check_supported::<D>)?;
        let ranks: Vec<usize> = (0..devices.len()).collect();
        let place = formation::join::<D>(&devices, &ranks, config)?;
        let unique = D::group_id(place.id())?;
        let members = Member::join_all(place.id(), unique, &devices, config)?;
        Ok(Self { members, devices, place })
    }

    /// The devices, by rank.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// How many ranks there are: the world size.
    #[doc(alias = "world_size")]
    #[doc(alias = "size")]
    pub fn ranks(&self) -> usize {
        self.members.len()
    }

    /// The group's identity: its devices by rank, its name, its generation.
    pub fn id(&self) -> &CommunicationId {
        self.place.id()
    }

    /// The group's failure, if it has failed.
    ///
    /// # Errors
    /// `GroupBroken`, naming the first failure.
    pub fn check(&self) -> Result<()> {
        self.members.iter().try_for_each(|it| it.check_alive("check a group"))
    }

    /// Makes an untyped call of every member, by rank, and waits for its end.
    ///
    /// # Errors
    /// Every refusal and failure of aether's semantics.
    pub fn run<'a>(&mut self, requests: impl IntoIterator<Item = Request<'a>>) -> Result<()> {
        run_all(&self.members, collected(requests).into_iter())
    }

    /// Makes an untyped call of every member, by rank, and returns at once. The spans belong to
    /// chunks.
    ///
    /// # Errors
    /// Every refusal of aether's semantics; `BorrowedMemory`.
    pub fn submit<'a>(&mut self, requests: impl IntoIterator<Item = Request<'a>>) -> Result<Work> {
        submit_all(&self.members, collected(requests).into_iter())
    }

    /// Breaks the group because of `why`: pending calls fail with it, where the driver can abort, and
    /// later ones are refused.
    pub fn abort(&mut self, why: &Error) {
        self.members.iter().for_each(|it| it.abort(why));
    }

    /// Waits for all calls and leaves the group in order.
    ///
    /// # Errors
    /// The group's failure, if it has failed.
    pub fn finish(self) -> Result<()> {
        self.members.iter().map(Member::finish).fold(Ok(()), Result::and)
    }
}

impl<D: CollectiveDriver> fmt::Debug for GroupSet<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.devices).finish()
    }
}

/// The requests, whose number has to be known before the first is looked at.
fn collected<'a>(requests: impl IntoIterator<Item = Request<'a>>) -> Requests<'a> {
    requests.into_iter().collect()
}

/// Makes the calls of these members of one group and waits for their end, however it comes.
pub(crate) fn run_all<'a, D: CollectiveDriver>(
    members: &[Member<D>],
    requests: impl ExactSizeIterator<Item = Request<'a>>,
) -> Result<()> {
    let mut plans = Plans::new();
    plan_all(members, requests, &mut plans)?;
    if let Some(outcome) = run_in_hand(members, &plans) {
        return outcome;
    }
    plans.iter().try_for_each(Member::check_memory)?;
    // SAFETY: `Queued` waits for the end of everything that was queued before this function returns
    // or unwinds, and the requests' spans outlive the function.
    let queued = unsafe { enqueue_all(members, &mut plans) }?;
    queued.wait()
}

/// Makes the calls of these members of one group and returns at once.
pub(crate) fn submit_all<'a, D: CollectiveDriver>(
    members: &[Member<D>],
    requests: impl ExactSizeIterator<Item = Request<'a>>,
) -> Result<Work> {
    let mut plans = Plans::new();
    plan_all(members, requests, &mut plans)?;
    plans.iter().try_for_each(Member::check_memory)?;
    plans.iter().try_for_each(Member::check_tracked)?;
    // SAFETY: every span is tracked, as was just checked.
    let queued = unsafe { enqueue_all(members, &mut plans) }?;
    Ok(queued.into_work())
}

type Plans<'a, D> = SmallVec<[Plan<'a, D>; 4]>;

/// How many bytes the calls of one caller touch at most if they are made in hand: for more, it pays to
/// have the workers help.
const IN_HAND: usize = 1 << 20;

/// Carries the calls out in the caller's hand, and tells their outcome; none if they are large or
/// something is before them, and they have to be queued.
fn run_in_hand<D: CollectiveDriver>(
    members: &[Member<D>],
    plans: &Plans<'_, D>,
) -> Option<Result<()>> {
    let reads = plans.iter().flat_map(|it| &it.reads).map(Span::bytes);
    let writes = plans.iter().flat_map(|it| &it.writes).map(|it| it.as_span().bytes());
    if reads.chain(writes).fold(0, usize::saturating_add) > IN_HAND {
        return None;
    }
    let ranks = members.first().map_or(0, |it| it.ranks);
    let mut hand = InHand::new((ranks + 1).saturating_sub(members.len()));
    for (member, plan) in members.iter().zip(plans) {
        // SAFETY: `hand` waits for the end of every call before this function returns or unwinds, and
        // the requests' spans outlive the plans.
        if !unsafe { member.take_in_hand(plan, &mut hand) } {
            return None;
        }
    }
    Some(hand.wait())
}

/// Checks everything of every member that its memory's records don't tell. Plans are large, so they stay
/// where the caller has them.
fn plan_all<'a, D: CollectiveDriver>(
    members: &[Member<D>],
    requests: impl ExactSizeIterator<Item = Request<'a>>,
    plans: &mut Plans<'a, D>,
) -> Result<()> {
    if requests.len() != members.len() {
        let reason = format!("{} parts were given for {} members", requests.len(), members.len());
        return Err(Error::new(ErrorKind::SizeMismatch, "make a collective call", reason));
    }
    for (member, request) in members.iter().zip(requests) {
        member.check_alive(request.operation().name())?;
        plans.push(member.asker().plan(request)?);
    }
    agree::check(members, plans)?;
    overlap::check(plans)?;
    members.iter().zip(plans).try_for_each(|(member, plan)| compose(plan, member))
}

/// Puts the calls on the members' streams.
///
/// # Errors
/// Nothing is queued; or all that was has ended, and the group is broken.
///
/// # Safety
/// Spans that are not tracked outlive what is returned, or its work is waited for.
unsafe fn enqueue_all<D: CollectiveDriver>(
    members: &[Member<D>],
    plans: &mut Plans<'_, D>,
) -> Result<Queued> {
    let mut queued = Queued { parts: SmallVec::new() };
    for (member, plan) in members.iter().zip(plans) {
        // SAFETY: the caller keeps what is not tracked until the work has ended; if a later member
        // fails, dropping `queued` waits for those before it.
        match unsafe { member.enqueue(plan) } {
            Ok(part) => queued.parts.push(part),
            Err(error) => {
                // Those before it wait for this rank already: without it the call can't go on.
                if !queued.parts.is_empty() {
                    members.iter().for_each(|it| it.abort(&error));
                }
                return Err(error);
            }
        }
    }
    Ok(queued)
}

/// What was queued, and is waited for if it is dropped: borrowed memory must not go before its work.
struct Queued {
    parts: SmallVec<[Completion; 4]>,
}

impl Queued {
    fn wait(self) -> Result<()> {
        self.parts.iter().map(Completion::wait).fold(Ok(()), Result::and)
    }

    fn into_work(mut self) -> Work {
        Work::new(std::mem::take(&mut self.parts))
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        // The outcome was told already, or an earlier failure is.
        self.parts.iter().for_each(|it| drop(it.wait()));
    }
}
