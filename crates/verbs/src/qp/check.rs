//! Checks a work request before it is posted. One that fails on the device ends the connection.

use std::sync::atomic::Ordering;

use super::elements::{Naming, writable};
use super::{QueuePair, QueuePairType, SendOperations};
use crate::wr::{Buffers, Extra, Operation, Refusal, RemoteRange, SendFlags};

/// The size of an atomic operation, in bytes.
const WORD: usize = size_of::<u64>();

impl QueuePair {
    /// Returns how a send work request names its buffers.
    #[inline(always)]
    pub(super) fn send_naming(&self, flags: SendFlags) -> Naming {
        Naming {
            domain: self.domain,
            buffers_max: self.capacity.max_send_sge,
            is_inline: flags.contains(SendFlags::INLINE),
        }
    }

    /// Returns how a receive work request names its buffers.
    #[inline(always)]
    pub(super) fn recv_naming(&self) -> Naming {
        Naming { domain: self.domain, buffers_max: self.capacity.max_recv_sge, is_inline: false }
    }

    /// Checks that this queue pair can execute the operation with `len` bytes. It is inlined, so
    /// that for a work request that is made where it is posted, only the checks for its operation
    /// remain.
    #[inline(always)]
    pub(super) fn check(
        &self,
        operation: Operation,
        buffers: &Buffers,
        flags: SendFlags,
        extra: &Extra,
        len: usize,
    ) -> Result<(), Refusal> {
        check_flags(operation, flags)?;
        if flags.contains(SendFlags::INLINE) && len > self.capacity.max_inline_data as usize {
            return Err(Refusal::too_long(len, self.capacity.max_inline_data as usize));
        }
        match operation {
            Operation::Send | Operation::SendImmediate(_) | Operation::SendInvalidate(_) => {}
            Operation::Write(remote) | Operation::WriteImmediate(remote, _) => fits(len, remote)?,
            Operation::Read(remote) => {
                fits(len, remote)?;
                writable(buffers)?;
            }
            Operation::CompareSwap { remote, .. } | Operation::FetchAdd { remote, .. } => {
                is_word(remote)?;
                writable(buffers)?;
                let [buffer] = buffers.as_slice() else { return Err(Refusal::NotEightAlignedBytes) };
                if buffer.len() != WORD || !buffer.address().cast::<u64>().is_aligned() {
                    return Err(Refusal::NotEightAlignedBytes);
                }
            }
            Operation::AtomicWrite { remote, .. } => {
                is_word(remote)?;
                self.needs(SendOperations::ATOMIC_WRITE, "ATOMIC WRITE")?;
            }
            Operation::Flush(..) => self.needs(SendOperations::FLUSH, "FLUSH")?,
            Operation::BindWindow | Operation::LocalInvalidate(_) => {}
        }
        let (is_datagram, is_to_shared_queue) = (extra.datagram.is_some(), extra.shared_queue.is_some());
        if self.needs_look.load(Ordering::Relaxed) || is_datagram || is_to_shared_queue {
            return self.look(operation, flags, is_datagram, is_to_shared_queue);
        }
        Ok(())
    }

    /// Checks that depend on the type of the queue pair and on its state.
    ///
    /// Datagrams and work requests to XRC receivers have a destination; others do not. No work
    /// request may be posted too early: Soft-RoCE's library puts it into the queue before the
    /// kernel refuses it, and it would be sent later.
    fn look(
        &self,
        operation: Operation,
        flags: SendFlags,
        is_datagram: bool,
        is_to_shared_queue: bool,
    ) -> Result<(), Refusal> {
        self.check_ready(operation, flags)?;
        let refused = match (self.kind, is_datagram, is_to_shared_queue) {
            (QueuePairType::Ud, true, false) if operation.is_message() => return Ok(()),
            (QueuePairType::Ud, true, false) => "anything but messages",
            (QueuePairType::Ud, false, _) => "datagrams without a destination",
            (QueuePairType::XrcSend, false, true) => return Ok(()),
            (QueuePairType::XrcSend, _, false) => "requests without a shared queue",
            (QueuePairType::XrcRecv, ..) => "sending",
            (_, true, _) => "messages to a destination of their own",
            (_, false, true) => "requests to a shared queue of their own",
            (QueuePairType::Uc, false, false) => match operation.beyond_unreliable() {
                Some(what) => what,
                None => return Ok(()),
            },
            (_, false, false) => return Ok(()),
        };
        Err(Refusal::unsupported(refused))
    }

    /// Checks that the queue pair is ready to send, and that its type supports the flags.
    pub(super) fn check_ready(&self, operation: Operation, flags: SendFlags) -> Result<(), Refusal> {
        let state = self.told_state();
        if !state.can_send() {
            return Err(Refusal::NotReady(state));
        }
        let is_reliable = matches!(self.kind, QueuePairType::Rc | QueuePairType::XrcSend);
        if !is_reliable && flags.contains(SendFlags::FENCE) {
            return Err(Refusal::flag(operation.kind(), SendFlags::FENCE));
        }
        Ok(())
    }

    #[inline]
    fn needs(&self, operation: SendOperations, name: &'static str) -> Result<(), Refusal> {
        if self.operations.contains(operation) { Ok(()) } else { Err(Refusal::unsupported(name)) }
    }
}

/// Checks that the operation supports these flags, on any queue pair.
#[inline(always)]
pub(super) fn check_flags(operation: Operation, flags: SendFlags) -> Result<(), Refusal> {
    let excess = flags.difference(operation.flags());
    if excess.is_empty() { Ok(()) } else { Err(Refusal::flag(operation.kind(), excess)) }
}

#[inline(always)]
fn fits(len: usize, remote: RemoteRange) -> Result<(), Refusal> {
    match len as u64 <= remote.len() {
        true => Ok(()),
        false => Err(Refusal::out_of_bounds(len, remote.len())),
    }
}

#[inline(always)]
fn is_word(remote: RemoteRange) -> Result<(), Refusal> {
    match remote.len() as usize == WORD && remote.address().is_multiple_of(WORD as u64) {
        true => Ok(()),
        false => Err(Refusal::NotEightAlignedBytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mr::RemoteKey;

    fn remote(address: u64, len: u64) -> RemoteRange {
        RemoteRange::new(address, len, RemoteKey(1))
    }

    #[test]
    fn a_request_may_fill_the_remote_range_and_not_more() {
        assert!(fits(64, remote(0, 64)).is_ok() && fits(0, remote(0, 0)).is_ok());
        assert!(fits(65, remote(0, 64)).is_err() && fits(usize::MAX, remote(0, 64)).is_err());
    }

    #[test]
    fn an_atomic_has_eight_bytes_at_a_multiple_of_eight() {
        assert!(is_word(remote(64, 8)).is_ok());
        for (address, len) in [(68, 8), (64, 16), (64, 4), (60, 4)] {
            assert!(is_word(remote(address, len)).is_err(), "{len} bytes at {address}");
        }
    }
}
