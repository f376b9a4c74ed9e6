//! What is left when a group has failed.

use aether_collective::{ReduceOp, Request};
use aether_core::{DType, Device, Error, ErrorKind, Result, fill};

use super::bench::{Bench, Form, Step, expect, expect_kind};
use super::buffer::{Buffer, numbers};
use super::calls::{brought, same, verify};
use super::member::{Call, Ended, Member, all_fail, ends};
use super::operation::Operation;

super::theme! {
    "after_failure":
    the_group_refuses_and_names_the_first_failure,
    every_pending_call_fails,
    unwritten_ranges_give_the_error_until_overwritten,
    a_later_call_that_reads_them_is_refused,
    nobody_writes_any_more,
    who_was_not_told_is_told_at_the_end,
    a_new_group_forms_from_the_survivors,
    a_new_group_forms_from_all_devices,
}

const TYPE: DType = DType::F32;
const COUNT: usize = 8;

/// Three members, of which the last never comes, and the buffers of all.
struct Scene {
    devices: Vec<Device>,
    members: Vec<Member>,
    buffers: Vec<Buffer>,
}

impl Scene {
    fn new(bench: &Bench<'_>) -> Step<Self> {
        bench.needs(TYPE, ReduceOp::Sum)?;
        let devices = bench.devices(3)?;
        let members = bench.members(&devices, &bench.hasty())?;
        let mut buffers = Vec::new();
        for (rank, device) in devices.iter().enumerate() {
            buffers.push(Buffer::new(device, TYPE, &numbers(TYPE, COUNT, rank, 40), 0)?);
        }
        Ok(Self { devices, members, buffers })
    }

    /// Ranks 0 and 1 reduce in place, and wait for the third.
    fn begin(&mut self) -> Step<Vec<Result<Call>>> {
        let mut works = Vec::new();
        for (member, buffer) in self.members.iter_mut().zip(&mut self.buffers).take(2) {
            let dst = buffer.span_mut()?;
            let request = Request::AllReduce { src: None, dst, op: ReduceOp::Sum };
            works.push(member.submit(vec![request]));
        }
        Ok(works)
    }

    /// The same, until it has failed; gives the error of rank 0.
    fn fail(&mut self, bench: &Bench<'_>) -> Step<Error> {
        let works = self.begin()?;
        let what = "a call to which rank 2 does not come";
        let errors = all_fail(&works, bench.patience(), ErrorKind::DeadlineExceeded, what)?;
        errors.into_iter().next().ok_or_else(|| super::Stop::failed("no outcome"))
    }
}

fn the_group_refuses_and_names_the_first_failure(bench: &Bench<'_>) -> Step {
    let mut scene = Scene::new(bench)?;
    let first = scene.fail(bench)?;
    for (rank, member) in scene.members.iter_mut().enumerate() {
        for _ in 0..2 {
            let outcome = member.submit(vec![Request::Barrier]).and_then(|it| it.wait());
            let what = format!("a call of rank {rank} after the failure");
            let error = expect_kind(outcome, ErrorKind::GroupBroken, &what)?;
            expect(error.to_string().contains(first.reason()), || {
                format!("{what} does not name the first failure: {error}")
            })?;
            expect(error.ranks() == [2], || format!("{what} names {:?}", error.ranks()))?;
        }
    }
    Ok(())
}

/// Calls that wait behind the one that failed.
fn every_pending_call_fails(bench: &Bench<'_>) -> Step {
    let mut scene = Scene::new(bench)?;
    let mut works = scene.begin()?;
    for _ in 0..3 {
        for member in scene.members.iter_mut().take(2) {
            works.push(member.submit(vec![Request::Barrier]));
        }
    }
    for Ended { who, outcome } in ends(&works, bench.patience())? {
        expect(outcome.is_err(), || format!("{who} went well with or behind one that failed"))?;
    }
    Ok(())
}

fn unwritten_ranges_give_the_error_until_overwritten(bench: &Bench<'_>) -> Step {
    let mut scene = Scene::new(bench)?;
    let first = scene.fail(bench)?;
    for (rank, buffer) in scene.buffers.iter_mut().take(2).enumerate() {
        let found = buffer.chunk.to_vec::<u8>();
        let what = format!("a read of what the failed call left in rank {rank}'s destination");
        let error = expect_kind(found, first.kind(), &what)?;
        expect(error.reason() == first.reason(), || {
            format!("{what} tells another error than the call: {error}, and not {first}")
        })?;
        // A part that is overwritten can be read, and the rest still can't.
        let (start, end) = (buffer.range.start, buffer.range.end);
        fill(&mut buffer.chunk.span_of_mut(start..start + 16, TYPE)?, 1f32)?;
        let half = buffer.chunk.span_of(start..start + 16, TYPE)?.check_readable();
        if let Err(error) = half {
            let what = format!("the overwritten part of rank {rank}'s destination");
            return Err(super::Stop::failed(format!("{what} still gives {error}")));
        }
        let rest = buffer.chunk.span_of(start + 16..end, TYPE)?.check_readable();
        let what = format!("the part of rank {rank}'s destination that was not overwritten");
        expect_kind(rest, first.kind(), &what)?;
        let all = buffer.chunk.to_vec::<u8>();
        expect_kind(all, first.kind(), &format!("a read of both parts of rank {rank}'s"))?;
        fill(&mut buffer.chunk.span_of_mut(start + 16..end, TYPE)?, 1f32)?;
        let ones: Vec<u64> = vec![u64::from(1f32.to_bits()); COUNT];
        let what = format!("rank {rank}'s destination, all of it overwritten");
        same(TYPE, &buffer.read()?, &super::buffer::of_bits(TYPE, &ones))
            .map_err(|it| it.during(what))?;
    }
    // What the absent rank holds was never touched.
    same(TYPE, &scene.buffers[2].read()?, &numbers(TYPE, COUNT, 2, 40))
        .map_err(|it| it.during("the buffer of rank 2, which made no call"))
}

fn a_later_call_that_reads_them_is_refused(bench: &Bench<'_>) -> Step {
    let mut scene = Scene::new(bench)?;
    let first = scene.fail(bench)?;
    let survivors = &scene.devices[..2];
    let mut team = bench.team(Form::OneCaller, survivors, &bench.config())?;
    let mut targets = Vec::new();
    for device in survivors {
        targets.push(Buffer::garbage(device, TYPE, COUNT, 0)?);
    }
    let mut requests = Vec::new();
    for (src, dst) in scene.buffers.iter().zip(&mut targets) {
        let (src, dst) = (Some(src.span()?), dst.span_mut()?);
        requests.push(Request::AllReduce { src, dst, op: ReduceOp::Sum });
    }
    let works = team.submit(requests);
    all_fail(&works, bench.patience(), first.kind(), "a call that reads what a failed one left")?;
    // A collective that writes all of it heals it.
    let mut requests = Vec::new();
    for (src, dst) in targets.iter().zip(&mut scene.buffers) {
        let (src, dst) = (Some(src.span()?), dst.span_mut()?);
        requests.push(Request::AllReduce { src, dst, op: ReduceOp::Max });
    }
    team.all(requests)?;
    for (rank, (healed, from)) in scene.buffers.iter().zip(&targets).enumerate() {
        let what = format!("rank {rank}'s buffer, written by a call after the failed one");
        same(TYPE, &healed.read()?, &from.read()?).map_err(|it| it.during(what))?;
    }
    Ok(())
}

fn nobody_writes_any_more(bench: &Bench<'_>) -> Step {
    let mut scene = Scene::new(bench)?;
    scene.fail(bench)?;
    for buffer in scene.buffers.iter_mut().take(2) {
        fill(&mut buffer.span_mut()?, 3f32)?;
    }
    // The rank that was absent comes after all.
    let (member, buffer) = (&mut scene.members[2], &mut scene.buffers[2]);
    let dst = buffer.span_mut()?;
    let late = member.submit(vec![Request::AllReduce { src: None, dst, op: ReduceOp::Sum }]);
    let what = "the call of rank 2, which comes too late";
    all_fail(&[late], bench.patience(), ErrorKind::GroupBroken, what)?;
    std::thread::sleep(std::time::Duration::from_millis(20));
    let threes = super::buffer::of_bits(TYPE, &[u64::from(3f32.to_bits()); COUNT]);
    for (rank, buffer) in scene.buffers.iter().take(2).enumerate() {
        let what = format!("rank {rank}'s memory after the failure");
        same(TYPE, &buffer.read()?, &threes).map_err(|it| it.during(what))?;
    }
    Ok(())
}

fn who_was_not_told_is_told_at_the_end(bench: &Bench<'_>) -> Step {
    let mut scene = Scene::new(bench)?;
    let first = scene.fail(bench)?;
    let absent = scene.members.pop().ok_or_else(|| super::Stop::failed("no member"))?;
    let error = expect_kind(absent.finish(), first.kind(), "finish of rank 2, which was absent")?;
    expect(error.reason() == first.reason(), || {
        format!("finish of rank 2 tells another failure than the calls: {error}, and not {first}")
    })
}

fn works_again(bench: &Bench<'_>, devices: &[Device]) -> Step {
    for form in Form::ALL {
        let mut team = bench.team(form, devices, &bench.config())?;
        let operation = Operation::AllReduce(ReduceOp::Sum);
        let sources =
            brought(&operation, devices.len(), 19, |count, rank| numbers(TYPE, count, rank, 41));
        verify(&mut team, devices, &operation, TYPE, &sources, |_| 0)?;
        team.finish()?;
    }
    Ok(())
}

fn a_new_group_forms_from_the_survivors(bench: &Bench<'_>) -> Step {
    let mut scene = Scene::new(bench)?;
    // The third is gone, and the others still hold the broken group.
    drop(scene.members.pop());
    let works = scene.begin()?;
    for Ended { who, outcome } in ends(&works, bench.patience())? {
        expect(outcome.is_err(), || format!("{who} went well without rank 2"))?;
    }
    works_again(bench, &scene.devices[..2])
}

fn a_new_group_forms_from_all_devices(bench: &Bench<'_>) -> Step {
    let mut scene = Scene::new(bench)?;
    scene.fail(bench)?;
    scene.members.clear();
    works_again(bench, &scene.devices)
}
