//! Ranks that meet at a server, and what strangers may try there.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{ErrorKind as Why, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use aether_collective::{Group, ReduceOp, Rendezvous, Tcp, TcpServer};
use aether_core::{Device, ErrorKind, Result};
use aether_host::Host;
use common::{SOON, config, data, sum, view_mut};

const TOKEN: &[u8] = b"what only ranks know";

fn serve(ranks: usize) -> TcpServer {
    TcpServer::bind("127.0.0.1:0", TOKEN, ranks).unwrap()
}

fn connect(server: &TcpServer, rank: usize, ranks: usize) -> Result<Tcp> {
    Tcp::connect(&server.address(), TOKEN, rank, ranks, SOON)
}

fn reduce(at: &dyn Rendezvous) {
    let (rank, ranks) = (at.rank(), at.ranks());
    let device = Device::cpu(rank as u32);
    let mut group = Group::<Host>::join_at(at, &device, &config().with_deadline(SOON)).unwrap();
    let mut own = data(rank, 30);
    group.all_reduce_in_place(&mut view_mut(&mut own), ReduceOp::Sum).unwrap();
    assert_eq!(own, sum(ranks, 30));
    group.finish().unwrap();
}

fn everybody_reduces(server: &TcpServer, ranks: usize, groups: &[&str]) {
    std::thread::scope(|scope| {
        for rank in 0..ranks {
            scope.spawn(move || {
                let at = connect(server, rank, ranks).unwrap();
                groups.iter().for_each(|it| reduce(&at.group(it)));
            });
        }
    });
}

#[test]
fn ranks_meet_at_a_server_for_any_number_of_groups() {
    for ranks in [1, 2, 5] {
        let server = serve(ranks);
        assert!(server.address().starts_with("127.0.0.1:"), "{server:?}");
        everybody_reduces(&server, ranks, &["one", "two", "three"]);
    }
}

#[test]
fn a_key_is_posted_once_in_each_group() {
    let server = serve(2);
    let [one, two] = [0, 1].map(|rank| connect(&server, rank, 2).unwrap());
    assert_eq!(one.look_up("key").unwrap(), None);
    one.post("key", b"first").unwrap();
    let error = two.post("key", b"second").unwrap_err();
    assert_eq!((error.kind(), error.ranks()), (ErrorKind::InvalidArgument, [1].as_slice()));
    assert_eq!(two.look_up("key").unwrap().as_deref(), Some(&b"first"[..]));
    two.group("other").post("key", b"third").unwrap();
    drop(one);
    // What a rank posted outlasts it.
    assert_eq!(two.look_up("key").unwrap().as_deref(), Some(&b"first"[..]));
}

#[test]
fn whoever_is_no_rank_of_this_world_is_refused_by_name_and_the_server_goes_on() {
    let server = serve(2);
    let first = connect(&server, 1, 2).unwrap();
    for (token, rank, ranks, kind) in [
        (&b"a guess"[..], 0, 2, ErrorKind::InvalidArgument),
        (b"what only ranks knew", 0, 2, ErrorKind::InvalidArgument),
        (b"", 0, 2, ErrorKind::InvalidArgument),
        (TOKEN, 1, 2, ErrorKind::InvalidArgument),
        (TOKEN, 0, 3, ErrorKind::SizeMismatch),
        (TOKEN, 2, 2, ErrorKind::RankOutOfRange),
    ] {
        let error = Tcp::connect(&server.address(), token, rank, ranks, SOON).unwrap_err();
        assert_eq!((error.kind(), error.ranks()), (kind, [rank].as_slice()), "{error}");
        assert!(error.reason().contains(&format!("rank {rank}")) || rank == 1, "{error}");
        assert_eq!(error.place().unwrap(), format!("tcp://{}", server.address()));
    }
    let wrong = Tcp::connect(&server.address(), b"a guess", 0, 2, SOON).unwrap_err();
    assert!(wrong.reason().contains("token of rank 0"), "{wrong}");
    drop(first);
    everybody_reduces_soon(&server, 2);
}

/// A stream's end is seen a little later than it is made.
fn everybody_reduces_soon(server: &TcpServer, ranks: usize) {
    let until = std::time::Instant::now() + SOON;
    while let Err(error) = connect(server, 1, ranks) {
        assert!(error.kind() == ErrorKind::InvalidArgument && std::time::Instant::now() < until);
        std::thread::sleep(Duration::from_millis(1));
    }
    let until = std::time::Instant::now() + SOON;
    let connect = |rank| loop {
        match connect(server, rank, ranks) {
            Ok(at) => break at,
            Err(error) => assert!(std::time::Instant::now() < until, "{error}"),
        }
    };
    std::thread::scope(|scope| {
        (0..ranks).for_each(|rank| drop(scope.spawn(move || reduce(&connect(rank).group("soon")))));
    });
}

#[test]
fn noise_of_any_kind_harms_nobody() {
    let server = serve(2);
    let knock = || TcpStream::connect(server.address()).unwrap();
    // Strangers who say nothing, and who stop half way. There are more than there may be.
    let silent: Vec<TcpStream> = (0..100).map(|_| knock()).collect();
    let mut half = knock();
    half.write_all(&[40, 0]).unwrap();
    for noise in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 64], &[0, 0, 0, 0], &[4, 0, 0, 0, 1, 2, 3, 4]]
    {
        let mut stranger = knock();
        stranger.write_all(noise).unwrap();
        stranger.shutdown(Shutdown::Write).unwrap();
        // It is told something or nothing, and then that it may go; nobody waits.
        stranger.set_read_timeout(Some(SOON)).unwrap();
        let mut told = Vec::new();
        match stranger.read_to_end(&mut told) {
            Ok(_) => assert!(told.len() < 100, "{told:?}"),
            Err(error) => assert_eq!(error.kind(), Why::ConnectionReset),
        }
    }
    everybody_reduces(&server, 2, &["group"]);
    // The first of the silent ones had to go; the last are there still, until their time is over.
    let mut first = &silent[0];
    first.set_read_timeout(Some(SOON)).unwrap();
    assert!(matches!(first.read(&mut [0]), Ok(0) | Err(_)));
    drop((silent, half));
}

#[test]
fn a_rank_that_talks_noise_after_it_came_in_is_refused_alone() {
    let server = serve(1);
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let numbers = [0, 1, 7].map(u64::to_le_bytes).concat();
    let hello = [&b"aether\0\x01"[..], &numbers, TOKEN].concat();
    let frame = |bytes: &[u8]| [&(bytes.len() as u32).to_le_bytes(), bytes].concat();
    stream.write_all(&frame(&hello)).unwrap();
    let mut answer = [9; 5];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [1, 0, 0, 0, 0], "come in");
    stream.write_all(&frame(&[7, 7, 7])).unwrap();
    let mut answer = [0; 6];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[4..], [3, 0], "refused as malformed");
    // A frame that would be 4 GiB: the stream ends, and nothing of that size is made.
    stream.write_all(&[0xff; 4]).unwrap();
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), Why::ConnectionReset),
    }
    everybody_reduces_soon_alone(&server);
}

fn everybody_reduces_soon_alone(server: &TcpServer) {
    let until = std::time::Instant::now() + SOON;
    let at = loop {
        match connect(server, 0, 1) {
            Ok(at) => break at,
            Err(error) => assert!(std::time::Instant::now() < until, "{error}"),
        }
    };
    reduce(&at);
}

#[test]
fn too_much_is_refused_and_what_is_posted_stays_bounded() {
    let server = serve(1);
    let at = connect(&server, 0, 1).unwrap();
    let error = at.post(&"k".repeat(1000), b"").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert_eq!(at.post("key", &[0; 1 << 17]).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let value = vec![7; 1 << 16];
    let refused = (0..2000).find_map(|it| at.post(&format!("key {it}"), &value).err()).unwrap();
    assert_eq!(refused.kind(), ErrorKind::OutOfMemory, "{refused}");
    // What was there is there, and the stream is as good as before.
    assert_eq!(at.look_up("key 0").unwrap(), Some(value));
}

#[test]
fn a_server_that_ends_is_an_error_and_one_that_never_was_a_deadline() {
    let server = serve(2);
    let at = connect(&server, 1, 2).unwrap();
    let address = server.address();
    drop(server);
    for _ in 0..2 {
        let error = at.look_up("key").unwrap_err();
        assert_eq!((error.kind(), error.ranks()), (ErrorKind::Io, [1].as_slice()), "{error}");
        assert!(error.reason().contains("has ended"), "{error}");
    }
    let error = Tcp::connect(&address, TOKEN, 1, 2, Duration::ZERO).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded, "{error}");
    assert!(error.reason().contains("rank 1"), "{error}");
}

#[test]
fn somebody_else_s_server_is_told_from_aether_s() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for answer in [&b"\x05\0\0\0HELLO"[..], b"HTTP/1.1 400 Bad Request\r\n\r\n"] {
                let (mut stream, _) = other.accept().unwrap();
                stream.write_all(answer).unwrap();
                // Until the rank goes.
                drop(stream.read_to_end(&mut Vec::new()));
            }
        });
        for _ in 0..2 {
            let error = Tcp::connect(&address, TOKEN, 0, 2, SOON).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Parse, "{error}");
        }
    });
}

#[test]
fn an_address_that_cannot_be_had_and_a_token_that_is_none_are_refused() {
    let server = serve(1);
    let error = TcpServer::bind(&server.address(), TOKEN, 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    for token in [&b""[..], &[1; 300]] {
        let error = TcpServer::bind("127.0.0.1:0", token, 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
}
