//! What the cases run on: a driver's groups without the driver's type.
//!
//! The cases are compiled once, and reach groups through [`Members`]. A test of the suite wraps a
//! [`Subject`] to break what lies between the caller and the driver.

use std::sync::Arc;
use std::time::Duration;

use aether_collective::{Capabilities, Group, GroupConfig, GroupSet, ReduceOp, Request, Work};
use aether_collective::{CollectiveDriver, Driver};
use aether_core::{DType, Device, Error, Result, View, ViewMut};

use super::CollectiveFixture;
use crate::checked::Checked;

/// A driver under test, with everything that the cases ask of it.
pub trait Subject: Send + Sync {
    /// The fixture's answer to [`CollectiveFixture::devices`].
    fn devices(&self, count: usize) -> Option<Vec<Device>>;
    /// The fixture's answer to [`CollectiveFixture::watched`].
    fn watched(&self, count: usize) -> Option<(Arc<Checked>, Vec<Device>)>;
    /// The fixture's answer to [`CollectiveFixture::config`].
    fn config(&self) -> GroupConfig;
    /// The fixture's answer to [`CollectiveFixture::deadline`].
    fn deadline(&self) -> Duration;
    /// The fixture's answer to [`CollectiveFixture::patience`].
    fn patience(&self) -> Duration;
    /// What the driver can do, and where it differs.
    fn capabilities(&self) -> Capabilities;
    /// Whether the driver knows the type.
    fn knows(&self, dtype: DType) -> bool;
    /// Whether the driver reduces the type so.
    fn reduces(&self, dtype: DType, op: ReduceOp) -> bool;
    /// All devices as one group, for one caller.
    ///
    /// # Errors
    /// Those of [`GroupSet::join_with`].
    fn join_all(&self, devices: &[Device], config: &GroupConfig) -> Result<Box<dyn Members>>;
    /// One device's membership of a group.
    ///
    /// # Errors
    /// Those of [`Group::join_with`].
    fn join(
        &self,
        devices: &[Device],
        device: &Device,
        config: &GroupConfig,
    ) -> Result<Box<dyn Members>>;
}

/// Members of one group that one caller holds: one, or all of them. Lists are by rank.
pub trait Members: Send {
    /// Makes a call of every member and waits for its end.
    ///
    /// # Errors
    /// Those of [`Group::run`].
    fn run(&mut self, requests: Vec<Request<'_>>) -> Result<()>;

    /// Makes a call of every member and returns at once.
    ///
    /// # Errors
    /// Those of [`Group::submit`].
    fn submit(&mut self, requests: Vec<Request<'_>>) -> Result<Work>;

    /// Makes the typed call [`Group::all_reduce`] of every member, by Sum.
    ///
    /// # Errors
    /// Those of [`Group::all_reduce`].
    fn sum_views(
        &mut self,
        src: &[View<'_, f32, 2>],
        dst: &mut [ViewMut<'_, f32, 2>],
    ) -> Result<()>;

    /// The group's failure, if it has failed.
    ///
    /// # Errors
    /// Those of [`Group::check`].
    fn check(&self) -> Result<()>;

    /// Breaks the group.
    fn abort(&mut self, why: &Error);

    /// Leaves the group in order.
    ///
    /// # Errors
    /// Those of [`Group::finish`].
    fn finish(self: Box<Self>) -> Result<()>;
}

/// The subject that a fixture names.
#[derive(Clone, Debug)]
pub struct Fixed<F>(pub F);

impl<F: CollectiveFixture> Subject for Fixed<F> {
    fn devices(&self, count: usize) -> Option<Vec<Device>> {
        self.0.devices(count)
    }

    fn watched(&self, count: usize) -> Option<(Arc<Checked>, Vec<Device>)> {
        self.0.watched(count)
    }

    fn config(&self) -> GroupConfig {
        self.0.config()
    }

    fn deadline(&self) -> Duration {
        self.0.deadline()
    }

    fn patience(&self) -> Duration {
        self.0.patience()
    }

    fn capabilities(&self) -> Capabilities {
        F::Driver::capabilities()
    }

    fn knows(&self, dtype: DType) -> bool {
        F::Driver::elements(dtype, dtype.size() as u64).is_ok()
    }

    fn reduces(&self, dtype: DType, op: ReduceOp) -> bool {
        F::Driver::reduces(dtype, op)
    }

    fn join_all(&self, devices: &[Device], config: &GroupConfig) -> Result<Box<dyn Members>> {
        Ok(Box::new(GroupSet::<F::Driver>::join_with(devices, config)?))
    }

    fn join(
        &self,
        devices: &[Device],
        device: &Device,
        config: &GroupConfig,
    ) -> Result<Box<dyn Members>> {
        Ok(Box::new(Group::<F::Driver>::join_with(devices, device, config)?))
    }
}

impl<D: CollectiveDriver> Members for GroupSet<D> {
    fn run(&mut self, requests: Vec<Request<'_>>) -> Result<()> {
        GroupSet::run(self, requests)
    }

    fn submit(&mut self, requests: Vec<Request<'_>>) -> Result<Work> {
        GroupSet::submit(self, requests)
    }

    fn sum_views(
        &mut self,
        src: &[View<'_, f32, 2>],
        dst: &mut [ViewMut<'_, f32, 2>],
    ) -> Result<()> {
        self.all_reduce(src, dst, ReduceOp::Sum)
    }

    fn check(&self) -> Result<()> {
        GroupSet::check(self)
    }

    fn abort(&mut self, why: &Error) {
        GroupSet::abort(self, why);
    }

    fn finish(self: Box<Self>) -> Result<()> {
        GroupSet::finish(*self)
    }
}

impl<D: CollectiveDriver> Members for Group<D> {
    fn run(&mut self, requests: Vec<Request<'_>>) -> Result<()> {
        requests.into_iter().try_for_each(|it| Group::run(self, it))
    }

    fn submit(&mut self, mut requests: Vec<Request<'_>>) -> Result<Work> {
        // One member makes one call.
        Group::submit(self, requests.pop().unwrap_or(Request::Barrier))
    }

    fn sum_views(
        &mut self,
        src: &[View<'_, f32, 2>],
        dst: &mut [ViewMut<'_, f32, 2>],
    ) -> Result<()> {
        let mut each = src.iter().zip(dst);
        each.try_for_each(|(src, dst)| self.all_reduce(src, dst, ReduceOp::Sum))
    }

    fn check(&self) -> Result<()> {
        Group::check(self)
    }

    fn abort(&mut self, why: &Error) {
        Group::abort(self, why);
    }

    fn finish(self: Box<Self>) -> Result<()> {
        Group::finish(*self)
    }
}
