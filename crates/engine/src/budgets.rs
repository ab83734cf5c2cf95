//! Budgets: how much peers and strangers may cause an engine to hold and to do.

use farreach_proto::machine;
use farreach_proto::wire::FRAME_MAX;

use crate::Error;

/// How much peers and strangers may ask of an [`Engine`](crate::Engine). Each budget has a default
/// that suits an ordinary service.
///
/// A peer that exceeds one of its budgets is lost, with an error that names the budget. Other peers
/// are not affected. An engine announces the numbers of grants and counters that it accepts, so a
/// peer of the same release that reaches one gets an error of its own instead.
///
/// Budgets per address count the addresses of one host as one, as far as they tell the host: an address
/// is one IPv4 address, one IPv6 network of 64 bits, or loopback with all its addresses. Hosts behind a
/// translation of addresses, or in one such network, share their budgets.
///
/// A stranger that exceeds a budget of [accepted](crate::Engine::accept) connections is refused.
/// A wait for the next peer that times out returns an error that names the budget.
///
/// ```
/// use farreach::{Budgets, Settings};
///
/// let settings = Settings::new().budgets(Budgets::new().peers(64).grants(100_000));
/// # drop(settings);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Budgets {
    pub(crate) of_peer: machine::Budgets,
    pub(crate) control: ControlBudgets,
}

/// The minimum of [`Budgets::bytes_per_second`]: a peer must not be taken for a silent one while its
/// longest frame arrives.
const BYTES_PER_SECOND_MIN: u64 = 2 * FRAME_MAX as u64;

/// The minimum of [`Budgets::queued_bytes`]: what an engine sends while peers are busy for a moment.
const QUEUED_BYTES_MIN: u64 = 1 << 20;

/// Budgets of control connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ControlBudgets {
    pub(crate) peers: u32,
    pub(crate) peers_per_address: u32,
    pub(crate) handshakes: u32,
    pub(crate) handshakes_per_address: u32,
    pub(crate) frames_per_second: u32,
    pub(crate) bytes_per_second: u64,
    pub(crate) queued_bytes: u64,
}

impl Default for ControlBudgets {
    fn default() -> Self {
        Self {
            peers: 4096,
            peers_per_address: 1024,
            handshakes: 512,
            handshakes_per_address: 128,
            // An honest peer sends up to one frame for each message that it receives, and less if
            // several come at once. No card has this many round trips.
            frames_per_second: 500_000,
            bytes_per_second: 64 << 20,
            queued_bytes: 64 << 20,
        }
    }
}

impl Default for Budgets {
    fn default() -> Self {
        Self::new()
    }
}

impl Budgets {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self { of_peer: machine::Budgets::default(), control: ControlBudgets::default() }
    }

    /// Sets how many peers may be connected to the addresses on which this engine listens. The
    /// default is 4,096. Peers that this engine has connected to do not count, and neither do those
    /// over streams of the program ([`accept_over`](crate::Engine::accept_over)). One beyond is
    /// refused, and both sides get an error that names this budget.
    ///
    /// Each peer takes at least one descriptor: see `ulimit -n`.
    pub fn peers(mut self, count: u32) -> Self {
        self.control.peers = count;
        self
    }

    /// Sets how many of these peers may have the same [address](Self). The default is 1,024.
    pub fn peers_per_address(mut self, count: u32) -> Self {
        self.control.peers_per_address = count;
        self
    }

    /// Sets how many accepted connections may be in their handshake: from their beginning until
    /// the peer's engine has introduced itself. The default is 512. A connection beyond it ends the
    /// oldest handshake from the same [address](Self), or else the oldest of all, so that idle
    /// strangers cannot keep others out. A handshake that takes longer than
    /// [`peer_timeout`](crate::Settings::peer_timeout) is ended, too.
    pub fn handshakes(mut self, count: u32) -> Self {
        self.control.handshakes = count;
        self
    }

    /// Sets how many of these connections may have the same [address](Self). The default is 128. More
    /// are possible for 100 ms, because many processes of one host may connect at the same moment.
    pub fn handshakes_per_address(mut self, count: u32) -> Self {
        self.control.handshakes_per_address = count;
        self
    }

    /// Sets how many frames a second this engine reads from one control connection, and how many at
    /// once after a pause: at least 1. The default is 500,000. A peer that sends more is slowed
    /// down, and is not lost for that.
    ///
    /// As many reads of the connection are allowed, and over TLS each record counts as one: a frame in
    /// records of a byte costs more than its bytes. A peer whose records have no content is lost.
    ///
    /// A message costs up to one frame of its receiver. Pages cost none.
    pub fn frames_per_second(mut self, count: u32) -> Self {
        self.control.frames_per_second = count;
        self
    }

    /// Sets how many bytes a second this engine reads from one control connection, and how many at
    /// once after a pause: at least 128 KiB. The default is 64 MiB. A peer that sends more is slowed
    /// down, and is not lost for that.
    pub fn bytes_per_second(mut self, count: u64) -> Self {
        self.control.bytes_per_second = count;
        self
    }

    /// Sets how many bytes may be queued for peers that do not read, over all control connections:
    /// at least 1 MiB. The default is 64 MiB. Beyond it, the connection with the most bytes is
    /// closed, and its peer is lost. One connection may have at most 16 MiB.
    pub fn queued_bytes(mut self, count: u64) -> Self {
        self.control.queued_bytes = count;
        self
    }

    /// Sets how many rails a peer may announce. The default is 64.
    pub fn rails(mut self, count: u32) -> Self {
        self.of_peer.rails = count;
        self
    }

    /// Sets how many grants a peer may have given to this engine at a time. The default is 16,384.
    pub fn grants(mut self, count: u32) -> Self {
        self.of_peer.grants = count;
        self
    }

    /// Sets how many counters a peer may have open for this engine at a time. The default is
    /// 16,384.
    pub fn counters(mut self, count: u32) -> Self {
        self.of_peer.counters = count;
        self
    }

    /// Sets how many resets of a rail a peer may cause within a minute. The default is 8. Only
    /// rails on which peers share an endpoint are ever reset.
    pub fn resets(mut self, count: u32) -> Self {
        self.of_peer.resets = count;
        self
    }

    /// Returns an error if a budget has a value with which no peer could connect.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let control = &self.control;
        // The others may be 0: peers can connect all the same.
        let needed = [
            ("peers", control.peers),
            ("peers_per_address", control.peers_per_address),
            ("handshakes", control.handshakes),
            ("handshakes_per_address", control.handshakes_per_address),
            ("frames_per_second", control.frames_per_second),
            ("rails", self.of_peer.rails),
        ];
        if let Some((budget, _)) = needed.iter().find(|(_, count)| *count == 0) {
            let cause = format!("with `Budgets::{budget}` of 0, no peer can connect");
            return Err(Error::setting("budgets", &cause));
        }
        if control.bytes_per_second < BYTES_PER_SECOND_MIN {
            return Err(Error::setting("budgets", "`Budgets::bytes_per_second` is less than 128 KiB"));
        }
        if control.queued_bytes < QUEUED_BYTES_MIN {
            return Err(Error::setting("budgets", "`Budgets::queued_bytes` is less than 1 MiB"));
        }
        Ok(())
    }
}
