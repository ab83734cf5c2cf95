//! Counters: how many pages have arrived.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use farreach_proto::counter::CounterId;
use farreach_proto::machine::PeerKey;

use crate::driver::Command;
use crate::hung_call::Timeout;
use crate::pending::{Answer, Pending};
use crate::progress::Listener;
use crate::running::Running;
use crate::watch::{CounterCell, PeerCell, Watcher};
use crate::{Error, ParseTokenError};

/// Counts the pages that a peer has written.
///
/// When the counter has reached N, the bytes of N pages have arrived, and are visible to a thread
/// that has seen the N. The peer refers to the counter by its [token](Self::token), which the
/// program sends to the peer.
///
/// ```no_run
/// # fn receive(peer: &farreach::Peer) -> Result<(), farreach::Error> {
/// use std::time::Duration;
///
/// const SOON: Duration = Duration::from_secs(5);
///
/// let counter = peer.open_counter().wait(SOON)?;
/// peer.send(counter.token().to_string()).wait(SOON)?;
/// counter.reach(100).wait(SOON)?;
/// println!("100 pages have arrived");
/// # Ok(())
/// # }
/// ```
pub struct Counter {
    pub(crate) progress: Arc<Running>,
    pub(crate) id: CounterId,
    pub(crate) cell: Arc<CounterCell>,
    pub(crate) key: PeerKey,
    pub(crate) peer: Arc<PeerCell>,
}

impl Counter {
    /// Returns the token of the counter, for the peer.
    pub fn token(&self) -> CounterToken {
        CounterToken(self.id.to_raw())
    }

    /// Returns how many pages have arrived. Their bytes are visible to the caller.
    pub fn reached(&self) -> u64 {
        self.cell.reached()
    }

    /// Returns a wait for `pages` pages in total.
    ///
    /// It ends with [`ErrorKind::PeerLost`](crate::ErrorKind::PeerLost) or
    /// [`ErrorKind::Aborted`](crate::ErrorKind::Aborted) if the pages cannot arrive any more. Pages
    /// that have arrived count even then.
    pub fn reach(&self, pages: u64) -> Pending<()> {
        let (cell, watcher) = (Arc::clone(&self.cell), self.cell.watch.watcher());
        let (key, peer) = (self.key, Arc::clone(&self.peer));
        Pending::new(&self.progress, Arrival { cell, key, peer, watcher, pages })
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        let id = self.id;
        self.progress.submit(Command::Call(Box::new(move |driver, now| {
            // Late pages of the peer count nowhere from now on.
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

struct Arrival {
    cell: Arc<CounterCell>,
    key: PeerKey,
    peer: Arc<PeerCell>,
    watcher: Watcher,
    pages: u64,
}

impl Answer<Result<(), Error>> for Arrival {
    fn is_ready(&self) -> bool {
        self.cell.outcome(self.pages).is_some()
    }

    fn listen(&self, listener: &Listener) {
        self.watcher.listen(listener);
    }

    fn take(&mut self) -> Option<Result<(), Error>> {
        Some(Error::of_arrival(self.cell.outcome(self.pages)?, self.peer.lost()))
    }

    fn timed_out(&mut self, timeout: &Timeout) -> Result<(), Error> {
        let (pages, reached) = (self.pages, self.cell.reached());
        Err(Error::timed_out(&format!("wait for {pages} pages ({reached} have arrived)"), timeout))
    }

    fn ended(&mut self) -> Result<(), Error> {
        Err(Error::ended())
    }

    fn awaited_peer(&self) -> Option<(PeerKey, &Arc<PeerCell>)> {
        // The machine does not know of the wait, and would ping the peer every 10 s only.
        Some((self.key, &self.peer))
    }
}

/// The token of a counter, for the peer that raises it. A program sends it as text, or by serde.
///
/// ```
/// use farreach::CounterToken;
///
/// let token: CounterToken = "c-102".parse()?;
/// assert_eq!(token.to_string(), "c-102");
/// # Ok::<(), farreach::ParseTokenError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct CounterToken(u32);

impl CounterToken {
    pub(crate) fn of(id: CounterId) -> Self {
        Self(id.to_raw())
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
            // `parse` takes 64 bits, and the id of a counter has 32.
            .and_then(|raw| u32::try_from(raw).ok())
            .map(Self)
            .ok_or(ParseTokenError { what: "counter" })
    }
}
