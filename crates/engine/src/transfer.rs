//! Transfers, and their results.

use std::marker::PhantomData;
use std::sync::Arc;

use farreach_proto::machine::{OpId, PeerKey, TransferFault};
use farreach_rail::{Held, TransferAnswer};

use crate::driver::Command;
use crate::hung_call::Timeout;
use crate::pending::{Answer, Pending};
use crate::progress::{Awaited, Listener, oneshot};
use crate::source::Source;
use crate::watch::PeerCell;
use crate::{Buffer, Error, TransferError, TransferStats};

/// A transfer: a [`Pending`] that can be [aborted](Pending::abort). It returns the memory of this side
/// as `B`.
pub type Transfer<B = Buffer> = Pending<Transferred<B>, TransferError<B>>;

/// The result of a transfer: every byte is in its place, and the memory of this side is returned.
///
/// ```no_run
/// # use farreach::{Transfer, Transferred};
/// # use std::time::Duration;
/// # fn show(mut transfer: Transfer) -> Result<(), farreach::TransferError> {
/// let Transferred { buffer, stats, .. } = transfer.wait(Duration::from_secs(5))?;
/// println!("{stats}");
/// let slice = buffer.into_slice().expect("it was given as a slice");
/// # drop(slice);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Transferred<B = Buffer> {
    /// The memory of this side, as it was given. Of pages, a [`Buffer`]: a slice if it was given as
    /// one, otherwise the shared one.
    pub buffer: B,
    /// Rails, operations, bytes and time.
    pub stats: TransferStats,
}

pub(crate) struct TransferInFlight<B> {
    receiver: oneshot::Receiver<TransferAnswer>,
    peer: PeerKey,
    cell: Arc<PeerCell>,
    op: OpId,
    buffer: PhantomData<fn() -> B>,
}

impl<B> TransferInFlight<B> {
    pub(crate) fn new(
        receiver: oneshot::Receiver<TransferAnswer>,
        peer: PeerKey,
        cell: &Arc<PeerCell>,
        op: OpId,
    ) -> Self {
        Self { receiver, peer, cell: Arc::clone(cell), op, buffer: PhantomData }
    }
}

impl<B: Source> Answer<Result<Transferred<B>, TransferError<B>>> for TransferInFlight<B> {
    fn is_ready(&self) -> bool {
        self.receiver.is_ready()
    }

    fn listen(&self, listener: &Listener) {
        self.receiver.listen(listener);
    }

    fn take(&mut self) -> Option<Result<Transferred<B>, TransferError<B>>> {
        match self.receiver.take()? {
            Ok(answer) => Some(self.result(answer)),
            Err(_) => Some(self.ended()),
        }
    }

    fn timed_out(&mut self, timeout: &Timeout) -> Result<Transferred<B>, TransferError<B>> {
        Err(TransferError::without_buffer(Error::timed_out("transfer pages", timeout)))
    }

    fn ended(&mut self) -> Result<Transferred<B>, TransferError<B>> {
        Err(TransferError::without_buffer(Error::ended()))
    }

    fn operation(&self) -> Option<(PeerKey, OpId)> {
        Some((self.peer, self.op))
    }
}

impl<B: Source> TransferInFlight<B> {
    fn result(&self, answer: TransferAnswer) -> Result<Transferred<B>, TransferError<B>> {
        let TransferAnswer { outcome, held, stats } = answer;
        let buffer = held.and_then(given_back).and_then(B::from_buffer);
        match (outcome, buffer) {
            (Ok(()), Some(buffer)) => Ok(Transferred { buffer, stats }),
            // A transfer that is done has nothing in flight.
            (Ok(()), None) => Err(TransferError::without_buffer(Error::ended())),
            (Err(fault), buffer) => Err(TransferError { error: self.error(fault), buffer, stats }),
        }
    }

    fn error(&self, fault: TransferFault) -> Error {
        match fault {
            TransferFault::PeerLost(reason) => Error::peer_lost(&self.cell.why(*reason)),
            other => Error::of_transfer(other),
        }
    }
}

impl<B> Transfer<B> {
    /// Aborts the transfer: no more of it is posted, and it ends when its operations in flight are
    /// done. The receiver's counter ends with [`ErrorKind::Aborted`](crate::ErrorKind::Aborted).
    pub fn abort(&self) {
        if let Some((peer, op)) = self.operation() {
            self.running().submit(Command::Abort(peer, op));
        }
    }
}

/// Hands memory over for a transfer in flight.
pub(crate) fn held(buffer: Buffer) -> Held {
    match buffer {
        Buffer::Shared(shared) => Held::Shared(shared),
        Buffer::Slice(slice) => Held::Lent(slice.lend()),
        Buffer::Lent(lent) => Held::Lent(lent),
    }
}

/// Returns the memory in the form in which it was given.
pub(crate) fn given_back(held: Held) -> Option<Buffer> {
    match held {
        Held::Shared(shared) => Some(Buffer::Shared(shared)),
        Held::Lent(lent) => lent.try_reclaim().ok().map(Buffer::Slice),
    }
}
