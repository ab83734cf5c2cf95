//! The options for queue pairs of verbs, as typed.

use clap::ValueEnum;
use farreach_verbs::ah::GRH_BYTES;
use farreach_verbs::port::Mtu;
use farreach_verbs::qp::QueuePairType;
use serde::{Deserialize, Serialize};

/// Options of the queue pairs that a test creates beside those of the engine, on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::Args)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[command(next_help_heading = "For raw-write, raw-read, raw-send, atomic-write and flush")]
pub(crate) struct QueuePairArgs {
    /// Path MTU: 256, 512, 1024, 2048 or 4096; by default the MTU of the port
    #[arg(long = "mtu", value_name = "BYTES", value_parser = mtu_of)]
    pub(crate) mtu_bytes: Option<u32>,

    /// Post up to this size inline (raw-write, raw-send)
    #[arg(long = "inline", value_name = "BYTES", default_value_t = 0, hide_default_value = true)]
    pub(crate) inline_bytes: u32,

    /// Work requests per post (raw-write, raw-read, raw-send)
    #[arg(long, value_name = "N", default_value_t = 1, hide_default_value = true, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) post_list: u32,

    /// Transport: rc (reliable), uc (unreliable; raw-write, raw-send) or ud (datagrams; raw-send)
    #[arg(long, value_name = "TYPE", default_value = "rc", hide_possible_values = true)]
    pub(crate) connection: Connection,
}

/// The transport of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Connection {
    /// Reliable: lost packets are sent again
    Rc,
    /// Unreliable: a write completes when it was sent
    Uc,
    /// Datagrams: unreliable, each in one packet
    Ud,
}

impl Default for QueuePairArgs {
    fn default() -> Self {
        Self { mtu_bytes: None, inline_bytes: 0, post_list: 1, connection: Connection::Rc }
    }
}

impl QueuePairArgs {
    /// Returns the first flag that differs from its default.
    pub(crate) fn flag(&self) -> Option<&'static str> {
        [
            (self.mtu_bytes.is_some(), "--mtu"),
            (self.inline_bytes != 0, "--inline"),
            (self.post_list != 1, "--post-list"),
            (self.connection != Connection::Rc, "--connection"),
        ]
        .into_iter()
        .find_map(|(is_asked, flag)| is_asked.then_some(flag))
    }

    /// Describes the options: `RC, MTU 1024, inline up to 64 B, post list 16`.
    pub(crate) fn words(&self) -> String {
        let mut words = match self.connection {
            Connection::Rc => "RC",
            Connection::Uc => "UC",
            Connection::Ud => "UD",
        }
        .to_owned();
        if let Some(mtu) = self.mtu_bytes {
            words.push_str(&format!(", MTU {mtu}"));
        }
        if self.inline_bytes > 0 {
            words.push_str(&format!(", inline up to {} B", self.inline_bytes));
        }
        if self.post_list > 1 {
            words.push_str(&format!(", post list {}", self.post_list));
        }
        words
    }

    /// Returns whether lost packets are sent again.
    pub(crate) fn is_reliable(&self) -> bool {
        self.connection == Connection::Rc
    }

    /// Returns the length of the header before each received message: datagrams have one.
    pub(super) fn header_len(&self) -> usize {
        if self.connection == Connection::Ud { GRH_BYTES } else { 0 }
    }

    pub(super) fn kind(&self) -> QueuePairType {
        match self.connection {
            Connection::Rc => QueuePairType::Rc,
            Connection::Uc => QueuePairType::Uc,
            Connection::Ud => QueuePairType::Ud,
        }
    }

    /// Returns the requested path MTU as a value of verbs.
    pub(super) fn mtu(&self) -> Option<Mtu> {
        MTUS.into_iter().find(|mtu| mtu.bytes() == self.mtu_bytes && self.mtu_bytes.is_some())
    }
}

const MTUS: [Mtu; 5] = [Mtu::Bytes256, Mtu::Bytes512, Mtu::Bytes1024, Mtu::Bytes2048, Mtu::Bytes4096];

fn mtu_of(text: &str) -> Result<u32, String> {
    let bytes = text.parse::<u32>().ok().filter(|bytes| MTUS.iter().any(|mtu| mtu.bytes() == Some(*bytes)));
    bytes.ok_or_else(|| "use 256, 512, 1024, 2048 or 4096".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mtu_is_one_that_verbs_has() {
        for bytes in [256, 512, 1024, 2048, 4096] {
            assert_eq!(mtu_of(&bytes.to_string()), Ok(bytes));
            let args = QueuePairArgs { mtu_bytes: Some(bytes), ..QueuePairArgs::default() };
            assert_eq!(args.mtu().and_then(Mtu::bytes), Some(bytes));
        }
        assert!(mtu_of("1500").is_err() && mtu_of("x").is_err());
        assert_eq!(QueuePairArgs::default().mtu(), None);
    }

    #[test]
    fn what_was_asked_for_is_told() {
        let args = QueuePairArgs {
            mtu_bytes: Some(1024),
            inline_bytes: 64,
            post_list: 16,
            connection: Connection::Uc,
        };
        assert_eq!(args.words(), "UC, MTU 1024, inline up to 64 B, post list 16");
        assert_eq!((args.flag(), QueuePairArgs::default().flag()), (Some("--mtu"), None));
        assert_eq!(QueuePairArgs::default().words(), "RC");
    }
}
