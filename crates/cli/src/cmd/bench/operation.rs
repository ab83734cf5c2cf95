//! The operations that can be measured.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::native::NativeOperation;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Operation {
    /// Messages
    Send,
    /// Writes into the peer's memory
    Write,
    /// Writes with immediate data, which raise a counter of the peer
    WriteImm,
    /// Reads of the peer's memory
    Read,
    /// Compare-and-swap on eight bytes
    Cas,
    /// Fetch-and-add on eight bytes
    Faa,
    /// Atomic writes of eight bytes (verbs)
    AtomicWrite,
    /// Writes, each followed by a flush (verbs)
    Flush,
    /// Writes without the engine (verbs)
    RawWrite,
    /// Reads without the engine (verbs)
    RawRead,
    /// Messages by a bare queue pair, without the engine (verbs)
    RawSend,
}

impl Operation {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Write => "write",
            Self::WriteImm => "write-imm",
            Self::Read => "read",
            Self::Cas => "cas",
            Self::Faa => "faa",
            Self::AtomicWrite => "atomic-write",
            Self::Flush => "flush",
            Self::RawWrite => "raw-write",
            Self::RawRead => "raw-read",
            Self::RawSend => "raw-send",
        }
    }

    /// Returns the verbs operation, if a queue pair of its own does it.
    pub(crate) fn native(self) -> Option<NativeOperation> {
        Some(match self {
            Self::AtomicWrite => NativeOperation::AtomicWrite,
            Self::Flush => NativeOperation::FlushGlobal,
            Self::RawWrite => NativeOperation::Write,
            Self::RawRead => NativeOperation::Read,
            Self::RawSend => NativeOperation::Send,
            Self::Send | Self::Write | Self::WriteImm | Self::Read | Self::Cas | Self::Faa => return None,
        })
    }

    /// Returns whether the operation always has eight bytes.
    pub(crate) fn is_of_a_word(self) -> bool {
        matches!(self, Self::Cas | Self::Faa | Self::AtomicWrite)
    }
}
