//! What a worker does: it joins, calls, and answers, until nobody asks any more.

use std::collections::HashMap;
use std::error::Error as _;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use aether_collective::{Directory, Group, GroupConfig, Work};
use aether_core::{Device, Error, ErrorKind, Result};

use super::Remote;
use super::memory::Laid;
use super::seat::lock;
use super::wire::{Answer, Ask, Call, What};

/// The whole of a worker process.
pub(super) fn process<R: Remote>() -> ExitCode {
    let socket = std::io::stdin().as_fd().try_clone_to_owned();
    match socket {
        Ok(socket) => {
            serve::<R>(UnixStream::from(socket));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("a worker of the suite has no socket: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Answers what is asked over the socket until the other end is closed.
pub(super) fn serve<R: Remote>(socket: UnixStream) {
    let (asked, asks) = channel();
    let Ok(reading) = socket.try_clone() else { return };
    let reader = move || {
        let mut reading = reading;
        while let Ok(ask) = Ask::receive(&mut reading) {
            if asked.send(ask).is_err() {
                return;
            }
        }
        if !R::IN_THREADS {
            // The suite is gone: nothing is to be finished, whatever it waits for.
            std::process::exit(0);
        }
    };
    if std::thread::Builder::new().spawn(reader).is_err() {
        return;
    }
    let socket = Arc::new(Mutex::new(socket));
    let mut members = HashMap::new();
    for ask in asks {
        answer::<R>(ask, &mut members, &socket);
    }
}

type Socket = Arc<Mutex<UnixStream>>;

/// A member, and the thread that waits for its calls.
struct Member<R: Remote> {
    group: Group<R::Driver>,
    memory: Device,
    waiting: Sender<(Work, Laid)>,
}

fn answer<R: Remote>(ask: Ask, members: &mut HashMap<u64, Member<R>>, socket: &Socket) {
    let id = ask.member;
    let reply = |outcome: Result<()>| tell(socket, id, false, outcome.map(|()| Vec::new()));
    match ask.what {
        What::Join { place, rank, ranks, device, config } => {
            reply(join(&place, rank, ranks, device, &config, id, socket).map(|it| {
                members.insert(id, it);
            }));
        }
        What::Call(call) => {
            let made = match members.get_mut(&id) {
                Some(member) => member.call(call),
                None => Err(stranger()),
            };
            if let Err(error) = made {
                tell(socket, id, true, Err(error));
            }
        }
        What::Failure => {
            reply(members.get(&id).map_or(Ok(()), |it| it.group.check().map_err(first)))
        }
        What::Abort(why) => {
            if let Some(member) = members.get_mut(&id) {
                member.group.abort(&why);
            }
            reply(Ok(()));
        }
        What::Finish => {
            reply(members.remove(&id).map_or_else(|| Err(stranger()), |it| it.group.finish()));
        }
        What::Leave { panicking } => {
            let member = members.remove(&id);
            if panicking {
                let unwinds = move || {
                    let _member = member;
                    // A panic that prints nothing.
                    std::panic::resume_unwind(Box::new("a rank's thread panics"));
                };
                // That it panics is what it is for.
                drop(std::thread::Builder::new().spawn(unwinds).map(|it| it.join()));
            } else {
                drop(member);
            }
            reply(Ok(()));
        }
    }
}

fn join<R: Remote>(
    place: &str,
    rank: usize,
    ranks: usize,
    device: u32,
    config: &GroupConfig,
    id: u64,
    socket: &Socket,
) -> Result<Member<R>> {
    let device = R::device(device)?;
    let memory = R::memory(&device)?;
    let directory = Directory::new(place, rank, ranks)?;
    let group = Group::join_at(&directory, &device, config)?;
    let (waiting, calls) = channel();
    let socket = Arc::clone(socket);
    let spawned = std::thread::Builder::new().spawn(move || wait(&calls, id, &socket));
    spawned.map_err(|error| {
        Error::new(ErrorKind::Io, "start a thread", error.to_string()).caused_by(error)
    })?;
    Ok(Member { group, memory, waiting })
}

impl<R: Remote> Member<R> {
    /// Makes a call, whose end is told by the thread that waits.
    fn call(&mut self, call: Call) -> Result<()> {
        let mut laid = Laid::new(&self.memory, call)?;
        let work = laid.submit(|request| self.group.submit(request))?;
        self.waiting.send((work, laid)).map_err(|_| stranger())
    }
}

/// Waits for a member's calls, one after the other, and tells how they ended.
fn wait(calls: &Receiver<(Work, Laid)>, id: u64, socket: &Socket) {
    for (work, laid) in calls {
        tell(socket, id, true, work.wait().and_then(|()| laid.written()));
    }
}

/// The failure that broke a group, from the error of what it refuses.
fn first(refused: Error) -> Error {
    refused.source().and_then(|it| it.downcast_ref::<Error>()).cloned().unwrap_or(refused)
}

fn stranger() -> Error {
    Error::new(ErrorKind::NotMember, "serve as a worker", "the member has not joined, or has left")
}

fn tell(socket: &Socket, member: u64, ends: bool, outcome: Result<Vec<Vec<u8>>>) {
    let process = std::process::id();
    let (outcome, written) = match outcome {
        Ok(written) => (Ok(()), written),
        Err(error) => (Err(error), Vec::new()),
    };
    let answer = Answer { member, ends, outcome, process, written };
    // If the suite is gone, so is this worker soon.
    drop(answer.send(&mut *lock(socket)));
}
