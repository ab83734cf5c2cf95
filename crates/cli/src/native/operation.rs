//! Operations that only verbs has. Some of them need newer cards and kernels.

use std::fs;

use farreach_verbs::attributes::DeviceCapabilities;
use farreach_verbs::mr::AccessFlags;
use farreach_verbs::qp::SendOperations;
use serde::{Deserialize, Serialize};

use super::card::Card;
use crate::exit::{Exit, Failure};

/// An operation of verbs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NativeOperation {
    /// Eight bytes that are never seen half written.
    AtomicWrite,
    /// A write, then a FLUSH. When the FLUSH completes, the bytes are visible to all.
    FlushGlobal,
    /// A write, then a FLUSH. When the FLUSH completes, the bytes survive a power failure.
    FlushPersistent,
    /// A plain write.
    Write,
    /// A plain read.
    Read,
    /// A message.
    Send,
}

impl NativeOperation {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::AtomicWrite => "ATOMIC WRITE",
            Self::FlushGlobal => "FLUSH to global visibility",
            Self::FlushPersistent => "FLUSH to persistence",
            Self::Write => "WRITE",
            Self::Read => "READ",
            Self::Send => "SEND",
        }
    }

    /// Returns the capability that a card must report. Every card has the plain ones.
    fn capability(self) -> DeviceCapabilities {
        match self {
            Self::AtomicWrite => DeviceCapabilities::ATOMIC_WRITE,
            Self::FlushGlobal => DeviceCapabilities::FLUSH_GLOBAL,
            Self::FlushPersistent => DeviceCapabilities::FLUSH_PERSISTENT,
            Self::Write | Self::Read | Self::Send => DeviceCapabilities::empty(),
        }
    }

    /// Returns the operations for which the queue pairs must be created.
    pub(super) fn send_operations(self) -> SendOperations {
        match self {
            Self::AtomicWrite => SendOperations::ATOMIC_WRITE,
            Self::FlushGlobal | Self::FlushPersistent => SendOperations::FLUSH | SendOperations::RDMA_WRITE,
            Self::Write | Self::Read | Self::Send => SendOperations::empty(),
        }
    }

    /// Returns the access rights that the peer needs.
    pub(super) fn access(self) -> AccessFlags {
        match self {
            Self::AtomicWrite | Self::Write => AccessFlags::REMOTE_WRITE,
            Self::Read => AccessFlags::REMOTE_READ,
            Self::Send => AccessFlags::empty(),
            Self::FlushGlobal => AccessFlags::REMOTE_WRITE | AccessFlags::FLUSH_GLOBAL,
            Self::FlushPersistent => AccessFlags::REMOTE_WRITE | AccessFlags::FLUSH_PERSISTENT,
        }
    }

    /// Returns whether it is one work request that any card has.
    pub(crate) fn is_plain(self) -> bool {
        matches!(self, Self::Write | Self::Read | Self::Send)
    }

    /// Returns the number of work requests for one operation.
    pub(super) fn requests(self) -> u32 {
        match self {
            Self::AtomicWrite | Self::Write | Self::Read | Self::Send => 1,
            Self::FlushGlobal | Self::FlushPersistent => 2,
        }
    }

    /// Checks that a card reports the operation. The driver decides: the library creates queue
    /// pairs even for operations that the kernel does not support.
    pub(super) fn check(self, card: &Card) -> Result<(), Failure> {
        if card.attributes.capabilities.contains(self.capability()) {
            return Ok(());
        }
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let driver = card.driver().unwrap_or_else(|| "the driver".to_owned());
        Err(Failure::new(Exit::Unavailable, format!("{} does not support {}", card.name, self.name()))
            .cause(format!("{driver} of Linux {} does not report this capability", kernel.trim()))
            .fix("use a card and a kernel that support it: Soft-RoCE of Linux 6.1 does not, of Linux 7.2 it does; FLUSH also needs rdma-core newer than 44"))
    }

    /// Checks the number of bytes of one operation.
    pub(crate) fn check_size(self, bytes: usize) -> Result<(), Failure> {
        let is_right = match self {
            Self::AtomicWrite => bytes == WORD,
            Self::FlushGlobal | Self::FlushPersistent => (WORD..=BYTES_MAX).contains(&bytes),
            Self::Write | Self::Read | Self::Send => (1..=BYTES_MAX).contains(&bytes),
        };
        if is_right {
            return Ok(());
        }
        let cause = match self {
            Self::AtomicWrite => format!("the size is always {WORD} bytes"),
            Self::Write | Self::Read | Self::Send => format!("the size is 1 to {BYTES_MAX} bytes"),
            _ => format!(
                "the size is {WORD} to {BYTES_MAX} bytes, of which the first {WORD} are a sequence number"
            ),
        };
        Err(Failure::new(Exit::Usage, format!("{} of {bytes} bytes is not possible", self.name()))
            .cause(cause)
            .fix("choose another size"))
    }
}

/// The size of an ATOMIC WRITE, and of the sequence number at the start of each other write and of
/// each message.
pub(super) const WORD: usize = size_of::<u64>();

/// The value of each byte after the sequence number.
pub(super) const FILL: u8 = 0x5a;

/// An upper bound, because memory is allocated for each operation in flight.
const BYTES_MAX: usize = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_cannot_be_are_told() {
        assert!(NativeOperation::AtomicWrite.check_size(8).is_ok());
        let refused = NativeOperation::AtomicWrite.check_size(16).expect_err("it is a word");
        assert_eq!(refused.exit, Exit::Usage);
        assert!(refused.error.contains("ATOMIC WRITE of 16 bytes"), "{refused:?}");
        assert!(NativeOperation::FlushGlobal.check_size(65_536).is_ok());
        assert!(NativeOperation::FlushPersistent.check_size(7).is_err());
        assert!(NativeOperation::Write.check_size(1).is_ok() && NativeOperation::Read.check_size(0).is_err());
    }
}
