//! The session between a client and the agent that serves it: the handshake before a test, and the
//! channel during it.
//!
//! ```text
//! client                                server
//!   head ─────────────────────────────▶ ◀──── head      the versions; an old one is reported
//!                                 ◀──── Welcome         its host, and the rails it offers
//!   ═══════ the connection is closed; the client opens its engine, then connects again ═══════
//!   head, Order ──────────────────────▶ ◀──── head      every parameter of the test
//!                                 ◀──── Welcome
//!                                 ◀──── Notice …        it waits, it is refused, or an agent has it
//!   ═══════ the server hands the connection to an agent; with TLS, a new session begins ═══════
//!                                       agent
//!                                 ◀──── Reply           it is ready, or why not
//!   ═══════ the same connection becomes the engines' control connection ═══════
//!   Channel ◀─────────────────────────▶ Channel         over the rails
//! ```
//!
//! The server's process does everything up to the order, so that a connection without an order needs
//! no agent. The client sends its order at once, because the server limits the time until then, and
//! closes the oldest connections without an order if there are too many.
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
mod theirs;

use std::collections::BTreeMap;
use std::time::Duration;

use clap::ValueEnum;
use farreach::{Progress, Settings};
use serde::{Deserialize, Serialize};

use crate::bounds;
use crate::exit::Failure;
use crate::rails::Wish;

pub(crate) use address::PeerAddress;
#[cfg(fuzzing)]
pub(crate) use channel::understand;
pub(crate) use channel::{Channel, Received, SOON, patience};
pub(crate) use client::{Rules, Session, look, meet, place};
pub(crate) use handshake::{
    HEAD_LEN, Line, Other, TLS_HANDSHAKE, check_head, ended, failure, framed, garbled, head, refusal,
};
pub(crate) use host::host_name;
pub(crate) use security::{SECRET_FILE, Security, SecurityArgs, is_loopback, open_folder};
pub(crate) use theirs::{TheirFailure, of_the_other_side, of_the_server, stopped};

/// The first message of a server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Welcome {
    /// The version of the command.
    #[serde(deserialize_with = "farreach_text::line")]
    pub(crate) version: String,
    /// The name of the host, for display.
    #[serde(deserialize_with = "farreach_text::line")]
    pub(crate) host: String,
    /// The rails that an agent opens on request.
    pub(crate) offers: Wish,
    /// The maximum number of connections of a test.
    pub(crate) connections_max: usize,
}

/// A message of a server to a client that has sent its order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Notice<F = Failure> {
    /// The client waits until an agent can be started. The first notice is this one, at once.
    Waiting {
        /// Connections before this one in the queue.
        ahead: usize,
        /// Clients that are being served.
        served: usize,
    },
    /// The client is not served. A client reads a `TheirFailure`.
    Refused(F),
    /// The server has handed the connection to an agent. This is its last message.
    Served,
}

/// Every parameter of a test. `T` is the task of the agent: the parameters of one command under its
/// name. Only that command interprets them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order<T> {
    /// The version of the command.
    #[serde(deserialize_with = "farreach_text::line")]
    pub(crate) version: String,
    /// The name of the host, for display.
    #[serde(deserialize_with = "farreach_text::line")]
    pub(crate) host: String,
    pub(crate) rails: Wish,
    pub(crate) engine: EngineRules,
    /// A random number. All connections of a test have the same.
    pub(crate) test: u64,
    /// The number of connections of the test. Each has an order and an agent of its own.
    pub(crate) connections: u32,
    /// The time that the test measures, if that is known before.
    #[serde(default)]
    pub(crate) time_ms: u64,
    pub(crate) task: T,
}

impl<T> Order<T> {
    /// Returns the time that the test measures at least.
    pub(crate) fn time(&self) -> Duration {
        Duration::from_millis(self.time_ms)
    }

    /// Returns an error unless every number outside of the task is within its bound.
    pub(crate) fn check_frame(&self) -> Result<(), Failure> {
        bounds::NAME_BYTES.check(self.version.len())?;
        bounds::NAME_BYTES.check(self.host.len())?;
        bounds::CONNECTIONS.check(self.connections)?;
        self.rails.check()?;
        self.engine.check()
    }
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
    /// Returns an error unless every number is within its bound.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        bounds::DEPTH.check(self.depth)?;
        bounds::MESSAGES.check(self.messages)?;
        bounds::MESSAGE_BYTES.check(self.message_bytes_max)
    }

    /// Returns the memory of an engine's messages: the receive buffers of its rails, and the messages
    /// that wait to be received by the test. Outgoing messages are those of the task.
    pub(crate) fn memory_bytes(&self, receive_buffers: u64) -> u64 {
        let messages = receive_buffers.saturating_add(self.messages.into());
        messages.saturating_mul(self.message_bytes_max as u64)
    }

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
