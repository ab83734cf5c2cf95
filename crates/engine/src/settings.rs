//! How an engine is to be.

use std::net::SocketAddr;
use std::time::Duration;

use crate::{Error, Progress};

/// More operations than any card has under way on one link.
const DEPTH_MAX: usize = 1 << 16;

/// What messages that nobody takes may hold of an engine's memory, for each peer.
const MESSAGES_BYTES_MAX: usize = 1 << 30;

/// An engine has buffers for some hundred of the longest messages, all present.
const MESSAGE_MAX: usize = 1 << 20;

/// Shorter, and peers do nothing but to tell each other that they are there.
const HEARTBEAT_MIN: Duration = Duration::from_millis(1);

/// How an engine is to be: which rails it opens, how patient it is, how it waits.
///
/// ```no_run
/// use std::time::Duration;
/// use farreach::{Engine, Settings};
///
/// # fn main() -> Result<(), farreach::Error> {
/// let settings = Settings::new()
///     .name("storage-7")
///     .rails(["mlx5_0", "mlx5_1"])
///     .require_rdma()
///     .heartbeat(Duration::from_millis(500), Duration::from_secs(2));
/// let engine = Engine::with(settings)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Settings {
    pub(crate) name: String,
    pub(crate) rails: Vec<String>,
    pub(crate) require_rdma: bool,
    pub(crate) heartbeat: Duration,
    pub(crate) silence: Duration,
    pub(crate) stall: Duration,
    pub(crate) drain: Duration,
    pub(crate) cool_down: Duration,
    pub(crate) depth: usize,
    pub(crate) messages: u32,
    pub(crate) message_max: usize,
    pub(crate) traffic_class: Option<u8>,
    pub(crate) gid_index: Option<u32>,
    pub(crate) progress: Progress,
    pub(crate) listen: Vec<SocketAddr>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<crate::Tls>,
}

impl Default for Settings {
    fn default() -> Self {
        Self::new()
    }
}

impl Settings {
    /// What serves most.
    pub fn new() -> Self {
        Self {
            name: format!("process {}", std::process::id()),
            rails: Vec::new(),
            require_rdma: false,
            heartbeat: Duration::from_millis(500),
            silence: Duration::from_secs(3),
            stall: Duration::from_secs(5),
            drain: Duration::from_millis(500),
            cool_down: Duration::from_millis(500),
            depth: 128,
            messages: 64,
            message_max: 4096,
            traffic_class: None,
            gid_index: None,
            progress: Progress::Adaptive,
            listen: Vec::new(),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// What it calls itself, for people.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Which rails it opens, by name: a device (`rxe0`, `mlx5_0`), or a provider of libfabric's (`tcp`, `efa`), for tcp with the address to
    /// bind to if wanted (`tcp@10.0.0.7`). By default the cards that are there; where there is none, tcp.
    pub fn rails<T: Into<String>>(mut self, rails: impl IntoIterator<Item = T>) -> Self {
        self.rails = rails.into_iter().map(Into::into).collect();
        self
    }

    /// An error instead of falling back to tcp.
    pub fn require_rdma(mut self) -> Self {
        self.require_rdma = true;
        self
    }

    /// How often peers hear from it at least, and after which silence a peer is lost. Peers learn of both, and speak often enough.
    pub fn heartbeat(mut self, every: Duration, silence: Duration) -> Self {
        (self.heartbeat, self.silence) = (every, silence);
        // A link that hangs is told from a peer that hangs by who is silent.
        self.stall = self.stall.max(silence.saturating_add(every));
        self
    }

    /// After how long a link is lost on which nothing moves, though its peer is well. It is more than the silence of a lost peer.
    pub fn stall(mut self, stall: Duration) -> Self {
        self.stall = stall;
        self
    }

    /// How many operations each link has under way at most: 1 to 65,536.
    pub fn depth(mut self, depth: usize) -> Self {
        self.depth = depth;
        self
    }

    /// How many messages a peer may send before they are taken, and how long one may be: at most 1 MiB, and all together 1 GiB.
    pub fn messages(mut self, count: u32, len_max: usize) -> Self {
        (self.messages, self.message_max) = (count, len_max);
        self
    }

    /// An error where an engine could not be so.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let refuse = |setting, cause: &str| Err(Error::Setting { setting, cause: cause.to_owned() });
        if !(1..=DEPTH_MAX).contains(&self.depth) {
            return refuse("depth", "a link has between 1 and 65,536 operations under way");
        }
        if self.messages == 0 || self.message_max == 0 {
            return refuse("messages", "without any, or without a byte, nobody can send one");
        }
        if self.message_max > MESSAGE_MAX {
            return refuse("messages", "one has at most 1 MiB: grant memory and write what is longer");
        }
        if (self.messages as usize).checked_mul(self.message_max).is_none_or(|all| all > MESSAGES_BYTES_MAX) {
            return refuse("messages", "they could take more than 1 GiB for each peer");
        }
        // A silence that is shorter than the own heartbeat is in order: peers learn of it, and speak often enough.
        if self.heartbeat < HEARTBEAT_MIN || self.silence < HEARTBEAT_MIN {
            return refuse("heartbeat", "a peer can be heard every millisecond, not more often");
        }
        Ok(())
    }

    /// The traffic class of its packets, where a rail has such.
    pub fn traffic_class(mut self, class: u8) -> Self {
        self.traffic_class = Some(class);
        self
    }

    /// The place of the GID that cards of verbs' send from, in their ports' tables. By default each takes the best one.
    pub fn gid_index(mut self, index: u32) -> Self {
        self.gid_index = Some(index);
        self
    }

    /// How it waits.
    pub fn progress(mut self, progress: Progress) -> Self {
        self.progress = progress;
        self
    }

    /// Speaks TLS on its control connections, with those that it connects to, with those that connect, and over streams that were made elsewhere: each
    /// side shows a certificate that the other one's roots vouch for. A peer that does not is refused, and both sides say why. See [`Tls`](crate::Tls).
    ///
    /// **This is not for the data**: pages and messages go over the rails unencrypted, where anyone on their way can read and change them. It keeps
    /// strangers from becoming peers, and the keys of granted memory from those who listen.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use farreach::{Engine, Settings, Tls};
    ///
    /// # fn main() -> Result<(), farreach::Error> {
    /// let tls = Tls::from_files("here.pem", "here.key", "roots.pem")?;
    /// let engine = Engine::with(Settings::new().tls(tls))?;
    /// // Its certificate has to be for the name `storage-7`.
    /// let peer = engine.connect("storage-7:18520")?.wait(Duration::from_secs(5))?;
    /// # drop(peer);
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: crate::Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Listens for peers at this address from the beginning.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen.push(address);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_engine_can_be_is_refused_with_the_setting_that_is_to_change() {
        let ms = Duration::from_millis;
        let refused = [
            Settings::new().depth(0),
            Settings::new().depth(usize::MAX),
            Settings::new().messages(0, 4096),
            Settings::new().messages(4, 0),
            Settings::new().messages(u32::MAX, 4096),
            Settings::new().messages(4, usize::MAX),
            Settings::new().messages(1, MESSAGE_MAX + 1),
            Settings::new().messages(1025, MESSAGE_MAX),
            Settings::new().heartbeat(ms(0), ms(0)),
            Settings::new().heartbeat(ms(500), ms(0)),
        ];
        for settings in refused {
            let error = crate::Engine::with(settings).unwrap_err();
            assert!(matches!(error, Error::Setting { .. }), "{error:?}");
        }
        for settings in [
            Settings::new(),
            Settings::new().depth(DEPTH_MAX).messages(1024, MESSAGE_MAX),
            Settings::new().heartbeat(Duration::MAX, Duration::MAX),
            Settings::new().heartbeat(ms(500), ms(100)),
        ] {
            settings.check().unwrap();
        }
    }
}
