//! A rank at a rendezvous over TCP.

use std::sync::Arc;
use std::time::{Duration, Instant};

use aether_core::Result;

use super::client::Connection;
use super::link::Spot;
use crate::Rendezvous;

/// A rank at a rendezvous that a [`TcpServer`](crate::TcpServer) serves.
///
/// A handle is for one group; [`Tcp::group`] gives handles for others, over the same connection. A
/// process that goes away while others still meet is no concern of theirs: what it posted stays.
#[derive(Clone, Debug)]
pub struct Tcp {
    connection: Arc<Connection>,
    group: String,
}

impl Tcp {
    /// Goes to the server at `host:port` as rank `rank` of `ranks`, with the server's token. Where nobody
    /// serves yet, it waits so long.
    ///
    /// # Errors
    /// `RankOutOfRange`; `InvalidArgument` for a wrong token, or where another process is this rank;
    /// `SizeMismatch` if the server's world has another size; `DeadlineExceeded` if nobody serves there;
    /// `Parse` if it is no rendezvous; `Io`. Each names this rank.
    pub fn connect(
        address: &str,
        token: &[u8],
        rank: usize,
        ranks: usize,
        patience: Duration,
    ) -> Result<Self> {
        let spot = Spot::Tcp(address.to_owned());
        let until = Instant::now() + patience.min(Duration::from_secs(1 << 30));
        let connection = Connection::open(&spot, token, rank, ranks, until)?;
        Ok(Self::of(Arc::new(connection), String::new()))
    }

    /// A handle for the group of this name, which may be formed once. The names of two groups differ.
    #[must_use]
    pub fn group(&self, name: &str) -> Self {
        Self::of(Arc::clone(&self.connection), name.to_owned())
    }

    pub(super) fn of(connection: Arc<Connection>, group: String) -> Self {
        Self { connection, group }
    }

    fn key(&self, key: &str) -> String {
        format!("{}/{key}", self.group)
    }
}

impl Rendezvous for Tcp {
    fn rank(&self) -> usize {
        self.connection.rank
    }

    fn ranks(&self) -> usize {
        self.connection.ranks
    }

    fn place(&self) -> String {
        self.connection.place()
    }

    fn post(&self, key: &str, value: &[u8]) -> Result<()> {
        self.connection.post(&self.key(key), value)
    }

    fn look_up(&self, key: &str) -> Result<Option<Vec<u8>>> {
        self.connection.look_up(&self.key(key))
    }
}
