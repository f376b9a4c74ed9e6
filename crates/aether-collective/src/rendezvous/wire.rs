//! What a served rendezvous and its ranks say to each other.
//!
//! A frame is its length in four bytes, the lowest first, and as many bytes. A rank's first frame is its
//! [`Hello`], every later one an [`Ask`]; each is answered by one [`Reply`]. Nothing is allocated for a
//! frame before its length was compared with what may come.

use std::io::{self, Write};
use std::time::Instant;

use super::link::Link;

/// The longest key: the group's and the value's name.
pub(super) const MOST_KEY: usize = 512;
/// The longest value.
pub(super) const MOST_VALUE: usize = 1 << 16;
/// The longest frame: an ask with its tag, the length of its key, key and value.
pub(super) const MOST_FRAME: usize = 3 + MOST_KEY + MOST_VALUE;
/// The longest token.
pub(super) const MOST_TOKEN: usize = 256;
/// The longest first frame, from somebody who may be anybody.
pub(super) const MOST_HELLO: usize = MAGIC.len() + 3 * 8 + MOST_TOKEN;

/// What every hello begins with. The last byte is the version.
const MAGIC: [u8; 8] = *b"aether\0\x01";

/// Who comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) rank: u64,
    pub(super) ranks: u64,
    /// Tells two processes apart that say that they are the same rank.
    pub(super) process: u64,
    pub(super) token: Vec<u8>,
}

/// What a rank wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    Post(String, Vec<u8>),
    LookUp(String),
}

/// What it gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// Come in, posted, or the value.
    Done(Vec<u8>),
    /// Nothing was posted under the key.
    Absent,
    /// Something was posted under the key before.
    Twice,
    /// No, and why.
    Refused(Refusal, String),
}

/// Why a rank is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Malformed = 0,
    RankOutOfRange = 1,
    RankTwice = 2,
    RanksDiffer = 3,
    TooMuch = 4,
    WrongToken = 5,
}

impl Hello {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let numbers = [self.rank, self.ranks, self.process].map(u64::to_le_bytes).concat();
        [&MAGIC[..], &numbers, &self.token].concat()
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(&MAGIC)?;
        let mut numbers = [0; 3];
        let (fixed, token) = rest.split_at_checked(8 * numbers.len())?;
        for (number, bytes) in numbers.iter_mut().zip(fixed.chunks_exact(8)) {
            *number = u64::from_le_bytes(bytes.try_into().ok()?);
        }
        let [rank, ranks, process] = numbers;
        Some(Self { rank, ranks, process, token: token.to_vec() })
    }
}

impl Ask {
    /// Post's bytes, without a copy of what it posts on the way.
    pub(super) fn post(key: &str, value: &[u8]) -> Vec<u8> {
        [&[1], &(key.len() as u16).to_le_bytes()[..], key.as_bytes(), value].concat()
    }

    pub(super) fn look_up(key: &str) -> Vec<u8> {
        [&[2], &(key.len() as u16).to_le_bytes()[..], key.as_bytes()].concat()
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (&[tag, low, high], rest) = bytes.split_first_chunk()?;
        let length = usize::from(u16::from_le_bytes([low, high]));
        let (key, value) = rest.split_at_checked(length)?;
        let key = std::str::from_utf8(key).ok()?;
        if key.len() > MOST_KEY || value.len() > MOST_VALUE {
            return None;
        }
        match tag {
            1 => Some(Self::Post(key.to_owned(), value.to_vec())),
            2 if value.is_empty() => Some(Self::LookUp(key.to_owned())),
            _ => None,
        }
    }
}

impl Reply {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Done(value) => [&[0], value.as_slice()].concat(),
            Self::Absent => vec![1],
            Self::Twice => vec![2],
            Self::Refused(refusal, why) => [&[3, *refusal as u8], why.as_bytes()].concat(),
        }
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0, value @ ..] => Some(Self::Done(value.to_vec())),
            [1] => Some(Self::Absent),
            [2] => Some(Self::Twice),
            [3, refusal, why @ ..] => {
                let known = [
                    Refusal::Malformed,
                    Refusal::RankOutOfRange,
                    Refusal::RankTwice,
                    Refusal::RanksDiffer,
                    Refusal::TooMuch,
                    Refusal::WrongToken,
                ];
                let refusal = known.into_iter().find(|it| *it as u8 == *refusal)?;
                Some(Self::Refused(refusal, String::from_utf8_lossy(why).into_owned()))
            }
            _ => None,
        }
    }
}

/// Sends one frame.
pub(super) fn send(link: &mut Link, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // In one write, so that it goes out as one packet.
    link.write_all(&[&length.to_le_bytes(), bytes].concat())
}

/// The next frame, of at most so many bytes, which has to be there in time.
///
/// # Errors
/// `InvalidData` if it is longer, `TimedOut`, `UnexpectedEof`.
pub(super) fn receive(link: &mut Link, most: usize, until: Instant) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    link.fill(&mut length, until)?;
    rest(link, length, most, until)
}

/// As [`receive`], from somebody who may take as long as he likes to begin; none at the end of the stream.
pub(super) fn receive_some_time(
    link: &mut Link,
    most: usize,
    patience: std::time::Duration,
) -> io::Result<Option<Vec<u8>>> {
    let Some(first) = link.first()? else { return Ok(None) };
    let until = Instant::now() + patience;
    let mut length = [first, 0, 0, 0];
    link.fill(&mut length[1..], until)?;
    rest(link, length, most, until).map(Some)
}

fn rest(link: &mut Link, length: [u8; 4], most: usize, until: Instant) -> io::Result<Vec<u8>> {
    let length = u32::from_le_bytes(length) as usize;
    if length > most {
        let why = format!("a frame of {length} bytes, where at most {most} may come");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let mut bytes = vec![0; length];
    link.fill(&mut bytes, until)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_is_what_is_understood() {
        let hello = Hello { rank: 3, ranks: 7, process: u64::MAX, token: b"a token".to_vec() };
        assert_eq!(Hello::parse(&hello.to_bytes()), Some(hello));
        let post = Ask::post("group/key", b"value");
        assert_eq!(Ask::parse(&post), Some(Ask::Post("group/key".into(), b"value".into())));
        assert_eq!(Ask::parse(&Ask::look_up("k")), Some(Ask::LookUp("k".into())));
        for reply in [
            Reply::Done(vec![0, 255]),
            Reply::Absent,
            Reply::Twice,
            Reply::Refused(Refusal::WrongToken, "no".into()),
        ] {
            assert_eq!(Reply::parse(&reply.to_bytes()), Some(reply));
        }
    }

    #[test]
    fn nothing_that_is_cut_off_or_changed_is_understood_as_something_else() {
        let hello = Hello { rank: 1, ranks: 2, process: 3, token: Vec::new() }.to_bytes();
        for end in 0..hello.len() {
            assert_eq!(Hello::parse(&hello[..end]), None, "{end}");
        }
        let mut other_version = hello;
        other_version[7] += 1;
        assert_eq!(Hello::parse(&other_version), None);
        let ask = Ask::look_up("key");
        for end in 0..ask.len() {
            assert_eq!(Ask::parse(&ask[..end]), None, "{end}");
        }
        for junk in [&b"GET / HTTP/1.1\r\n"[..], &[1, 255, 255], &[3, 0, 0], &[1, 2, 0, 0xff, 0xfe]]
        {
            assert_eq!(Ask::parse(junk), None, "{junk:?}");
        }
        assert_eq!(Ask::parse(&Ask::post(&"k".repeat(MOST_KEY + 1), b"")), None);
        assert_eq!(Ask::parse(&Ask::post("k", &[0; MOST_VALUE + 1])), None);
        for junk in [&[][..], &[1, 1], &[3], &[3, 77], &[4]] {
            assert_eq!(Reply::parse(junk), None, "{junk:?}");
        }
    }
}
