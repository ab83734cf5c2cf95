//! What a client and the agent that serves it agree on before anything is measured, and how they talk while it is.
//!
//! ```text
//! client                                agent
//!   head ──────────────────────────────▶ ◀──── head          which version: who is too old is named
//!                                  ◀──── Welcome             who it is, and which rails it offers
//!   Order ─────────────────────────────▶                     every parameter of the test
//!                                  ◀──── Reply               it is ready, or why not
//!   ═══════════ the same connection becomes the engines' control channel ═══════════
//!   Channel ◀──────────────────────────▶ Channel             over the rails
//! ```
//!
//! This module knows no command: what a client asks for is a name with parameters, which the agent understands.
//! The client sends every parameter, so the two sides cannot disagree; and each opens its engine only when it knows them.
//!
//! `farreach doctor` opens none for most of what it asks: it goes on by words of its own, because a rail may be what does not work.

mod address;
mod channel;
mod client;
mod handshake;
mod host;
mod tls;

use std::collections::BTreeMap;
use std::time::Duration;

use clap::ValueEnum;
use farreach::{Progress, Settings};
use serde::{Deserialize, Serialize};

use crate::rails::Wish;

pub(crate) use address::PeerAddress;
pub(crate) use channel::{Channel, Received, SOON, patience};
pub(crate) use client::{MESSAGES, Rules, Session, call, meet, of_the_server};
pub(crate) use handshake::{Line, Other, handshake, tell_refusal};
pub(crate) use host::host_name;
pub(crate) use tls::open as open_tls;

/// What an agent says first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Welcome {
    /// Of the command.
    pub(crate) version: String,
    /// What the host is called, for people.
    pub(crate) host: String,
    /// The rails that it opens when asked to.
    pub(crate) offers: Wish,
}

/// Every parameter of a test. `T` is what the agent is to do: the parameters of one command under its name, which no other code here understands.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order<T> {
    /// Of the command.
    pub(crate) version: String,
    /// What the host is called, for people.
    pub(crate) host: String,
    pub(crate) rails: Wish,
    pub(crate) engine: EngineRules,
    pub(crate) task: T,
}

/// How both engines are to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EngineRules {
    pub(crate) wait: Wait,
    pub(crate) depth: usize,
    pub(crate) messages: u32,
    pub(crate) message_bytes_max: usize,
}

impl EngineRules {
    pub(crate) fn settings(&self) -> Settings {
        let progress = match self.wait {
            Wait::Busy => Progress::Busy,
            Wait::Event => Progress::Event,
            Wait::Adaptive => Progress::Adaptive,
        };
        Settings::new()
            .progress(progress)
            .heartbeat(HEARTBEAT)
            .peer_timeout(SILENCE)
            .depth(self.depth)
            .message_window(self.messages)
            .message_max(self.message_bytes_max)
    }
}

/// Who is silent for so long is lost. Hosts that are being measured are busy ones: where many processes want a core each, one of them has been seen to wait
/// for four seconds.
const SILENCE: Duration = Duration::from_secs(6);
const HEARTBEAT: Duration = Duration::from_millis(500);

/// The parameters of a command under its name: what a client sends as the task of an [`Order`], and the agent reads as an enum of all commands.
pub(crate) type Named<T> = BTreeMap<&'static str, T>;

/// Names the parameters of a command.
pub(crate) fn named<T>(command: &'static str, parameters: T) -> Named<T> {
    BTreeMap::from([(command, parameters)])
}

/// How a side waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Wait {
    /// Spin: the shortest latency, for a whole core
    Busy,
    /// Sleep until the completion event: the least CPU
    Event,
    /// Spin a moment, then sleep
    Adaptive,
}
