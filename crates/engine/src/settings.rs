//! Configuration of an engine.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use farreach_proto::machine::NAME_MAX;

use crate::address::is_loopback;
use crate::{Budgets, Error, Progress};

/// The maximum of [`Settings::depth`]: more operations than any card has in flight on one link.
const DEPTH_MAX: usize = 1 << 16;

/// The limit of the memory that messages of one peer may take until the program receives them.
const MESSAGES_BYTES_MAX: usize = 1 << 30;

/// The limit of a message's length. An engine allocates buffers for some hundred messages of the
/// longest kind when it starts.
const MESSAGE_MAX: usize = 1 << 20;

/// The shortest heartbeat interval. With a shorter one, peers would be busy with pings.
const HEARTBEAT_MIN: Duration = Duration::from_millis(1);

/// The default timeout of a link.
const LINK_TIMEOUT: Duration = Duration::from_secs(5);

/// Configuration of an [`Engine`](crate::Engine): its rails, timeouts, limits, and how it waits.
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
///     .peer_timeout(Duration::from_secs(2));
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
    pub(crate) shm_dir: Option<PathBuf>,
    pub(crate) heartbeat: Duration,
    pub(crate) silence: Duration,
    link_timeout: Option<Duration>,
    pub(crate) drain: Duration,
    pub(crate) cool_down: Duration,
    pub(crate) depth: usize,
    pub(crate) messages: u32,
    pub(crate) message_max: usize,
    pub(crate) traffic_class: Option<u8>,
    pub(crate) service_level: u8,
    pub(crate) gid_index: Option<u32>,
    pub(crate) progress: Progress,
    pub(crate) listen: Vec<SocketAddr>,
    pub(crate) budgets: Budgets,
    pub(crate) isolate_peers: bool,
    pub(crate) insecure: bool,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<crate::Tls>,
}

impl Default for Settings {
    fn default() -> Self {
        Self::new()
    }
}

impl Settings {
    /// Returns the default configuration.
    pub fn new() -> Self {
        Self {
            name: format!("process {}", std::process::id()),
            rails: Vec::new(),
            require_rdma: false,
            shm_dir: None,
            heartbeat: Duration::from_millis(500),
            silence: Duration::from_secs(3),
            link_timeout: None,
            drain: Duration::from_millis(500),
            cool_down: Duration::from_millis(500),
            depth: 128,
            messages: 64,
            message_max: 4096,
            traffic_class: None,
            service_level: 0,
            gid_index: None,
            progress: Progress::Adaptive,
            listen: Vec::new(),
            budgets: Budgets::new(),
            isolate_peers: true,
            insecure: false,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Sets the name that the engine announces to its peers. The default is `process` and the
    /// process id.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the rails to open. Each is an RDMA device (`rxe0`, `mlx5_0`), a libfabric provider
    /// (`tcp`, `efa`), or `shm`; tcp may be followed by the address to bind to (`tcp@10.0.0.7`). By
    /// default the engine opens `shm`, and every RDMA device, or tcp if there is none.
    ///
    /// `shm` connects processes of one user on one host, over memory that both map. It needs no
    /// library. Two engines that can be connected over it use it alone. Memory that is granted over it
    /// must be whole pages that [`Engine::allocate`](crate::Engine::allocate) has allocated, without
    /// huge pages of the kernel's pool; other memory is granted over another rail that both have.
    pub fn rails<T: Into<String>>(mut self, rails: impl IntoIterator<Item = T>) -> Self {
        self.rails = rails.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the directory in which engines find each other for the rail `shm`, for processes in
    /// containers of one host.
    ///
    /// By default, engines meet over a socket that belongs to their network namespace, so engines in
    /// two containers are not connected over `shm`. With this setting, they meet over socket files in a
    /// directory that both containers mount, such as a volume. Both sides must set it, to the same
    /// directory; its path may differ. They must still run as the same user of the host, on the same
    /// host. Before Linux 6.5, they must also share a pid namespace.
    ///
    /// The directory must belong to the user of the process or to root, and others must not be able to
    /// write to it, unless it is sticky as `/tmp` is: `mkdir -m 700` creates one. If it cannot be used,
    /// opening the engine fails. The engine removes its file when it is dropped, and those of engines
    /// that were killed when it is opened. Files of an earlier boot of the host stay, because they could
    /// be those of another host: use a directory that does not outlive the boot, such as one in `/run`.
    /// Without the rail `shm`, the setting has no effect.
    ///
    /// ```
    /// use farreach::{Engine, Settings};
    ///
    /// # let volume = tempfile::tempdir()?;
    /// # let path = volume.path();
    /// // In both containers, `path` is where the shared volume is mounted.
    /// let engine = Engine::with(Settings::new().rails(["shm"]).shm_dir(path))?;
    /// # drop(engine);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shm_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.shm_dir = Some(directory.into());
        self
    }

    /// Makes opening an engine fail if there is no RDMA device, instead of falling back to tcp. No
    /// other rail is opened, also not within this host.
    pub fn require_rdma(mut self) -> Self {
        self.require_rdma = true;
        self
    }

    /// Sets the silence after which this engine pings a peer that something waits for: at least 1 ms.
    /// The default is 500 ms. At most a third of [`peer_timeout`](Self::peer_timeout) is used.
    ///
    /// Operations in flight wait for their peer, and so do waits for a message, for pages, and for the
    /// end of a grant. A peer that nothing waits for is pinged every 10 s.
    pub fn heartbeat(mut self, interval: Duration) -> Self {
        self.heartbeat = interval;
        self
    }

    /// Sets the silence after which a peer that something waits for is lost: at least 1 ms. The default
    /// is 3 s. It counts from the beginning of the wait if the peer was silent before. A peer that
    /// nothing waits for is lost within 18 s with the defaults. If the process of the peer ends, its
    /// connection is closed, and it is lost at once.
    pub fn peer_timeout(mut self, silence: Duration) -> Self {
        self.silence = silence;
        self
    }

    /// Sets the time after which a link is lost if nothing completes on it although its peer
    /// answers. The default is 5 s, or the sum of [`peer_timeout`](Self::peer_timeout) and
    /// [`heartbeat`](Self::heartbeat) if that is longer, so that the loss of the peer is noticed
    /// first.
    pub fn link_timeout(mut self, timeout: Duration) -> Self {
        self.link_timeout = Some(timeout);
        self
    }

    /// Returns the timeout of a link in effect.
    pub(crate) fn stall(&self) -> Duration {
        let longer_than_peer = self.silence.saturating_add(self.heartbeat);
        self.link_timeout.unwrap_or(LINK_TIMEOUT.max(longer_than_peer))
    }

    /// Sets the maximum number of operations in flight on each link: 1 to 65,536. The default is
    /// 128.
    pub fn depth(mut self, depth: usize) -> Self {
        self.depth = depth;
        self
    }

    /// Sets the number of messages that a peer may send before the program receives the first: at
    /// least 1. The default is 64. The window times [`message_max`](Self::message_max) must not
    /// exceed 1 GiB.
    pub fn message_window(mut self, count: u32) -> Self {
        self.messages = count;
        self
    }

    /// Sets the maximum length of a message in bytes: 1 to 1 MiB. The default is 4096.
    pub fn message_max(mut self, len: usize) -> Self {
        self.message_max = len;
        self
    }

    /// Sets how much peers may ask of the engine. See [`Budgets`].
    pub fn budgets(mut self, budgets: Budgets) -> Self {
        self.budgets = budgets;
        self
    }

    /// Sets whether each peer is separated from the others where the transport can do that. The
    /// default is `true`.
    ///
    /// Over tcp, each link then has an endpoint and a domain of its own: a key that a peer was given
    /// is of no use to another peer, an immediate raises only a counter of the peer that sent it, and
    /// a link that fails or is closed costs the other peers nothing. It costs 7 file descriptors and
    /// 70 KB of buffers for each link, and memory of the library: 0.6 MB with libfabric 1.17, and
    /// 17 MB with 2.x, unless the environment has `FI_TCP_MAX_RX_SIZE=128` (0.6 MB). With `false`,
    /// all peers of a rail share one endpoint; use it for hundreds of peers that trust each other.
    ///
    /// Over verbs, each key is then a memory window of type 2 that is bound to the link of its peer.
    /// It costs a window of the card for each grant and link. An engine
    /// [warns](crate::Engine::warnings) if a card has no such windows.
    pub fn isolate_peers(mut self, is_isolating: bool) -> Self {
        self.isolate_peers = is_isolating;
        self
    }

    /// Returns an error if a setting has a value that an engine cannot have.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let refuse = |setting, cause: &str| Err(Error::setting(setting, cause));
        // With a depth of 0, nothing could ever be posted.
        if !(1..=DEPTH_MAX).contains(&self.depth) {
            return refuse("depth", "it is not between 1 and 65,536 operations");
        }
        // The window is announced to peers as the number of messages that they may send.
        if self.messages == 0 {
            return refuse("message_window", "with a window of 0, no message can be sent");
        }
        if !(1..=MESSAGE_MAX).contains(&self.message_max) {
            return refuse(
                "message_max",
                "it is not between 1 byte and 1 MiB; for more, grant memory and write to it",
            );
        }
        // A peer may fill the window before the program takes a message.
        if (self.messages as usize).checked_mul(self.message_max).is_none_or(|all| all > MESSAGES_BYTES_MAX) {
            return refuse("message_window", "the window times the maximum message length exceeds 1 GiB");
        }
        // Peers refuse an introduction with a longer name.
        if self.name.len() > NAME_MAX {
            return refuse("name", "it is longer than 255 bytes");
        }
        self.budgets.check()?;
        // A packet has four bits for it.
        if self.service_level > 15 {
            return refuse("service_level", "it is not between 0 and 15");
        }
        // A timeout that is shorter than the heartbeat interval is allowed: peers are pinged often
        // enough.
        if self.heartbeat < HEARTBEAT_MIN {
            return refuse("heartbeat", "it is shorter than the minimum of 1 ms");
        }
        if self.silence < HEARTBEAT_MIN {
            return refuse("peer_timeout", "it is shorter than the minimum of 1 ms");
        }
        // Before rails are opened, which is slow.
        match self.listen.iter().find(|address| !self.may_use(address.ip())) {
            Some(address) => Err(Error::insecure(format_args!("listen on {address}"))),
            None => Ok(()),
        }
    }

    /// Returns whether TLS is configured.
    pub(crate) fn has_tls(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        false
    }

    /// Returns whether control connections at this address are allowed: over TLS, within this host,
    /// or because the program allows clear text.
    pub(crate) fn may_use(&self, address: IpAddr) -> bool {
        self.has_tls() || self.insecure || is_loopback(address)
    }

    /// Sets the traffic class of packets, on rails that have one: DSCP in the upper six bits, ECN in
    /// the lower two.
    pub fn traffic_class(mut self, class: u8) -> Self {
        self.traffic_class = Some(class);
        self
    }

    /// Sets the service level of packets on verbs rails: 0 to 15. It selects the virtual lane in an
    /// InfiniBand subnet; on RoCE, it is the priority in a VLAN.
    pub fn service_level(mut self, level: u8) -> Self {
        self.service_level = level;
        self
    }

    /// Sets the index of the source GID in the port's table, on verbs devices. By default the best
    /// one is chosen.
    pub fn gid_index(mut self, index: u32) -> Self {
        self.gid_index = Some(index);
        self
    }

    /// Sets the waiting strategy of waiting threads and of the worker.
    pub fn progress(mut self, progress: Progress) -> Self {
        self.progress = progress;
        self
    }

    /// Uses TLS for control connections: those that this engine makes, those that it accepts, and
    /// those that were established elsewhere. Each side presents a certificate, which one of the
    /// other side's roots must have issued. A peer without one is refused, and both sides report
    /// why. See [`Tls`](crate::Tls).
    ///
    /// **Data is not encrypted**: pages and messages go over the rails as they are, and anyone on
    /// their path can read and change them. TLS keeps strangers from becoming peers, and the keys
    /// of granted memory from eavesdroppers.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use farreach::{Engine, Settings, Tls, TlsParts};
    ///
    /// # fn main() -> Result<(), farreach::Error> {
    /// let tls = Tls::from_files(TlsParts { certificate: "here.pem", key: "here.key", roots: "roots.pem" })?;
    /// let engine = Engine::with(Settings::new().tls(tls))?;
    /// // The certificate of the peer must be for the name `storage-7`.
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

    /// Uses TLS with a shared secret instead of certificates, for control connections as in
    /// [`tls`](Self::tls), which it replaces. Peers need the same secret, and nothing else. See
    /// [`Secret`](crate::Secret) for what it protects, and what not.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use farreach::{Engine, Secret, Settings};
    ///
    /// # fn main() -> Result<(), farreach::Error> {
    /// let secret = Secret::from_file("/etc/farreach/secret")?;
    /// let engine = Engine::with(Settings::new().secret(secret))?;
    /// let peer = engine.connect("storage-7:18520")?.wait(Duration::from_secs(5))?;
    /// # drop(peer);
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "tls")]
    pub fn secret(self, secret: crate::Secret) -> Self {
        self.tls(crate::Tls::from_secret(secret))
    }

    /// Allows control connections in clear text beyond this host.
    ///
    /// By default, an engine without [`secret`](Self::secret) or [`tls`](Self::tls) listens on and
    /// connects to loopback addresses (127.0.0.0/8 and `::1`) only; anything else is an error of the
    /// kind [`ErrorKind::Insecure`](crate::ErrorKind::Insecure). With this setting, anyone who
    /// reaches the engine can become its peer, and anyone on the path can read the keys of granted
    /// memory, change frames, and act as the peer. It has no effect on connections over TLS.
    ///
    /// Each listener and each connection in clear text adds a warning
    /// ([`Engine::warnings`](crate::Engine::warnings)).
    ///
    /// ```no_run
    /// use farreach::{Engine, Settings};
    ///
    /// # fn main() -> Result<(), farreach::Error> {
    /// // A network of its own, between two hosts.
    /// let engine = Engine::with(Settings::new().insecure())?;
    /// engine.listen("10.0.0.7:18520")?;
    /// for warning in engine.warnings() {
    ///     eprintln!("warning: {warning}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn insecure(mut self) -> Self {
        self.insecure = true;
        self
    }

    /// Listens for peers at this address from the start. Can be called for several addresses.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen.push(address);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_times_out_after_its_peer_unless_the_program_says_otherwise() {
        let seconds = Duration::from_secs;
        assert_eq!(Settings::new().stall(), seconds(5));
        let patient = Settings::new().heartbeat(seconds(2)).peer_timeout(seconds(8));
        assert_eq!(patient.stall(), seconds(10));
        assert_eq!(patient.link_timeout(seconds(3)).stall(), seconds(3));
    }

    #[test]
    fn what_no_engine_can_be_is_refused_with_the_setting_that_is_to_change() {
        let ms = Duration::from_millis;
        let refused = [
            Settings::new().depth(0),
            Settings::new().name("x".repeat(NAME_MAX + 1)),
            Settings::new().budgets(Budgets::new().rails(0)),
            Settings::new().budgets(Budgets::new().peers(0)),
            Settings::new().budgets(Budgets::new().peers_per_address(0)),
            Settings::new().budgets(Budgets::new().handshakes(0)),
            Settings::new().budgets(Budgets::new().handshakes_per_address(0)),
            Settings::new().budgets(Budgets::new().frames_per_second(0)),
            Settings::new().budgets(Budgets::new().bytes_per_second((128 << 10) - 1)),
            Settings::new().budgets(Budgets::new().queued_bytes((1 << 20) - 1)),
            Settings::new().service_level(16),
            Settings::new().depth(usize::MAX),
            Settings::new().message_window(0),
            Settings::new().message_max(0),
            Settings::new().message_window(u32::MAX),
            Settings::new().message_max(usize::MAX),
            Settings::new().message_max(MESSAGE_MAX + 1),
            Settings::new().message_window(1025).message_max(MESSAGE_MAX),
            Settings::new().heartbeat(ms(0)),
            Settings::new().peer_timeout(ms(0)),
        ];
        for settings in refused {
            let error = crate::Engine::with(settings).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Setting, "{error:?}");
        }
        for settings in [
            Settings::new(),
            Settings::new().name("x".repeat(NAME_MAX)).budgets(Budgets::new().grants(0)),
            Settings::new().budgets(Budgets::new().frames_per_second(1).bytes_per_second(128 << 10)),
            Settings::new().budgets(Budgets::new().queued_bytes(1 << 20)),
            Settings::new().depth(DEPTH_MAX).message_window(1024).message_max(MESSAGE_MAX),
            Settings::new().heartbeat(Duration::MAX).peer_timeout(Duration::MAX),
            Settings::new().peer_timeout(ms(100)),
        ] {
            settings.check().unwrap();
        }
    }

    #[test]
    fn who_listens_in_clear_text_says_so() {
        let at = |address: &str| Settings::new().listen(address.parse().unwrap());
        for address in ["0.0.0.0:0", "[::]:0", "10.0.0.7:0", "[fe80::1]:0"] {
            let error = at(address).check().unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Insecure, "{error:?}");
            assert!(error.to_string().starts_with(&format!("listen on {address}: ")), "{error}");
            at(address).insecure().check().unwrap();
        }
        at("127.0.0.1:0").listen("[::1]:0".parse().unwrap()).check().unwrap();
        at("127.0.0.1:0").listen("[::]:0".parse().unwrap()).check().unwrap_err();
    }
}
