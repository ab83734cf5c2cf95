//! The session between a client and the agent that serves it: the handshake before a test, and the
//! channel during it.
//!
//! ```text
//! client                                agent
//!   head ─────────────────────────────▶ ◀──── head      the versions; an old one is reported
//!                                 ◀──── Welcome         its host, and the rails it offers
//!   Order ────────────────────────────▶                 every parameter of the test
//!                                 ◀──── Reply           it is ready, or why not
//!   ═══════ the same connection becomes the engines' control connection ═══════
//!   Channel ◀─────────────────────────▶ Channel         over the rails
//! ```
//!
//! This module knows no command: the client's order is a name with parameters, which the agent
//! interprets. The client sends every parameter, so the two sides cannot disagree. Each side opens
//! its engine only when it knows them.
//!
//! `farreach doctor` opens no engine for most of its tasks. It continues with messages of its own
//! on the connection, because a rail may be what does not work.

mod address;
mod channel;
mod client;
mod handshake;
mod host;
mod security;

use std::collections::BTreeMap;
use std::time::Duration;

use clap::ValueEnum;
use farreach::{Progress, Settings};
use serde::{Deserialize, Serialize};

use crate::rails::Wish;

pub(crate) use address::PeerAddress;
pub(crate) use channel::{Channel, Received, SOON, patience};
pub(crate) use client::{MESSAGE_MAX, MESSAGES, Rules, Session, call, meet, of_the_server};
pub(crate) use handshake::{Line, Other, handshake, tell_refusal};
pub(crate) use host::host_name;
pub(crate) use security::{SECRET_FILE, Security, SecurityArgs, is_loopback, open_folder, quoted};

/// The first message of an agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Welcome {
    /// The version of the command.
    pub(crate) version: String,
    /// The name of the host, for display.
    pub(crate) host: String,
    /// The rails that the agent opens on request.
    pub(crate) offers: Wish,
}

/// Every parameter of a test. `T` is the task of the agent: the parameters of one command under its
/// name. Only that command interprets them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order<T> {
    /// The version of the command.
    pub(crate) version: String,
    /// The name of the host, for display.
    pub(crate) host: String,
    pub(crate) rails: Wish,
    pub(crate) engine: EngineRules,
    pub(crate) task: T,
}

/// The configuration of both engines.
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

/// The time of silence after which a peer is lost. Hosts under measurement are busy: if many
/// processes need a core each, one was seen to wait for four seconds.
const SILENCE: Duration = Duration::from_secs(6);
const HEARTBEAT: Duration = Duration::from_millis(500);

/// The parameters of a command under its name. A client sends them as the task of an [`Order`]; the
/// agent reads them as an enum of all commands.
pub(crate) type Named<T> = BTreeMap<&'static str, T>;

/// Puts the parameters of a command under its name.
pub(crate) fn named<T>(command: &'static str, parameters: T) -> Named<T> {
    BTreeMap::from([(command, parameters)])
}

/// How a side waits for completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Wait {
    /// Poll: lowest latency, uses a whole core
    Busy,
    /// Sleep until the completion event: least CPU
    Event,
    /// Poll briefly, then sleep
    Adaptive,
}
