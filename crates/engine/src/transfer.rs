//! Transfers, and their results.

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

pub(crate) struct TransferInFlight<F> {
    receiver: oneshot::Receiver<TransferAnswer>,
    peer: PeerKey,
    cell: Arc<PeerCell>,
    op: OpId,
    /// Returns the memory in the form in which it was given, or `None` if a card has not returned all
    /// of it. Its argument is the memory that the engine returns, if any.
    restore: F,
}

impl<F> TransferInFlight<F> {
    pub(crate) fn new(
        receiver: oneshot::Receiver<TransferAnswer>,
        peer: PeerKey,
        cell: &Arc<PeerCell>,
        op: OpId,
        restore: F,
    ) -> Self {
        Self { receiver, peer, cell: Arc::clone(cell), op, restore }
    }

    /// Waits for another operation from now on, in the place of one that has ended. Returns its sender.
    pub(crate) fn renew(&mut self, op: OpId) -> Option<oneshot::Sender<TransferAnswer>> {
        let sender = self.receiver.renew()?;
        self.op = op;
        Some(sender)
    }
}

impl<B, F> Answer<Result<Transferred<B>, TransferError<B>>> for TransferInFlight<F>
where
    F: Fn(Option<Held>) -> Option<B> + Send + Sync,
{
    fn is_ready(&self) -> bool {
        self.receiver.is_ready()
    }

    fn listen(&self, listener: &Listener) {
        self.receiver.listen(listener);
    }

    fn take(&mut self) -> Option<Result<Transferred<B>, TransferError<B>>> {
        match self.receiver.take()? {
            Ok(answer) => Some(self.result(answer)),
            // The memory went with the engine.
            Err(_) => Some(Err(TransferError::without_buffer(Error::ended()))),
        }
    }

    fn timed_out(&mut self, timeout: &Timeout) -> Result<Transferred<B>, TransferError<B>> {
        // The transfer goes on with its memory, and can be waited for again.
        Err(TransferError::without_buffer(Error::timed_out("transfer pages", timeout)))
    }

    fn ended(&mut self) -> Result<Transferred<B>, TransferError<B>> {
        Err(TransferError::without_buffer(Error::ended()))
    }

    fn operation(&self) -> Option<(PeerKey, OpId)> {
        Some((self.peer, self.op))
    }
}

impl<F> TransferInFlight<F> {
    fn result<B>(&self, answer: TransferAnswer) -> Result<Transferred<B>, TransferError<B>>
    where
        F: Fn(Option<Held>) -> Option<B>,
    {
        let TransferAnswer { outcome, held, stats } = answer;
        // Also after an error: the memory comes back unless a card may still use it.
        let buffer = (self.restore)(held);
        match (outcome, buffer) {
            (Ok(()), Some(buffer)) => Ok(Transferred { buffer, stats }),
            // A transfer that is done has nothing in flight.
            (Ok(()), None) => Err(TransferError::without_buffer(Error::ended())),
            (Err(fault), buffer) => {
                let error = error_of(&self.cell, fault);
                Err(TransferError { error, buffer, stats: Box::new(stats) })
            }
        }
    }
}

/// Returns the error of a transfer with a peer.
pub(crate) fn error_of(peer: &PeerCell, fault: TransferFault) -> Error {
    match fault {
        // The machine may have forgotten the peer. Its cell knows the reason.
        TransferFault::PeerLost(reason) => Error::peer_lost(&peer.why(*reason)),
        other => Error::of_transfer(other),
    }
}

impl<B> Transfer<B> {
    /// Aborts the transfer: no more of it is posted, and it ends when its operations in flight are
    /// done. The receiver's counter ends with [`ErrorKind::Aborted`](crate::ErrorKind::Aborted).
    pub fn abort(&self) {
        // A transfer that was performed within its call, or refused, has nothing to abort.
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
        Buffer::Exposed(part) => Held::Exposed(part),
    }
}

/// Returns the memory of a transfer of one buffer in the form in which it was given.
pub(crate) fn given_back<B: Source>(held: Option<Held>) -> Option<B> {
    let buffer = match held? {
        Held::Shared(shared) => Some(Buffer::Shared(shared)),
        // It fails as long as a request has a part of the slice.
        Held::Lent(lent) => lent.try_reclaim().ok().map(Buffer::Slice),
        Held::Exposed(part) => Some(Buffer::Exposed(part)),
        // Of lists, `crate::list` returns the buffers.
        Held::List(_) => None,
    };
    B::from_buffer(buffer?)
}
