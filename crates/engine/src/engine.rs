//! The engine: rails, peers, memory, and the worker thread.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use farreach_proto::machine::{Machine, MessageHeader, PeerKey, Tuning};
use farreach_proto::time::Time;
use farreach_proto::wire::Hello;
use farreach_rail::{Carrier, Properties, Rail};
use rustix::rand::GetRandomFlags;

use crate::address::{host_of, is_loopback, name_in, resolve};
use crate::background::Background;
use crate::control::{Control, ControlStream, RecordLayer};
use crate::delivery::Waiter;
use crate::driver::{AcceptBacklog, Command, Connected, Driver};
use crate::error::Error;
use crate::hung_call::{LibraryCalls, Timeout};
use crate::news::News;
use crate::peer::Peers;
use crate::pending::{Answer, Making, Pending};
use crate::progress::{Awaited, LeaderFollowers, Listener, oneshot, wake_all};
use crate::rails::open::{self, ChosenRails};
use crate::running::Running;
use crate::time::nanoseconds;
use crate::warning::{Warning, WarningKind, Warnings};
use crate::watch::{PeerCell, Watcher};
use crate::{
    Access, Exposed, GrantError, Memory, MemoryOptions, Peer, Publication, Published, Rights, Settings,
    Shared, Slice,
};

/// The engine of a process: rails to peers, registered memory, and a worker thread that drives them
/// when no caller waits. All clones refer to the same engine.
///
/// An engine runs as long as a clone, a peer, a grant, a counter or a [`Pending`] of it exists.
/// Dropping the last one sends a goodbye to peers that have nothing in flight, and waits for nothing
/// but the worker, which closes the rails: for at most five seconds, if a library does not return.
/// [`close`](Self::close) ends the engine in order.
///
/// Any number of threads can use an engine. One of them drives it at a time, so that more threads make
/// it no faster. Threads that need a rate of their own open an engine each; memory that one of them has
/// allocated is registered with the others by [`register`](Self::register).
///
/// ```no_run
/// use std::time::Duration;
/// use farreach::Engine;
///
/// # fn main() -> Result<(), farreach::Error> {
/// let engine = Engine::new()?;
/// println!("{}", engine.rails().join(", "));
/// let address = engine.listen("127.0.0.1:18520")?;
/// println!("listening at {address}");
/// let peer = engine.accept().wait(Duration::from_secs(60))?;
/// # drop(peer);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    progress: Arc<Running>,
    backlog: Arc<AcceptBacklog>,
    roster: Arc<Peers>,
    rails: Vec<Properties>,
    /// What the engine was opened with.
    settings: Settings,
    allocations: Arc<Background>,
    resolutions: Arc<Background>,
}

impl Inner {
    /// Ends waits for any peer when the last one is lost.
    fn note_close(&self) {
        let mut wakers = Vec::new();
        // First: whoever is woken by the notification must find that no peer will follow.
        self.roster.news().close(&mut wakers);
        self.backlog.watch.notify(&mut wakers);
        wake_all(wakers);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.note_close();
    }
}

impl Engine {
    /// Opens an engine with the default [`Settings`].
    pub fn new() -> Result<Self, Error> {
        Self::with(Settings::new())
    }

    /// Opens an engine with these settings. Blocks while the rails are opened.
    pub fn with(settings: Settings) -> Result<Self, Error> {
        settings.check()?;
        let ChosenRails { rails, warnings } = open::rails(&settings)?;
        let engine = Self::over(rails, settings)?;
        warnings.into_iter().for_each(|warning| engine.0.progress.warn(warning));
        Ok(engine)
    }

    /// Opens an engine over rails that the caller has opened. For tests, and for rails of other
    /// kinds.
    #[doc(hidden)]
    pub fn over(rails: Vec<Box<dyn Rail>>, settings: Settings) -> Result<Self, Error> {
        // `with` has checked before it opened the rails. Callers of this function have opened their
        // own.
        settings.check()?;
        let system = |operation| move |error: std::io::Error| Error::system(operation, error);
        let incarnation = u64::from_ne_bytes(random().map_err(system("draw random numbers"))?);
        let hello = Hello { name: settings.name.clone(), ..Hello::new(incarnation) };
        let tuning = tuning(&settings, &rails);
        let carrier = Carrier::new(rails, tuning.message_max)?;
        // Ids of grants and marks of messages are drawn from it. A peer that could predict them
        // could name what was given to others.
        let seed = random().map_err(system("draw random numbers"))?;
        let machine = Machine::new(carrier.infos(), hello, tuning, seed);
        let rails: Vec<Properties> = machine.rails().cloned().collect();
        let mut control =
            Control::new(&settings.budgets.control).map_err(system("open the control channel"))?;
        control.set_handshake_timeout(settings.silence);
        #[cfg(feature = "tls")]
        if let Some(tls) = &settings.tls {
            control.accept_over_tls(tls.clone());
        }
        // As many lost peers may wait to be accepted as may be connected.
        let backlog = Arc::new(AcceptBacklog::new(settings.budgets.control.peers as usize));
        let news = Arc::new(News::default());
        let roster = Arc::new(Peers::new(Arc::clone(&news)));
        let driver = Driver::new(machine, carrier, control, Arc::clone(&backlog), news)
            .map_err(system("watch the rails"))?;
        // Callers give their deadlines in the time of the machine.
        let start = driver.start();
        let calls = LibraryCalls::new(driver.carrier.current_call(), Arc::clone(&driver.in_call));
        let progress = Arc::new(LeaderFollowers::new(driver, settings.progress));
        progress.start_worker().map_err(system("start the worker"))?;
        let (listen, warnings) = (settings.listen.clone(), Warnings::default());
        #[cfg(feature = "tls")]
        settings.tls.iter().flat_map(crate::Tls::warnings).for_each(|warning| warnings.add(warning));
        // A program that shares endpoints among its peers trusts them, and needs no warning.
        if settings.isolate_peers {
            shared_keys(&rails).for_each(|warning| warnings.add(warning));
        }
        let performs_max = rails.iter().map(|rail| rail.performs_max).max().unwrap_or(0);
        let progress = Running::new(progress, calls, warnings, performs_max, start);
        let [allocations, resolutions] = ["farreach-alloc", "farreach-names"].map(Background::new);
        let inner = Inner { progress, backlog, roster, rails, settings, allocations, resolutions };
        let engine = Self(Arc::new(inner));
        // Last: strangers are answered from here on, and an error drops all of the engine.
        for address in listen {
            engine.listen(address)?;
        }
        Ok(engine)
    }

    /// Returns the names of the rails.
    pub fn rails(&self) -> Vec<String> {
        self.0.rails.iter().map(|rail| rail.name.clone()).collect()
    }

    /// Returns what each rail can do. For tests.
    #[doc(hidden)]
    pub fn rail_properties(&self) -> &[Properties] {
        &self.0.rails
    }

    /// Returns the warnings since the engine was opened, the last 64 of them: connections in clear
    /// text beyond this host, which [`Settings::insecure`] allows, a certificate of this side that
    /// expires soon, and a call into the library of a rail that does not return. Such a call is
    /// noticed by this function, and by waits that time out meanwhile.
    ///
    /// ```no_run
    /// # fn warn(engine: &farreach::Engine) {
    /// for warning in engine.warnings() {
    ///     eprintln!("warning: {warning}; {}", warning.fix());
    /// }
    /// # }
    /// ```
    pub fn warnings(&self) -> Vec<Warning> {
        self.0.progress.warnings()
    }

    /// Refuses a connection in clear text beyond this host, or warns of it.
    fn check_clear_text(&self, operation: &str, address: SocketAddr) -> Result<(), Error> {
        let settings = &self.0.settings;
        let shown = SocketAddr::new(address.ip().to_canonical(), address.port());
        if !settings.may_use(address.ip()) {
            return Err(Error::insecure(format_args!("{operation} {shown}")));
        }
        // `Settings::insecure` allows it. The warning makes sure that an operator can see it.
        if !settings.has_tls() && !is_loopback(address.ip()) {
            let message =
                format!("{operation} {shown}: the control connection is neither encrypted nor authenticated");
            let fix = "give both sides a secret (`Settings::secret`) or certificates (`Settings::tls`), instead of \
                       `Settings::insecure`";
            self.0.progress.warn(Warning::new(WarningKind::Insecure, message, fix));
        }
        Ok(())
    }

    /// Listens for peers. Returns the address, with the port that was chosen if port 0 was given.
    /// Blocks for a step of the engine.
    ///
    /// Beyond loopback, the engine needs [`Settings::secret`] or [`Settings::tls`], or
    /// [`Settings::insecure`].
    pub fn listen(&self, address: impl ToSocketAddrs + fmt::Debug) -> Result<SocketAddr, Error> {
        let (address, _) = resolve(address)?;
        self.check_clear_text("listen on", address)?;
        let listening = self.0.progress.call(move |driver, _| driver.listen(address))?;
        listening.map_err(|error| Error::system(format_args!("listen on {address}"), error))
    }

    /// Connects to a peer. The result is available when both engines have exchanged their names and
    /// a link is ready. Dropping the `Pending` before ends the connection.
    ///
    /// A name is resolved by another thread, and if that fails, the result is the error. (An address of a
    /// type of the program, which implements [`ToSocketAddrs`] itself, is resolved in this call.)
    ///
    /// Beyond loopback, the engine needs [`Settings::secret`] or [`Settings::tls`], or
    /// [`Settings::insecure`]: it cannot know who answers otherwise, and grants memory to whoever
    /// does.
    pub fn connect(&self, address: impl ToSocketAddrs + fmt::Debug) -> Result<Pending<Peer>, Error> {
        // `ToSocketAddrs` tells nothing before it resolves the name, which may block a task for
        // seconds. How the address is printed tells whether it has one.
        if let Some((name, port)) = name_in(&format!("{address:?}")) {
            return self.connect_by_name(name, port);
        }
        let (address, text) = resolve(address)?;
        self.check_clear_text("connect to", address)?;
        let record_layer = self.record_layer_for(&host_of(&text, address))?;
        Ok(self.connecting(address, move |driver, sender| driver.connect(address, record_layer, sender)))
    }

    /// Connects to the first address of a name. Resolving it may take seconds.
    fn connect_by_name(&self, name: &str, port: u16) -> Result<Pending<Peer>, Error> {
        let (sender, receiver) = oneshot::channel();
        let (address, name) = (Target::named(name, port), name.to_owned());
        let (engine, found) = (Arc::downgrade(&self.0), Arc::clone(&address.found));
        // The certificate must be for the name as it was given. The address is what a name server
        // says.
        let record_layer = self.record_layer_for(&name)?;
        self.0.resolutions.run(move || {
            let resolved = resolve(format!("{name}:{port}"));
            // Without it, nobody waits for the peer.
            let Some(engine) = engine.upgrade().map(Self) else { return };
            let checked = resolved.and_then(|(address, _)| {
                engine.check_clear_text("connect to", address)?;
                Ok(address)
            });
            let call = move |driver: &mut Driver, _: Time| match checked {
                Ok(address) => {
                    // A name is resolved once, so this is the only value.
                    let _ = found.set(address);
                    driver.connect(address, record_layer, sender);
                }
                Err(error) => driver.answer(sender, Err(error)),
            };
            engine.0.progress.queue(Command::Call(Box::new(call)));
        });
        Ok(self.peer_of(address, receiver))
    }

    /// Connects to a peer over a connection that the program has established. The other side calls
    /// [`accept_over`](Self::accept_over), within two minutes. Both sides may have used the
    /// connection before. From now on it belongs to the engines. Beyond loopback, it needs TLS as in
    /// [`connect`](Self::connect): that of the stream ([`ControlStream`]), or that of the settings.
    ///
    /// ```no_run
    /// use std::io::Write;
    /// use std::net::TcpStream;
    /// use std::time::Duration;
    /// use farreach::Engine;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut stream = TcpStream::connect("127.0.0.1:18520")?;
    /// stream.write_all(b"two rails, please\n")?;
    /// let engine = Engine::new()?;
    /// let peer = engine.connect_over(stream)?.wait(Duration::from_secs(5))?;
    /// println!("{}", peer.name());
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect_over(&self, stream: impl Into<ControlStream>) -> Result<Pending<Peer>, Error> {
        self.adopt(stream.into(), true)
    }

    /// Accepts a peer over a connection that the program has established; see
    /// [`connect_over`](Self::connect_over). The peer is returned here, and not by
    /// [`accept`](Self::accept).
    ///
    /// ```no_run
    /// use std::io::Read;
    /// use std::net::TcpListener;
    /// use std::time::Duration;
    /// use farreach::Engine;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (mut stream, _) = TcpListener::bind("127.0.0.1:18520")?.accept()?;
    /// let mut wish = [0; b"two rails, please\n".len()];
    /// stream.read_exact(&mut wish)?;
    /// let engine = Engine::new()?;
    /// let peer = engine.accept_over(stream)?.wait(Duration::from_secs(5))?;
    /// println!("{}", peer.name());
    /// # Ok(())
    /// # }
    /// ```
    pub fn accept_over(&self, stream: impl Into<ControlStream>) -> Result<Pending<Peer>, Error> {
        self.adopt(stream.into(), false)
    }

    fn adopt(&self, stream: ControlStream, is_initiator: bool) -> Result<Pending<Peer>, Error> {
        let address = stream.peer_addr().map_err(|error| {
            let fix = "pass a stream that is connected and that the peer has not closed";
            Error::connect("the peer of a stream", &error.to_string(), fix)
        })?;
        // A stream with TLS of its own has a session that authenticates the peer.
        if stream.is_plain() {
            self.check_clear_text(if is_initiator { "connect to" } else { "accept" }, address)?;
        }
        #[cfg(feature = "tls")]
        let stream = match &self.0.settings.tls {
            // The side that offers the links is the client of TLS, whichever side has made the TCP
            // connection.
            Some(tls) if stream.is_plain() && is_initiator => {
                stream.over(tls.connecting(&address.ip().to_string())?)
            }
            Some(tls) if stream.is_plain() => stream.over(tls.accepting()?),
            _ => stream,
        };
        Ok(self.connecting(address, move |driver, sender| {
            driver.adopt(stream, address, is_initiator, sender);
        }))
    }

    /// Returns the record layer for connections to this host.
    fn record_layer_for(&self, _host: &str) -> Result<RecordLayer, Error> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.0.settings.tls {
            let session = crate::control::Session::new(tls.connecting(_host)?);
            return Ok(RecordLayer::Tls(Box::new(session)));
        }
        Ok(RecordLayer::Plain)
    }

    /// Lets the driver begin a connection. The result is its peer.
    fn connecting(
        &self,
        address: SocketAddr,
        begin: impl FnOnce(&mut Driver, oneshot::Sender<Connected>) + Send + 'static,
    ) -> Pending<Peer> {
        let (sender, receiver) = oneshot::channel();
        let call = move |driver: &mut Driver, _: Time| begin(driver, sender);
        self.0.progress.queue(Command::Call(Box::new(call)));
        self.peer_of(Target::known(address), receiver)
    }

    fn peer_of(&self, address: Target, receiver: oneshot::Receiver<Connected>) -> Pending<Peer> {
        let (engine, receiver) = (self.clone(), Some(receiver));
        Pending::new(&self.0.progress, Connecting { engine, address, receiver, made: None, failed: None })
    }

    /// Returns the next peer that connects.
    ///
    /// If the wait times out, and a connection was refused meanwhile or in the minute before, the
    /// error has the kind [`ErrorKind::Accept`](crate::ErrorKind::Accept) and names the refused
    /// side and the cause. The engine continues to listen. The wait ends with
    /// [`ErrorKind::Ended`](crate::ErrorKind::Ended) if the engine was closed.
    pub fn accept(&self) -> Pending<Peer> {
        let watcher = self.0.backlog.watch.watcher();
        Pending::new(&self.0.progress, Accepting { engine: self.clone(), watcher })
    }

    /// Allocates memory and registers it with every rail.
    ///
    /// The pages of more than 256 KiB are allocated by a thread of their own, because that takes some
    /// 0.1 ms for each MiB. Registering them is left to the thread that drives the engine.
    pub fn allocate(&self, len: usize) -> Pending<Slice> {
        self.allocate_with(&MemoryOptions::new(), len)
    }

    /// Allocates memory with options, such as huge pages or a NUMA node. See
    /// [`allocate`](Self::allocate).
    pub fn allocate_with(&self, options: &MemoryOptions, len: usize) -> Pending<Slice> {
        let (sender, receiver) = oneshot::channel();
        let (options, progress) = (options.clone(), Arc::downgrade(&self.0.progress));
        let allocate = move || {
            let allocated = options.allocate(len).map_err(|error| Error::system("allocate memory", error));
            // Without it, nobody waits for the memory.
            let Some(progress) = progress.upgrade() else { return };
            progress.queue(Command::Call(Box::new(move |driver, _| {
                let registered = allocated.and_then(|slice| {
                    driver.carrier.register(slice.memory())?;
                    Ok(slice)
                });
                driver.answer(sender, registered);
            })));
        };
        if len <= ALLOCATED_AT_ONCE {
            allocate()
        } else {
            self.0.allocations.run(allocate)
        }
        // The outer error is that of the wait, the inner one that of the allocation.
        let finish = |made: Result<Result<Slice, Error>, Error>| made?;
        let drops = |_: &mut Driver, _, made: Result<Slice, Error>| drop(made);
        let making = Making::of(&self.0.progress, "allocate memory", receiver, finish, drops);
        Pending::new(&self.0.progress, making)
    }

    /// Registers memory with every rail that does not know it: memory that another engine has allocated,
    /// or that was [made from a vector](Memory::from_vec). A registration ends with its memory.
    ///
    /// [`Peer::write`] and [`Peer::read`] do it by themselves; transfers of pages need it over cards.
    pub fn register(&self, memory: &Memory) -> Pending<()> {
        let memory = memory.clone();
        self.call("register memory", move |driver, _| Ok(driver.carrier.register(&memory)?))
    }

    /// Publishes memory for reading: every peer that `access` permits may [open](Peer::open) it by its
    /// token. The memory stays readable here, by `Deref` of the publication. On failure the memory is
    /// returned with the error.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use farreach::{Access, Engine};
    /// # const SOON: Duration = Duration::from_secs(5);
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let trainer = Engine::new()?;
    /// let mut weights = trainer.allocate(4096).wait(SOON)?;
    /// weights.fill(7);
    /// let weights = trainer.publish(weights, Access::Anyone).wait(SOON)?;
    /// assert_eq!(weights[0], 7);
    /// println!("{}", weights.token());
    ///
    /// let weights = weights.revoke(SOON)?.try_unshare().expect("nobody has opened it");
    /// # drop(weights);
    /// # Ok(())
    /// # }
    /// ```
    pub fn publish(
        &self,
        memory: impl Into<Shared>,
        access: Access,
    ) -> Pending<Publication<Shared>, GrantError<Shared>> {
        self.publish_as(memory.into(), Rights::READ, access)
    }

    /// Publishes memory: every peer that `access` permits may [open](Peer::open) it by its token, and
    /// access it with these rights. On failure the memory is returned with the error.
    pub fn publish_exposed(
        &self,
        memory: impl Into<Exposed>,
        rights: Rights,
        access: Access,
    ) -> Pending<Publication, GrantError> {
        let memory = memory.into();
        // Keys are made when peers open the memory. Each peer would be refused, and the owner would
        // not learn why.
        if memory.is_read_only() && rights != Rights::READ {
            let refused = GrantError { error: Error::read_only(), memory: Some(memory) };
            return Pending::finished(&self.0.progress, Err(refused));
        }
        self.publish_as(memory, rights, access)
    }

    fn publish_as<M: Published>(
        &self,
        memory: M,
        rights: Rights,
        access: Access,
    ) -> Pending<Publication<M>, GrantError<M>> {
        // Without TLS no peer has a name, so nobody could open the memory.
        if matches!(access, Access::Only(_)) && !self.0.settings.has_tls() {
            let refused = GrantError { error: Error::no_names(), memory: Some(memory) };
            return Pending::finished(&self.0.progress, Err(refused));
        }
        Publication::make(&self.0.progress, memory, rights, access)
    }

    fn call<T: Send + 'static>(
        &self,
        operation: &'static str,
        call: impl FnOnce(&mut Driver, Time) -> Result<T, Error> + Send + 'static,
    ) -> Pending<T> {
        Pending::call(&self.0.progress, operation, call)
    }

    /// Returns the number of peers that the engine knows: those that are connected, and lost ones
    /// that still have local memory or operations in flight. For tests. Blocks for a step of the
    /// engine.
    #[doc(hidden)]
    pub fn peer_count(&self) -> Result<usize, Error> {
        self.0.progress.call(|driver, _| driver.machine.peer_count())
    }

    /// Ends the engine in order: the engines of the receivers have all messages, nothing is in
    /// flight, and a goodbye was sent to each peer. Remaining handles of peers report that they are
    /// lost. A receiver whose program does not take its messages has no room for more of them, so this
    /// waits for it until `timeout`.
    ///
    /// Blocks for at most `timeout`, and up to five seconds more for the worker to close the rails;
    /// see [`Pending::wait`] for calls into libraries that do not return.
    ///
    /// ```no_run
    /// # fn end(engine: farreach::Engine, peer: farreach::Peer) -> Result<(), farreach::Error> {
    /// peer.send("the last one");
    /// engine.close(std::time::Duration::from_secs(5))
    /// # }
    /// ```
    pub fn close(self, timeout: Duration) -> Result<(), Error> {
        self.0.note_close();
        let (sender, receiver) = oneshot::channel();
        let call = move |driver: &mut Driver, now: Time| {
            // Connections in their handshake are no peers yet, so the machine does not end them.
            driver.abandon_all();
            let op = driver.delivery.wait_for(Waiter::Closed(sender));
            driver.machine.leave_all(op, now);
        };
        self.0.progress.submit(Command::Call(Box::new(call)));
        // The receiver tells how the wait has ended, also after a panic of a step.
        let _ = self.0.progress.wait(&receiver, crate::time::after(timeout));
        match receiver.take() {
            Some(Ok(())) => Ok(()),
            Some(Err(_)) => Err(Error::ended()),
            None => Err(Error::timed_out("close the engine", &self.0.progress.timeout(timeout))),
        }
    }

    fn peer(&self, key: PeerKey, cell: Arc<PeerCell>, address: SocketAddr) -> Peer {
        Peer::new(&self.0.progress, &self.0.roster, key, cell, address, self.0.settings.messages)
    }

    pub(crate) fn running(&self) -> &Arc<Running> {
        &self.0.progress
    }

    pub(crate) fn has_tls(&self) -> bool {
        self.0.settings.has_tls()
    }

    pub(crate) fn roster(&self) -> &Arc<Peers> {
        &self.0.roster
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rails: Vec<&str> = self.0.rails.iter().map(|rail| rail.name.as_str()).collect();
        f.debug_struct("Engine").field("rails", &rails).finish_non_exhaustive()
    }
}

/// The interval of pings to a peer that nothing waits for.
const IDLE_HEARTBEAT: Duration = Duration::from_secs(10);

fn tuning(settings: &Settings, rails: &[Box<dyn Rail>]) -> Tuning {
    // A message may go over any link of a peer, so the rail with the shortest messages decides.
    let messages = rails.iter().map(|rail| rail.properties().message_max.saturating_sub(MessageHeader::LEN));
    let message_max = messages.min().map_or(settings.message_max, |max| max.min(settings.message_max));
    // A healthy peer has time to answer.
    let heartbeat = settings.heartbeat.min(settings.silence / 3);
    Tuning {
        heartbeat: nanoseconds(heartbeat),
        // A longer interval that the program has chosen holds for idle peers, too.
        idle_heartbeat: nanoseconds(heartbeat.max(IDLE_HEARTBEAT)),
        silence: nanoseconds(settings.silence),
        stall: nanoseconds(settings.stall()),
        drain: nanoseconds(settings.drain),
        cool_down: nanoseconds(settings.cool_down),
        messages: settings.messages,
        message_max,
        budgets: settings.budgets.of_peer,
    }
}

/// Returns random bytes that nobody can predict.
fn random<const LEN: usize>() -> std::io::Result<[u8; LEN]> {
    let (mut bytes, mut filled) = ([0; LEN], 0);
    while filled < LEN {
        // The kernel may return fewer bytes than it was asked for.
        filled += rustix::rand::getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
    }
    Ok(bytes)
}

/// The longest memory whose pages the caller allocates: as long as a few system calls take.
const ALLOCATED_AT_ONCE: usize = 256 << 10;

/// Where a connection leads to.
struct Target {
    /// The name and the port, or the address.
    text: String,
    /// Known when the name was resolved.
    found: Arc<OnceLock<SocketAddr>>,
}

impl Target {
    fn known(address: SocketAddr) -> Self {
        let shown = SocketAddr::new(address.ip().to_canonical(), address.port());
        Self { text: shown.to_string(), found: Arc::new(address.into()) }
    }

    fn named(name: &str, port: u16) -> Self {
        Self { text: format!("{name}:{port}"), found: Arc::default() }
    }
}

struct Connecting {
    engine: Engine,
    address: Target,
    /// `None` when its result was taken.
    receiver: Option<oneshot::Receiver<Connected>>,
    made: Option<(Peer, Watcher)>,
    failed: Option<Error>,
}

impl Connecting {
    /// Makes the peer when both sides can talk. Returns the error if they cannot.
    fn make(&mut self) -> Option<Error> {
        if self.made.is_some() {
            return None;
        }
        let connected = self.receiver.as_ref().expect("the result was taken before").take()?;
        // From now on the handle of the peer ends the connection, and not the drop of this wait.
        self.receiver = None;
        match connected {
            Ok(Ok((key, cell))) => {
                let watcher = cell.watch.watcher();
                let address = *self.address.found.get().expect("it was connected to");
                self.made = Some((self.engine.peer(key, cell, address), watcher));
                None
            }
            Ok(Err(error)) => Some(error),
            Err(_) => Some(Error::ended()),
        }
    }

    fn is_up_or_lost(&self) -> bool {
        self.made.as_ref().is_some_and(|(peer, _)| peer.cell().is_up() || peer.lost().is_some())
    }

    /// Returns the error, with the last error of a link if there is one: that is what has to be
    /// fixed.
    fn refused(&self, cause: &str, fix: &str) -> Error {
        let note = self.made.as_ref().and_then(|(peer, _)| peer.link_errors().pop());
        let (cause, fix) = match note {
            Some(note) => (format!("{cause}: {note}"), note.fix),
            None => (cause.to_owned(), fix.to_owned()),
        };
        Error::connect(self.shown(), &cause, &fix)
    }

    fn shown(&self) -> &str {
        &self.address.text
    }
}

/// A connection that is not wanted any more ends: a peer of which the program has no handle would stay for
/// as long as the engine.
impl Drop for Connecting {
    fn drop(&mut self) {
        if let Some(receiver) = self.receiver.take() {
            let call = move |driver: &mut Driver, now: Time| driver.abandon(&receiver, now);
            self.engine.0.progress.submit(Command::Call(Box::new(call)));
        }
    }
}

const NO_RAIL_FIX: &str =
    "check that both sides have a rail of the same kind, and that no firewall is between them";

impl Answer<Result<Peer, Error>> for Connecting {
    fn is_ready(&self) -> bool {
        match &self.made {
            // A result that was taken counts as ready: a wait for several must not hang on it.
            None => self.failed.is_some() || self.receiver.as_ref().is_none_or(Awaited::is_ready),
            Some(_) => self.is_up_or_lost(),
        }
    }

    fn listen(&self, listener: &Listener) {
        match &self.made {
            None => self.receiver.iter().for_each(|receiver| receiver.listen(listener)),
            Some((_, watcher)) => watcher.listen(listener),
        }
    }

    fn has_stages(&self) -> bool {
        true
    }

    fn advance(&mut self) -> bool {
        // A failure is kept for `take`, because its channel gives it out only once.
        if self.failed.is_none() {
            self.failed = self.make();
        }
        self.failed.is_some() || self.is_up_or_lost()
    }

    fn take(&mut self) -> Option<Result<Peer, Error>> {
        // `Pending::wait` does not call `advance`, so the peer may still have to be made.
        if let Some(failed) = self.failed.take().or_else(|| self.make()) {
            return Some(Err(failed));
        }
        let (peer, _) = self.made.as_ref()?;
        if peer.cell().is_up() {
            return self.made.take().map(|(peer, _)| Ok(peer));
        }
        let reason = peer.lost()?;
        Some(Err(self.refused(&reason.to_string(), &reason.fix())))
    }

    fn timed_out(&mut self, timeout: &Timeout) -> Result<Peer, Error> {
        let after = timeout.after;
        let cause = match self.made {
            None => format!("no answer within {after:.1?}"),
            Some(_) => format!("the peer answers, but no link was ready within {after:.1?}"),
        };
        Err(match &timeout.hung {
            Some(hung) => Error::connect(self.shown(), &timeout.explain(cause), &hung.fix()),
            None => self.refused(&cause, NO_RAIL_FIX),
        })
    }

    fn ended(&mut self) -> Result<Peer, Error> {
        Err(Error::ended())
    }
}

/// The age up to which a refused connection is reported by a wait that times out.
const LATELY: Duration = Duration::from_secs(60);

struct Accepting {
    engine: Engine,
    watcher: Watcher,
}

impl Answer<Result<Peer, Error>> for Accepting {
    fn is_ready(&self) -> bool {
        self.engine.0.backlog.has_one() || self.engine.0.roster.news().is_closed()
    }

    fn listen(&self, listener: &Listener) {
        self.watcher.listen(listener);
    }

    fn take(&mut self) -> Option<Result<Peer, Error>> {
        // Read first: peers from before the end are seen.
        let is_closed = self.engine.0.roster.news().is_closed();
        match self.engine.0.backlog.take() {
            Some((key, address, cell)) => Some(Ok(self.engine.peer(key, cell, address))),
            None => is_closed.then(|| Err(Error::ended())),
        }
    }

    fn timed_out(&mut self, timeout: &Timeout) -> Result<Peer, Error> {
        // No peer can connect meanwhile, whatever was refused before.
        if timeout.hung.is_some() {
            return Err(Error::timed_out("accept a peer", timeout));
        }
        Err(match self.engine.0.backlog.take_error(timeout.after.max(LATELY)) {
            Some(trouble) => trouble,
            None => Error::timed_out("accept a peer", timeout),
        })
    }

    fn ended(&mut self) -> Result<Peer, Error> {
        Err(Error::ended())
    }
}
/// Warns of cards whose keys a peer of the engine can use although they were given to another one.
fn shared_keys(rails: &[Properties]) -> impl Iterator<Item = Warning> {
    rails.iter().filter(|rail| rail.is_rdma && !rail.keys_are_bound).map(|rail| {
        let message = format!(
            "{}: the card has no memory windows of type 2, so a peer that guesses a key of another peer can use it",
            rail.name
        );
        let fix = "connect only peers that trust each other, or use an engine for each of them";
        Warning::new(WarningKind::SharedKeys, message, fix)
    })
}
