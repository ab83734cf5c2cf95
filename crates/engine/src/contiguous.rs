//! Transfers of one contiguous range, without a page map.
//!
//! A range is one page of its own length. The protocol splits it into operations where a rail has a
//! maximum, and counts it once.

use farreach_proto::machine::{
    Direction, GrantRange, NewTransfer, OpId, PeerKey, Regions, ShortTransfer, TransferFault,
};
use farreach_proto::plan::{Extent, Pages, Plan};
use farreach_proto::time::Time;
use farreach_rail::{Held, TransferAnswer};

use crate::delivery::{Waiter, next_op};
use crate::driver::{Command, Driver};
use crate::pending::Pending;
use crate::progress::oneshot;
use crate::source::{Destination, Source};
use crate::transfer::{TransferInFlight, given_back, held};
use crate::{
    Buffer, Error, Peer, RailError, RemoteCounter, RemoteSlice, Transfer, TransferError, TransferStats,
    Transferred,
};

impl Peer {
    /// Writes all bytes of `source` to the beginning of `destination`, which may be longer. When the
    /// transfer is done, the bytes are there, and `source` comes back as it was given, also with an
    /// error.
    ///
    /// Memory that a card has not registered yet is registered in this transfer.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use farreach::{Engine, Rights};
    /// # const SOON: Duration = Duration::from_secs(20);
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (here, there) = (Engine::new()?, Engine::new()?);
    /// # let peer = here.connect(there.listen("127.0.0.1:0")?)?.wait(SOON)?;
    /// # let owner = there.accept().wait(SOON)?;
    /// # let grant = owner.grant(there.allocate(4096).wait(SOON)?, Rights::WRITE).wait(SOON)?;
    /// let remote = peer.remote(grant.token()).wait(SOON)?;
    /// let done = peer.write(vec![7; 100], &remote.at(1000)).wait(SOON)?;
    /// let bytes: Vec<u8> = done.buffer;
    /// # let mut there = [0; 102];
    /// # grant.read_at(999, &mut there);
    /// # assert!(there[1..101] == bytes && there[0] == 0 && there[101] == 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn write<B: Source>(&self, source: B, destination: &RemoteSlice) -> Transfer<B> {
        self.move_range(Direction::Write, source, destination, None)
    }

    /// [Writes](Self::write), and raises a counter of the peer by one. When the counter has risen, all
    /// bytes of the range are there.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use farreach::{Engine, Rights};
    /// # const SOON: Duration = Duration::from_secs(20);
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (here, there) = (Engine::new()?, Engine::new()?);
    /// # let peer = here.connect(there.listen("127.0.0.1:0")?)?.wait(SOON)?;
    /// # let owner = there.accept().wait(SOON)?;
    /// # let grant = owner.grant(there.allocate(4096).wait(SOON)?, Rights::WRITE).wait(SOON)?;
    /// # let counter = owner.open_counter().wait(SOON)?;
    /// let remote = peer.remote(grant.token()).wait(SOON)?;
    /// let arrivals = peer.remote_counter(counter.token()).wait(SOON)?;
    /// peer.write_and_count(b"hello".to_vec(), &remote.at(0), &arrivals).wait(SOON)?;
    ///
    /// // In the process of the owner:
    /// counter.reach(1).wait(SOON)?;
    /// let mut bytes = [0; 5];
    /// grant.read_at(0, &mut bytes);
    /// assert_eq!(&bytes, b"hello");
    /// # Ok(())
    /// # }
    /// ```
    pub fn write_and_count<B: Source>(
        &self,
        source: B,
        destination: &RemoteSlice,
        counter: &RemoteCounter,
    ) -> Transfer<B> {
        self.move_range(Direction::Write, source, destination, Some(counter))
    }

    /// Fills `into` with the bytes at the beginning of `source`, which may be longer.
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
    /// # grant.write_at(64, b"hello");
    /// let remote = peer.remote(grant.token()).wait(SOON)?;
    /// let into = here.allocate(5).wait(SOON)?;
    /// let done = peer.read(&remote.range(64..69), into).wait(SOON)?;
    /// assert_eq!(&*done.buffer, b"hello");
    /// # Ok(())
    /// # }
    /// ```
    pub fn read<B: Destination>(&self, source: &RemoteSlice, into: B) -> Transfer<B> {
        self.move_range(Direction::Read, into, source, None)
    }

    fn move_range<B: Source>(
        &self,
        direction: Direction,
        memory: B,
        remote: &RemoteSlice,
        counter: Option<&RemoteCounter>,
    ) -> Transfer<B> {
        let (key, buffer) = (self.key(), memory.into_buffer());
        let len = buffer.len() as u64;
        let refused = match () {
            // A grant belongs to one peer, and its id means nothing to another one.
            () if remote.peer.0 != key => Some(Error::not_granted("memory")),
            () if counter.is_some_and(|counter| counter.peer.0 != key) => Some(Error::not_granted("counter")),
            () if len == 0 => Some(Error::no_bytes()),
            () if len > remote.len => Some(Error::beyond(len, remote.len)),
            () => None,
        };
        if let Some(error) = refused {
            let mut failed = TransferError::without_buffer(error);
            // No card has seen the memory, so it always comes back.
            failed.buffer = B::from_buffer(buffer);
            return Pending::finished(self.running(), Err(failed));
        }
        let range = Extent { offset: 0, len };
        let (priority, deadline) = self.terms_now();
        let short = ShortTransfer {
            peer: key,
            direction,
            own: range,
            remote: range,
            grant: remote.grant,
            base: remote.offset,
            len: remote.len,
            counter: counter.map(|counter| counter.token.id()),
            priority,
            deadline,
        };
        // The channel and the box are made only if the transfer is not performed at once.
        let (op, mut receiver) = (next_op(), None);
        let mut command = |buffer: Buffer| {
            let (sender, answer) = oneshot::channel();
            receiver = Some(answer);
            let (new, held) = (transfer_of(op, &short), held(buffer));
            // The memory may be unknown to a card. A transfer that is performed needs no
            // registration.
            let call = move |driver: &mut Driver, now: Time| submit(driver, new, held, sender, now);
            Command::Call(Box::new(call))
        };
        let performed = match len <= self.running().performs_max() {
            true => {
                let perform = |driver: &mut Driver, buffer: &mut Buffer| driver.perform(&short, buffer);
                self.running().perform_or_submit(buffer, perform, command)
            }
            false => {
                self.running().submit(command(buffer));
                None
            }
        };
        match (performed, receiver) {
            (Some((buffer, stats)), _) => {
                let buffer = B::from_buffer(buffer).expect("it was made from such memory");
                Pending::finished(self.running(), Ok(Transferred { buffer, stats }))
            }
            (None, Some(receiver)) => Pending::new(
                self.running(),
                TransferInFlight::new(receiver, key, self.cell(), op, given_back::<B>),
            ),
            (None, None) => unreachable!("a transfer is performed or submitted"),
        }
    }
}

/// Returns the transfer of a range as one page.
fn transfer_of(op: OpId, short: &ShortTransfer) -> NewTransfer {
    let ShortTransfer { peer, direction, own, grant, base, len, counter, priority, deadline, .. } = *short;
    let page = Pages::contiguous(1, own.len);
    let plan = Plan::new(own.len, (page.clone(), own.len), (page, own.len));
    let plan = plan.expect("one page that is as long as its memory is within it");
    let regions = GrantRange { grant, base, len }.into();
    NewTransfer { op, peer, direction, plan, regions, counter, priority, deadline }
}

/// Submits a transfer of memory that may be unknown to the rails.
pub(crate) fn submit(
    driver: &mut Driver,
    new: NewTransfer,
    held: Held,
    sender: oneshot::Sender<TransferAnswer>,
    now: Time,
) {
    if let Err(error) = register(driver, new.peer, &new.regions, &held) {
        // The machine does not know the transfer yet, so it is answered here, with its memory.
        let outcome = Err(TransferFault::Rail(Box::new(error)));
        let (held, stats) = (Some(held), TransferStats::default());
        return driver.answer(sender, TransferAnswer { outcome, held, stats });
    }
    driver.delivery.wait_by_name(new.op, Waiter::Transfer(sender));
    driver.carrier.hold(new.op, held);
    driver.machine.submit(new, now);
}

/// Registers the memory of a transfer with the rails that may move it.
pub(crate) fn register(
    driver: &mut Driver,
    peer: PeerKey,
    regions: &Regions,
    held: &Held,
) -> Result<(), RailError> {
    let Driver { machine, carrier, .. } = driver;
    let first = regions.as_slice().first();
    // Without a grant, the machine refuses the transfer.
    let Some(scope) = first.and_then(|range| machine.scope_of(peer, range.grant)) else { return Ok(()) };
    // Rails of another scope take no part in the transfer.
    held.try_for_each_memory(|memory| carrier.register_over(machine, memory, scope))
}
