//! A rendezvous of threads.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use aether_core::{Error, ErrorKind, Result};

use crate::Rendezvous;

/// A rendezvous of the threads of one process.
#[derive(Clone)]
pub struct InProcess {
    rank: usize,
    ranks: usize,
    posted: Arc<Mutex<HashMap<String, Vec<u8>>>>,
}

impl InProcess {
    /// One handle for each of so many ranks.
    pub fn new(ranks: usize) -> Vec<Self> {
        let posted = Arc::new(Mutex::default());
        (0..ranks).map(|rank| Self { rank, ranks, posted: Arc::clone(&posted) }).collect()
    }
}

impl Rendezvous for InProcess {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.ranks
    }

    fn place(&self) -> String {
        "an in-process rendezvous".to_owned()
    }

    fn post(&self, key: &str, value: &[u8]) -> Result<()> {
        let mut posted = self.posted.lock().unwrap_or_else(PoisonError::into_inner);
        if posted.contains_key(key) {
            let reason = format!("`{key}` was posted before: one rendezvous serves one group");
            return Err(Error::new(ErrorKind::InvalidArgument, "post to a rendezvous", reason)
                .on(self.place())
                .about_ranks([self.rank]));
        }
        posted.insert(key.to_owned(), value.to_vec());
        Ok(())
    }

    fn look_up(&self, key: &str) -> Result<Option<Vec<u8>>> {
        let posted = self.posted.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(posted.get(key).cloned())
    }
}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InProcess(rank {} of {})", self.rank, self.ranks)
    }
}
