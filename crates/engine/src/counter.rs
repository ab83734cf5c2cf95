//! Counters: how many pages have arrived.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use farreach_proto::counter::CounterId;

use crate::driver::Command;
use crate::pending::{Answer, Pending, sealed::Sealed};
use crate::progress::Listener;
use crate::running::Running;
use crate::watch::{CounterCell, Watcher};
use crate::{Outcome, ParseTokenError};

/// Counts the pages that a peer has written: when it has reached N, the bytes of N pages are there, and visible to whoever has seen it.
///
/// The peer names it by its [token](Self::token), which the user sends him.
///
/// ```no_run
/// # fn receive(peer: &farreach::Peer) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use farreach::Outcome;
///
/// let counter = peer.counter()?;
/// peer.send(counter.token().to_string()).wait(Duration::from_secs(1))?;
/// match counter.wait(100, Duration::from_secs(5)) {
///     Outcome::Reached => println!("100 pages are there"),
///     other => println!("{other:?} after {} pages", counter.reached()),
/// }
/// # Ok(())
/// # }
/// ```
pub struct Counter {
    pub(crate) progress: Arc<Running>,
    pub(crate) id: CounterId,
    pub(crate) cell: Arc<CounterCell>,
}

impl Counter {
    /// What the peer names it by.
    pub fn token(&self) -> CounterToken {
        CounterToken(self.id.to_raw())
    }

    /// How many pages have arrived. Their bytes are visible to whoever has read this.
    pub fn reached(&self) -> u64 {
        self.cell.reached()
    }

    /// Waits until so many pages have arrived, at most so long.
    pub fn wait(&self, pages: u64, timeout: Duration) -> Outcome {
        self.reach(pages).wait(timeout)
    }

    /// So many pages, to be waited for or awaited.
    pub fn reach(&self, pages: u64) -> Pending<Arrival> {
        let (cell, watcher) = (Arc::clone(&self.cell), self.cell.watch.watcher());
        Pending { progress: Arc::clone(&self.progress), answer: Arrival { cell, watcher, pages } }
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        let id = self.id;
        self.progress.submit(Command::Call(Box::new(move |driver, now| {
            driver.machine.close_counter(id, now);
            driver.delivery.remove_counter(id);
        })));
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counter").field("token", &self.token()).field("reached", &self.reached()).finish()
    }
}

/// The arrival of so many pages.
#[derive(Debug)]
pub struct Arrival {
    cell: Arc<CounterCell>,
    watcher: Watcher,
    pages: u64,
}

impl Answer for Arrival {
    type Output = Outcome;
}

impl Sealed for Arrival {
    type Found = Outcome;

    fn is_ready(&self) -> bool {
        self.cell.outcome(self.pages).is_some()
    }

    fn listen(&self, listener: &Listener) {
        self.watcher.listen(listener);
    }

    fn take(&mut self) -> Option<Outcome> {
        self.cell.outcome(self.pages)
    }

    fn timed_out(&mut self, _after: Duration) -> Outcome {
        Outcome::TimedOut
    }

    fn ended(&mut self) -> Outcome {
        Outcome::Aborted
    }
}

/// What a peer names a counter by: told to him in a message, or in any other way.
///
/// ```
/// use farreach::CounterToken;
///
/// let token: CounterToken = "c-102".parse()?;
/// assert_eq!(token.to_string(), "c-102");
/// assert_eq!(CounterToken::from_bytes(token.to_bytes()), token);
/// # Ok::<(), farreach::ParseTokenError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct CounterToken(u32);

impl CounterToken {
    /// As bytes, for a message.
    pub fn to_bytes(self) -> [u8; 4] {
        self.0.to_le_bytes()
    }

    /// From such bytes.
    pub fn from_bytes(bytes: [u8; 4]) -> Self {
        Self(u32::from_le_bytes(bytes))
    }

    pub(crate) fn id(self) -> CounterId {
        CounterId::from_raw(self.0)
    }
}

impl fmt::Display for CounterToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c-{:x}", self.0)
    }
}

impl FromStr for CounterToken {
    type Err = ParseTokenError;

    fn from_str(text: &str) -> Result<Self, ParseTokenError> {
        crate::token::parse(text, "c-")
            .and_then(|raw| u32::try_from(raw).ok())
            .map(Self)
            .ok_or(ParseTokenError { what: "counter" })
    }
}
