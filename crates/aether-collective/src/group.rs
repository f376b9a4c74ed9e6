//! One member of a group, for one thread or one process a rank.

mod batch;
mod typed;

use std::fmt;

use aether_core::{Device, Error, ErrorKind, Result};

use crate::formation::{self, Place};
use crate::member::{Member, check_supported};
use crate::rendezvous::{self, Rendezvous};
use crate::set::{run_all, submit_all};
use crate::{CollectiveDriver, CommunicationId, GroupConfig, Request, Work};

pub use batch::Batch;

/// One member of a group of devices: for one thread, or one process, a rank.
///
/// A call by its plain name blocks and takes any view; its `_async` twin takes views over chunks and
/// returns [`Work`] at once. Every rank makes the same calls in the same order. A refused call queues
/// nothing.
///
/// Dropping the member leaves the group, after the calls that it made; ranks that still wait for it
/// get an error.
pub struct Group<D: CollectiveDriver> {
    member: Member<D>,
    /// Goes after the member, so that a new group of the same devices finds this one gone.
    _place: Option<Place>,
}

impl<D: CollectiveDriver> Group<D> {
    /// Joins the group of these devices of this process as `device`, and waits for the others. The
    /// rank is the device's position among the sorted devices.
    ///
    /// # Errors
    /// `Empty`, `DuplicateDevice`, `NotMember` if the device is not in the list; `DeadlineExceeded`
    /// naming the absent ranks; `InvalidArgument` if a living group of the device has the same devices
    /// and name; `Unsupported` if the driver doesn't run on the device.
    pub fn join(devices: &[Device], device: &Device) -> Result<Self> {
        Self::join_with(devices, device, &GroupConfig::default())
    }

    /// As [`Group::join`], configured. The configuration is the same on every rank.
    ///
    /// # Errors
    /// Those of [`Group::join`].
    pub fn join_with(devices: &[Device], device: &Device, config: &GroupConfig) -> Result<Self> {
        let devices = formation::by_rank(devices)?;
        let rank = rank_of(&devices, device)?;
        // None of the others would come, so nobody has to wait for them.
        devices.iter().try_for_each(check_supported::<D>)?;
        let place = formation::join::<D>(&devices, &[rank], config)?;
        let unique = D::group_id(place.id())?;
        let member = Member::join(place.id(), unique, device, rank, config)?;
        Ok(Self { member, _place: Some(place) })
    }

    /// Joins the group of all processes, or threads, that meet at the rendezvous, which says who has
    /// which rank.
    ///
    /// # Errors
    /// What the rendezvous says, `DeadlineExceeded` naming the absent ranks, and the driver's refusal.
    pub fn join_at(
        rendezvous: &dyn Rendezvous,
        device: &Device,
        config: &GroupConfig,
    ) -> Result<Self> {
        check_supported::<D>(device)?;
        let met = rendezvous::meet::<D>(rendezvous, device, config)?;
        let member = Member::join(&met.id, met.unique, device, rendezvous.rank(), config)?;
        Ok(Self { member, _place: None })
    }

    /// This member's rank.
    pub fn rank(&self) -> usize {
        self.member.rank
    }

    /// How many ranks there are: the world size.
    #[doc(alias = "world_size")]
    #[doc(alias = "size")]
    pub fn ranks(&self) -> usize {
        self.member.ranks
    }

    /// This member's device.
    pub fn device(&self) -> &Device {
        &self.member.device
    }

    /// The group's identity: its devices by rank, its name, its generation.
    pub fn id(&self) -> &CommunicationId {
        &self.member.id
    }

    /// The group's failure, if it has failed.
    ///
    /// # Errors
    /// `GroupBroken`, naming the first failure.
    pub fn check(&self) -> Result<()> {
        self.member.check_alive("check a group")
    }

    /// Makes an untyped call and waits for its end.
    ///
    /// # Errors
    /// Every refusal and failure of aether's semantics.
    pub fn run(&mut self, request: Request<'_>) -> Result<()> {
        run_all(std::slice::from_ref(&self.member), std::iter::once(request))
    }

    /// Makes an untyped call and returns at once. The spans belong to chunks.
    ///
    /// # Errors
    /// Every refusal of aether's semantics; `BorrowedMemory`.
    pub fn submit(&mut self, request: Request<'_>) -> Result<Work> {
        submit_all(std::slice::from_ref(&self.member), std::iter::once(request))
    }

    /// Breaks the group because of `why`: every rank's pending calls fail with it, where the driver can
    /// abort, and later ones are refused.
    pub fn abort(&mut self, why: &Error) {
        self.member.abort(why);
    }

    /// Waits for this member's calls and leaves the group in order. Unlike a drop, it tells a failure
    /// that this rank has not seen yet.
    ///
    /// # Errors
    /// The group's failure, if it has failed.
    pub fn finish(self) -> Result<()> {
        self.member.finish()
    }
}

impl<D: CollectiveDriver> fmt::Debug for Group<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} ({}) of {}", self.rank(), self.device(), self.id())
    }
}

fn rank_of(devices: &[Device], device: &Device) -> Result<usize> {
    devices.iter().position(|it| it == device).ok_or_else(|| {
        let reason = "the device is not in the list of the group's devices";
        Error::new(ErrorKind::NotMember, "join a group", reason).on(device)
    })
}
