//! Pages, and what becomes of them.

use std::sync::Arc;
use std::time::Duration;

use farreach_proto::machine::{OpId, PeerKey, TransferFault};
use farreach_rail::{Held, TransferAnswer};

use crate::driver::Command;
use crate::error::{TransferError, TransferReason};
use crate::pending::{Answer, Pending, sealed::Sealed};
use crate::progress::{Awaited, Listener, oneshot};
use crate::watch::PeerCell;
use crate::{Buffer, Explanation};

/// Pages under way: [`Pending`], and with [`abort`](Pending::abort).
///
/// A transfer that is done has its bytes where they should be, and this side's memory back.
pub type Transfer = Pending<PagesMoved>;

/// What a transfer ends with.
#[derive(Debug)]
pub struct PagesMoved {
    pub(crate) receiver: oneshot::Receiver<TransferAnswer>,
    pub(crate) peer: PeerKey,
    pub(crate) cell: Arc<PeerCell>,
    pub(crate) op: OpId,
    /// What was wrong with it before anybody was asked.
    pub(crate) refused: Option<TransferError>,
}

/// A transfer that is done.
///
/// ```no_run
/// # use farreach::{Done, Transfer};
/// # use std::time::Duration;
/// # fn show(mut transfer: Transfer) -> Result<(), farreach::TransferError> {
/// let Done { buffer, explanation, .. } = transfer.wait(Duration::from_secs(5))?;
/// println!("{explanation}");
/// let slice = buffer.into_slice().expect("it was given as a slice");
/// # drop(slice);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Done {
    /// This side's memory: a slice if it was given as one, otherwise the shared one.
    pub buffer: Buffer,
    /// How it went.
    pub explanation: Explanation,
}

impl Answer for PagesMoved {
    type Output = Result<Done, TransferError>;
}

impl Sealed for PagesMoved {
    type Found = Result<Done, TransferError>;

    fn is_ready(&self) -> bool {
        self.refused.is_some() || self.receiver.is_ready()
    }

    fn listen(&self, listener: &Listener) {
        self.receiver.listen(listener);
    }

    fn take(&mut self) -> Option<Self::Found> {
        if let Some(refused) = self.refused.take() {
            return Some(Err(refused));
        }
        match self.receiver.take()? {
            Ok(answer) => Some(self.done(answer)),
            Err(_) => Some(self.ended()),
        }
    }

    fn timed_out(&mut self, after: Duration) -> Self::Found {
        Err(failed(TransferReason::TimedOut(after)))
    }

    fn ended(&mut self) -> Self::Found {
        Err(failed(TransferReason::Ended))
    }
}

impl PagesMoved {
    #[expect(
        clippy::result_large_err,
        reason = "it is answered once for many operations, and boxing it would allocate"
    )]
    fn done(&self, answer: TransferAnswer) -> Result<Done, TransferError> {
        let TransferAnswer { outcome, held, explanation } = answer;
        let buffer = held.and_then(given_back);
        match (outcome, buffer) {
            (Ok(()), Some(buffer)) => Ok(Done { buffer, explanation }),
            // Nothing of it is under way when it is done.
            (Ok(()), None) => Err(failed(TransferReason::Ended)),
            (Err(fault), buffer) => Err(TransferError { reason: self.reason(fault), buffer, explanation }),
        }
    }

    fn reason(&self, fault: TransferFault) -> TransferReason {
        match fault {
            TransferFault::PeerLost(why) => TransferReason::PeerLost(self.cell.why(why)),
            TransferFault::Aborted => TransferReason::Aborted,
            TransferFault::Revoked => TransferReason::Revoked,
            TransferFault::NoSuchGrant | TransferFault::NoRight | TransferFault::OutOfBounds => {
                TransferReason::NotGranted
            }
            TransferFault::NoSuchCounter => TransferReason::NoSuchCounter,
            TransferFault::Rail(error) => TransferReason::Rail(error),
        }
    }
}

impl Transfer {
    /// Gives it up: nothing more of it is posted, and it ends when what is under way is done. The receiver's counter ends as
    /// [`Aborted`](crate::Outcome::Aborted).
    pub fn abort(&self) {
        self.progress.submit(Command::Abort(self.answer.peer, self.answer.op));
    }
}

fn failed(reason: TransferReason) -> TransferError {
    TransferError { reason, buffer: None, explanation: Explanation::default() }
}

/// The memory, in the form in which it was given.
pub(crate) fn given_back(held: Held) -> Option<Buffer> {
    match held {
        Held::Shared(shared) => Some(Buffer::Shared(shared)),
        Held::Lent(lent) => lent.try_reclaim().ok().map(Buffer::Slice),
    }
}
