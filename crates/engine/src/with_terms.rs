//! Handles of a peer whose transfers have a priority or a deadline.

use std::time::Duration;

use farreach_proto::priority::Priority;
use farreach_proto::time::Time;

use crate::Peer;
use crate::terms::Terms;
use crate::time::nanoseconds;

impl Peer {
    /// Returns a handle of the same peer whose transfers have this priority. Each operation on a handle
    /// has the priority of that handle: writes and reads of ranges, pages and lists, and the starts of
    /// transfers that were prepared with it.
    ///
    /// [Urgent](Priority::Urgent) transfers are posted before all others, to whatever peer. The others
    /// still get a ninth of what is posted, so that they end. What a card has cannot be overtaken, so the
    /// others keep at most 64 KiB in flight on each link while there are urgent ones, and for 100 ms after
    /// them. The first urgent one after that may wait for what a link has in flight: up to 32 MiB of
    /// [normal](Priority::Normal) transfers, or 2 MiB of [bulk](Priority::Bulk) transfers. So transfers
    /// of gigabytes for which nobody waits are best made bulk ones. The priority is not known to the
    /// peer: it orders what this engine posts, in both directions.
    ///
    /// Messages and atomics have no priority. They are posted before all transfers.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use farreach::{Engine, Rights};
    /// # const SOON: Duration = Duration::from_secs(20);
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (here, there) = (Engine::new()?, Engine::new()?);
    /// # let peer = here.connect(there.listen("127.0.0.1:0")?)?.wait(SOON)?;
    /// # let owner = there.accept().wait(SOON)?;
    /// # let memory = there.allocate(8 << 20).wait(SOON)?;
    /// # let grant = owner.grant(memory, Rights::READ | Rights::WRITE).wait(SOON)?;
    /// # let remote = peer.remote(grant.token()).wait(SOON)?;
    /// use farreach::Priority;
    ///
    /// let bulk = peer.with_priority(Priority::Bulk);
    /// let urgent = peer.with_priority(Priority::Urgent);
    ///
    /// let mut moving = bulk.write(here.allocate(4 << 20).wait(SOON)?, &remote);
    /// let record = urgent.read(&remote.at(5 << 20), vec![0; 4096]).wait(SOON)?.buffer;
    /// # assert_eq!(record.len(), 4096);
    /// moving.wait(SOON)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "the handle that it is called on stays as it is"]
    pub fn with_priority(&self, priority: Priority) -> Self {
        self.with_terms(Terms { priority, ..self.terms() })
    }

    /// Returns a handle of the same peer whose transfers end within this time from their start, or are
    /// aborted. Each start of a transfer that was prepared with the handle has a deadline of its own.
    ///
    /// At its deadline nothing more of a transfer is posted. It ends when none of its operations is in
    /// flight, with [`ErrorKind::DeadlinePassed`](crate::ErrorKind::DeadlinePassed), its memory, and the
    /// number of bytes that are known to have arrived
    /// ([`TransferStats::delivered`](crate::TransferStats::delivered)). This takes as long as what is in
    /// flight, or as a lost link takes to be reconciled. If all of it is in flight, it may still be done. The receiver's
    /// counter ends with [`ErrorKind::Aborted`](crate::ErrorKind::Aborted). A time of zero has passed at
    /// the start.
    ///
    /// The timeout of [`Pending::wait`](crate::Pending::wait) is something else: it ends a wait, and not
    /// the transfer. Messages and atomics have no deadline.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use farreach::{Engine, Rights};
    /// # const SOON: Duration = Duration::from_secs(20);
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (here, there) = (Engine::new()?, Engine::new()?);
    /// # let peer = here.connect(there.listen("127.0.0.1:0")?)?.wait(SOON)?;
    /// # let owner = there.accept().wait(SOON)?;
    /// # let grant = owner.grant(there.allocate(4096).wait(SOON)?, Rights::READ).wait(SOON)?;
    /// # let remote = peer.remote(grant.token()).wait(SOON)?;
    /// use farreach::ErrorKind;
    ///
    /// let hasty = peer.with_deadline(Duration::ZERO);
    /// let late = hasty.read(&remote, vec![0; 4096]).wait(SOON).unwrap_err();
    /// assert_eq!(late.error.kind(), ErrorKind::DeadlinePassed);
    /// assert_eq!((late.buffer, late.stats.delivered), (Some(vec![0; 4096]), 0));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "the handle that it is called on stays as it is"]
    pub fn with_deadline(&self, after: Duration) -> Self {
        self.with_terms(Terms { deadline_after: Some(after), ..self.terms() })
    }

    /// Returns the priority of a transfer that begins now, and its deadline in the machine's time.
    #[inline]
    pub(crate) fn terms_now(&self) -> (Priority, Option<Time>) {
        let Terms { priority, deadline_after } = self.terms();
        // Only those with a deadline need the clock.
        let deadline = deadline_after.map(|after| self.running().now().saturating_add(nanoseconds(after)));
        (priority, deadline)
    }
}
