//! What can be measured.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Operation {
    /// Messages
    Send,
    /// Writes into the peer's memory
    Write,
    /// Writes that the peer's counter tells of
    WriteImm,
    /// Reads of the peer's memory
    Read,
    /// Compare-and-swap on eight bytes
    Cas,
    /// Fetch-and-add on eight bytes
    Faa,
    /// Writes of eight bytes that are whole or not there (verbs)
    AtomicWrite,
    /// Writes, and a flush behind each (verbs)
    Flush,
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
        }
    }

    /// Whether it is always on eight bytes.
    pub(crate) fn is_of_a_word(self) -> bool {
        matches!(self, Self::Cas | Self::Faa | Self::AtomicWrite)
    }
}
