//! Ranks that make different calls are told which, and who made them.

use aether_collective::{ReduceOp, Request};
use aether_core::{DType, ErrorKind, Result, SpanMut};

use super::bench::{Bench, Form, Step, Team, expect, expect_kind};
use super::buffer::Buffer;
use super::member::{all_fail, outcomes};

super::theme! {
    "disagreement":
    about_the_operation,
    about_the_count,
    about_the_type,
    about_the_reduction,
    about_the_root,
    about_the_sequence,
    about_the_lists_of_counts,
    in_checked_mode_no_call_completes,
}

const RANKS: usize = 3;
const TYPE: DType = DType::F32;
/// The rank that differs: neither the first nor the last.
const ODD: usize = 1;

/// What each rank calls, on one buffer.
struct Calls<'c> {
    /// The elements of a rank's buffer.
    count: fn(usize) -> usize,
    dtype: fn(usize) -> DType,
    request: for<'a> fn(usize, SpanMut<'a>) -> Request<'a>,
    /// What the error has to say of either call.
    words: [&'c str; 2],
}

impl Default for Calls<'_> {
    fn default() -> Self {
        Self {
            count: |_| 6,
            dtype: |_| TYPE,
            request: |_, dst| Request::AllReduce { src: None, dst, op: ReduceOp::Sum },
            words: [""; 2],
        }
    }
}

/// Has the ranks make the calls, in both forms, with and without checked mode.
fn disagree(bench: &Bench<'_>, calls: &Calls<'_>) -> Step {
    bench.needs(TYPE, ReduceOp::Sum)?;
    let devices = bench.devices(RANKS)?;
    for (form, checked) in Form::ALL.into_iter().flat_map(|form| [(form, false), (form, true)]) {
        let mut team = bench.team(form, &devices, &bench.hasty().with_checked(checked))?;
        let mut buffers = Vec::new();
        for (rank, device) in devices.iter().enumerate() {
            let (dtype, count) = ((calls.dtype)(rank), (calls.count)(rank));
            buffers.push(Buffer::garbage(device, dtype, count, 0)?);
        }
        let mut requests = Vec::new();
        for (rank, buffer) in buffers.iter_mut().enumerate() {
            requests.push((calls.request)(rank, buffer.span_mut()?));
        }
        let works = team.submit(requests);
        let what = format!("{form:?}, checked: {checked}, {:?}", calls.words);
        let judged = match (form, works.as_slice()) {
            // One caller's calls can be compared before anything is queued.
            (Form::OneCaller, [Err(refusal)]) => {
                let refusal = names_both(Err(refusal.clone()), calls.words, "the caller");
                refusal.and_then(|()| goes_on(&mut team))
            }
            _ => {
                let told = outcomes(&works, bench.patience())?;
                judge(&mut team, told, checked, calls.words)
            }
        };
        judged.map_err(|it| it.during(what))?;
    }
    Ok(())
}

/// Every rank whose call has not completed was told; the others are at their next call.
fn judge(team: &mut Team, told: Vec<Result<()>>, checked: bool, words: [&str; 2]) -> Step {
    expect(told.len() == RANKS, || format!("{} outcomes", told.len()))?;
    let mismatch =
        |it: &Result<()>| it.as_ref().is_err_and(|error| error.kind() == ErrorKind::RankMismatch);
    expect(told.iter().any(mismatch), || "no rank was told that they disagree".to_owned())?;
    for (rank, outcome) in told.into_iter().enumerate() {
        if outcome.is_ok() {
            expect(!checked, || format!("rank {rank} completed the call in checked mode"))?;
            continue;
        }
        names_both(outcome, words, &format!("rank {rank}"))?;
    }
    for caller in team.callers() {
        caller.expect_broken("a disagreement")?;
    }
    // Who was not told at the call is told at the next.
    let outcomes = team.run((0..RANKS).map(|_| Request::Barrier).collect());
    for (outcome, caller) in outcomes.into_iter().zip(team.callers()) {
        expect_kind(outcome, ErrorKind::GroupBroken, &format!("{caller}: the next call"))?;
    }
    Ok(())
}

/// The error names the rank that differs and another, and says of both calls what they were.
fn names_both(outcome: Result<()>, words: [&str; 2], who: &str) -> Step {
    let error = match outcome {
        // The rank came when the others had already been told.
        Err(error) if error.kind() == ErrorKind::GroupBroken => error,
        outcome => expect_kind(outcome, ErrorKind::RankMismatch, who)?,
    };
    let ranks = error.ranks();
    let both = ranks.contains(&ODD) && ranks.iter().any(|it| *it != ODD);
    expect(both, || format!("{who}: the error names ranks {ranks:?}: {error}"))?;
    let text = error.to_string();
    let said = words.iter().all(|it| text.contains(it));
    expect(said, || format!("{who}: the error does not say {words:?}: {error}"))
}

/// Calls that were refused queued nothing: the group is as it was.
fn goes_on(team: &mut Team) -> Step {
    let next = team.all((0..RANKS).map(|_| Request::Barrier).collect());
    next.map_err(|it| it.during("the call after a refused one"))
}

fn about_the_operation(bench: &Bench<'_>) -> Step {
    disagree(
        bench,
        &Calls {
            request: |rank, dst| match rank {
                ODD => Request::Broadcast { src: None, dst, root: 0 },
                _ => Request::AllReduce { src: None, dst, op: ReduceOp::Sum },
            },
            words: ["all_reduce", "broadcast"],
            ..Calls::default()
        },
    )?;
    disagree(
        bench,
        &Calls {
            request: |rank, dst| match rank {
                ODD => Request::AllGather { src: None, dst },
                _ => Request::Barrier,
            },
            // A barrier may be composed of another operation.
            words: ["all_gather", ""],
            ..Calls::default()
        },
    )
}

fn about_the_count(bench: &Bench<'_>) -> Step {
    for request in [
        |_, dst| Request::AllReduce { src: None, dst, op: ReduceOp::Sum },
        |_, dst| Request::Broadcast { src: None, dst, root: 0 },
    ] as [for<'a> fn(usize, SpanMut<'a>) -> Request<'a>; 2]
    {
        let count = |rank| if rank == ODD { 7 } else { 6 };
        disagree(bench, &Calls { count, request, words: ["6", "7"], ..Calls::default() })?;
    }
    // All that differs is whether there is anything.
    let count = |rank| if rank == ODD { 0 } else { 6 };
    disagree(bench, &Calls { count, words: ["6", "0"], ..Calls::default() })
}

fn about_the_type(bench: &Bench<'_>) -> Step {
    bench.needs(DType::I32, ReduceOp::Sum)?;
    let dtype = |rank| if rank == ODD { DType::I32 } else { TYPE };
    disagree(bench, &Calls { dtype, words: ["f32", "i32"], ..Calls::default() })
}

fn about_the_reduction(bench: &Bench<'_>) -> Step {
    disagree(
        bench,
        &Calls {
            request: |rank, dst| {
                let op = if rank == ODD { ReduceOp::Max } else { ReduceOp::Sum };
                Request::AllReduce { src: None, dst, op }
            },
            words: ["sum", "max"],
            ..Calls::default()
        },
    )
}

fn about_the_root(bench: &Bench<'_>) -> Step {
    disagree(
        bench,
        &Calls {
            request: |rank, dst| Request::Broadcast {
                src: None,
                dst,
                root: if rank == ODD { 2 } else { 0 },
            },
            words: ["root 0", "root 2"],
            ..Calls::default()
        },
    )
}

fn about_the_lists_of_counts(bench: &Bench<'_>) -> Step {
    // Composed of messages, the calls that differ are those.
    let (whole, composed) = (["all_gather_v", "counts"], ["rank 0", "rank 1"]);
    // The sums are equal, and so is what the rank that differs brings.
    disagree(
        bench,
        &Calls {
            request: |rank, dst| {
                let counts = if rank == ODD { &[3, 2, 1] } else { &[1, 2, 3] };
                Request::AllGatherV { src: None, dst, counts }
            },
            words: if bench.subject.capabilities().vector { whole } else { composed },
            ..Calls::default()
        },
    )
}

/// One rank leaves out a call that the others make.
fn about_the_sequence(bench: &Bench<'_>) -> Step {
    bench.needs(TYPE, ReduceOp::Sum)?;
    let devices = bench.devices(RANKS)?;
    let mut members = bench.members(&devices, &bench.hasty())?;
    let mut buffers = Vec::new();
    for device in &devices {
        buffers.push((Buffer::garbage(device, TYPE, 6, 0)?, Buffer::garbage(device, TYPE, 6, 0)?));
    }
    let mut works = Vec::new();
    for (rank, (member, (one, two))) in members.iter_mut().zip(&mut buffers).enumerate() {
        if rank != ODD {
            let dst = one.span_mut()?;
            let first = Request::AllReduce { src: None, dst, op: ReduceOp::Sum };
            works.push(member.submit(vec![first]));
        }
        let second = Request::AllGather { src: None, dst: two.span_mut()? };
        works.push(member.submit(vec![second]));
    }
    let told = outcomes(&works, bench.patience())?;
    expect(told.iter().any(Result::is_err), || "no rank was told that they disagree".to_owned())?;
    let mut named = false;
    for outcome in told {
        let Err(error) = outcome else { continue };
        match error.kind() {
            ErrorKind::RankMismatch => {
                let text = error.to_string();
                let calls = text.contains("all_reduce") && text.contains("all_gather");
                named |= calls && error.ranks().contains(&ODD);
            }
            // The second call of who was told at the first.
            ErrorKind::GroupBroken => {}
            _ => return Err(error.into()),
        }
    }
    expect(named, || "no error names both calls and the rank that left one out".to_owned())?;
    members.iter().try_for_each(|it| it.expect_broken("a call that one rank left out"))
}

/// A broadcast's root need not wait for its readers, but in checked mode it does.
fn in_checked_mode_no_call_completes(bench: &Bench<'_>) -> Step {
    let devices = bench.devices(2)?;
    let config = bench.config().with_checked(true);
    let mut members = bench.members(&devices, &config)?;
    let mut buffers = Vec::new();
    for device in &devices {
        buffers.push(Buffer::garbage(device, TYPE, 6, 0)?);
    }
    let mut works = Vec::new();
    for (rank, (member, buffer)) in members.iter_mut().zip(&mut buffers).enumerate() {
        let dst = buffer.span_mut()?;
        works.push(Ok(match rank {
            0 => {
                let work = member.submit(vec![Request::Broadcast { src: None, dst, root: 0 }])?;
                let what = "a broadcast in checked mode to which only the root came";
                super::messages::stays_pending(&work, what)?;
                work
            }
            _ => member.submit(vec![Request::Broadcast { src: None, dst, root: 1 }])?,
        }));
    }
    let what = "roots that differ in checked mode";
    all_fail(&works, bench.patience(), ErrorKind::RankMismatch, what).map(drop)
}
