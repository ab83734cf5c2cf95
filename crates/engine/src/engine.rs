//! The engine.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use farreach_proto::machine::{HEADER, Machine, PeerKey, Tuning};
use farreach_proto::wire::Hello;
use farreach_rail::Carrier;

use crate::address::{host_of, resolve};
use crate::control::{Control, ControlStream, RecordLayer};
use crate::delivery::Waiter;
use crate::driver::{AcceptBacklog, Command, Connected, Driver};
use crate::error::Error;
use crate::pending::{Answer, Pending, sealed::Sealed};
use crate::progress::{Awaited, LeaderFollowers, Listener, oneshot};
use crate::rail::{Properties, Rail};
use crate::running::Running;
use crate::time::nanoseconds;
use crate::watch::{PeerCell, Watcher};
use crate::{Memory, MemoryOptions, Peer, Settings, Slice};

/// One side of everything: rails to peers, memory, and a worker that drives when nobody waits. Clones are the same engine.
///
/// It goes on as long as anybody has a clone of it, or a peer, a grant or a counter of it, or waits for something. Dropping the last of them
/// tells peers goodbye where nothing of theirs is under way, and waits for nobody. [`close`](Self::close) ends it in order.
///
/// ```no_run
/// use std::time::Duration;
/// use farreach::Engine;
///
/// # fn main() -> Result<(), farreach::Error> {
/// let engine = Engine::new()?;
/// for rail in engine.rails() {
///     println!("{}", rail.name);
/// }
/// let address = engine.listen("0.0.0.0:18520")?;
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
    rails: Vec<Properties>,
    messages: u32,
    #[cfg(feature = "tls")]
    tls: Option<crate::Tls>,
}

impl Engine {
    /// With what serves most: [`Settings::new`].
    pub fn new() -> Result<Self, Error> {
        Self::with(Settings::new())
    }

    /// As the settings say.
    pub fn with(settings: Settings) -> Result<Self, Error> {
        settings.check()?;
        let rails = crate::rails::open::rails(&settings)?;
        Self::over(rails, settings)
    }

    /// Over these rails, which the caller has made himself.
    pub fn over(rails: Vec<Box<dyn Rail>>, settings: Settings) -> Result<Self, Error> {
        settings.check()?;
        let incarnation =
            u64::from(rand_mt::Mt::new(seed()).next_u32()) << 32 | u64::from(std::process::id());
        let hello = Hello {
            name: settings.name.clone(),
            heartbeat_ms: wanted_heartbeat(&settings),
            ..Hello::new(incarnation)
        };
        let tuning = tuning(&settings, &rails);
        let carrier = Carrier::new(rails, tuning.message_max)?;
        let machine = Machine::new(carrier.infos(), hello, tuning);
        let rails = machine.rails().cloned().collect();
        let system =
            |operation| move |error: std::io::Error| Error::System { operation, cause: error.to_string() };
        let mut control = Control::new().map_err(system("open the control channel"))?;
        control.set_handshake_timeout(settings.silence);
        #[cfg(feature = "tls")]
        if let Some(tls) = &settings.tls {
            control.accept_over_tls(tls.clone());
        }
        let backlog = Arc::new(AcceptBacklog::default());
        let driver = Driver::new(machine, carrier, control, Arc::clone(&backlog))
            .map_err(system("watch the rails"))?;
        let progress = Arc::new(LeaderFollowers::new(driver, settings.progress));
        progress.start_worker().map_err(system("start the worker"))?;
        let engine = Self(Arc::new(Inner {
            progress: Running::new(progress),
            backlog,
            rails,
            messages: settings.messages,
            #[cfg(feature = "tls")]
            tls: settings.tls,
        }));
        for address in settings.listen {
            engine.listen(address)?;
        }
        Ok(engine)
    }

    /// Its rails.
    pub fn rails(&self) -> &[Properties] {
        &self.0.rails
    }

    /// Listens for peers: where it does, with the port that was found where 0 was asked for.
    pub fn listen(&self, address: impl ToSocketAddrs + fmt::Debug) -> Result<SocketAddr, Error> {
        let (address, _) = resolve(address)?;
        let listening = call(&self.0.progress, move |driver, _| driver.listen(address))?;
        listening.map_err(|error| Error::System { operation: "listen", cause: format!("{address}: {error}") })
    }

    /// Connects to a peer. It is there when both sides know each other, and a rail is ready.
    pub fn connect(&self, address: impl ToSocketAddrs + fmt::Debug) -> Result<Pending<Connecting>, Error> {
        let (address, text) = resolve(address)?;
        let record_layer = self.record_layer_for(&host_of(&text, address))?;
        Ok(self.connecting(address, move |driver, sender| driver.connect(address, record_layer, sender)))
    }

    /// Makes a peer of whoever is at the other end of a connection that the caller has made, and who calls [`accept_over`](Self::accept_over) on it.
    /// Both may have talked over it before, and are done. From here on the connection is the engine's. It may take up to two minutes until the other side
    /// calls `accept_over`.
    ///
    /// ```no_run
    /// use std::io::Write;
    /// use std::net::TcpStream;
    /// use std::time::Duration;
    /// use farreach::Engine;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut stream = TcpStream::connect("10.0.0.7:18520")?;
    /// stream.write_all(b"two rails, please\n")?;
    /// let engine = Engine::new()?;
    /// let peer = engine.connect_over(stream)?.wait(Duration::from_secs(5))?;
    /// println!("{}", peer.name());
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect_over(&self, stream: impl Into<ControlStream>) -> Result<Pending<Connecting>, Error> {
        self.adopt(stream.into(), true)
    }

    /// As [`connect_over`](Self::connect_over), on the other side of the connection. The peer comes from here, and not from
    /// [`accept`](Self::accept).
    ///
    /// ```no_run
    /// use std::io::Read;
    /// use std::net::TcpListener;
    /// use std::time::Duration;
    /// use farreach::Engine;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (mut stream, _) = TcpListener::bind("0.0.0.0:18520")?.accept()?;
    /// let mut wish = [0; b"two rails, please\n".len()];
    /// stream.read_exact(&mut wish)?;
    /// let engine = Engine::new()?;
    /// let peer = engine.accept_over(stream)?.wait(Duration::from_secs(5))?;
    /// println!("{}", peer.name());
    /// # Ok(())
    /// # }
    /// ```
    pub fn accept_over(&self, stream: impl Into<ControlStream>) -> Result<Pending<Connecting>, Error> {
        self.adopt(stream.into(), false)
    }

    fn adopt(&self, stream: ControlStream, is_initiator: bool) -> Result<Pending<Connecting>, Error> {
        let address = stream.peer_addr().map_err(|error| Error::Connect {
            address: "the other end of a stream".to_owned(),
            cause: error.to_string(),
            fix: "give a stream that is connected, and that the other side has not ended".to_owned(),
        })?;
        #[cfg(feature = "tls")]
        let stream = match &self.0.tls {
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

    /// How it is spoken with this host.
    fn record_layer_for(&self, _host: &str) -> Result<RecordLayer, Error> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.0.tls {
            let session = crate::control::Session::new(tls.connecting(_host)?);
            return Ok(RecordLayer::Tls(Box::new(session)));
        }
        Ok(RecordLayer::Plain)
    }

    /// Has the driver begin a connection, and waits for its peer.
    fn connecting(
        &self,
        address: SocketAddr,
        begin: impl FnOnce(&mut Driver, oneshot::Sender<Connected>) + Send + 'static,
    ) -> Pending<Connecting> {
        let (sender, receiver) = oneshot::channel();
        let call = move |driver: &mut Driver, _: u64| begin(driver, sender);
        self.0.progress.submit(Command::Call(Box::new(call)));
        let connecting = Connecting { engine: self.clone(), address, receiver, made: None };
        Pending { progress: Arc::clone(&self.0.progress), answer: connecting }
    }

    /// The next peer that has connected. When the time is over and somebody was refused meanwhile, or in the minute before, the error is
    /// [`Error::Accept`], which says who and why, and not [`Error::TimedOut`]. The engine listens on in either case.
    pub fn accept(&self) -> Pending<Accepting> {
        let watcher = self.0.backlog.watch.watcher();
        Pending {
            progress: Arc::clone(&self.0.progress),
            answer: Accepting { engine: self.clone(), watcher },
        }
    }

    /// Allocates memory, and registers it with every rail.
    pub fn allocate(&self, len: usize) -> Result<Slice, Error> {
        self.allocate_with(&MemoryOptions::new(), len)
    }

    /// As [`allocate`](Self::allocate), with huge pages, or on a NUMA node.
    pub fn allocate_with(&self, options: &MemoryOptions, len: usize) -> Result<Slice, Error> {
        let slice = options
            .allocate(len)
            .map_err(|error| Error::System { operation: "allocate memory", cause: error.to_string() })?;
        self.register(slice.memory())?;
        Ok(slice)
    }

    /// Registers memory that was allocated elsewhere with every rail.
    pub fn register(&self, memory: &Memory) -> Result<(), Error> {
        let memory = memory.clone();
        Ok(call(&self.0.progress, move |driver, _| driver.carrier.register(&memory))??)
    }

    /// How many peers it knows: those that are connected, and those that are gone and have memory of ours yet, or the cards something of
    /// theirs.
    pub fn peer_count(&self) -> Result<usize, Error> {
        call(&self.0.progress, |driver, _| driver.machine.peer_count())
    }

    /// Ends it in order, at most within this time: peers hold every message that was sent to them, nothing of ours is under way with them, and
    /// they are told goodbye. Handles on peers that are left say that these are lost.
    ///
    /// ```no_run
    /// # fn end(engine: farreach::Engine, peer: farreach::Peer) -> Result<(), farreach::Error> {
    /// peer.send("the last one");
    /// engine.close(std::time::Duration::from_secs(5))
    /// # }
    /// ```
    pub fn close(self, timeout: Duration) -> Result<(), Error> {
        let (sender, receiver) = oneshot::channel();
        let call = move |driver: &mut Driver, now: u64| {
            let op = driver.delivery.wait_for(Waiter::Closed(sender));
            driver.machine.leave_all(op, now);
        };
        self.0.progress.submit(Command::Call(Box::new(call)));
        let _ = self.0.progress.wait(&receiver, crate::time::after(timeout));
        match receiver.take() {
            Some(Ok(())) => Ok(()),
            Some(Err(_)) => Err(Error::Ended),
            None => Err(Error::TimedOut { what: "close", after: timeout }),
        }
    }

    fn peer(&self, key: PeerKey, cell: Arc<PeerCell>, address: SocketAddr) -> Peer {
        Peer::new(&self.0.progress, key, cell, address, self.0.messages)
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rails: Vec<&str> = self.0.rails.iter().map(|rail| rail.name.as_str()).collect();
        f.debug_struct("Engine").field("rails", &rails).finish_non_exhaustive()
    }
}

/// How often a peer is to be heard of, in milliseconds: often enough that one who is well is never silent for too long.
fn wanted_heartbeat(settings: &Settings) -> u32 {
    let often_enough = settings.heartbeat.min(settings.silence / 3);
    u32::try_from(often_enough.as_millis()).unwrap_or(u32::MAX)
}

/// A call takes no longer than a registration does; who waits longer has found a defect.
const CALL_TIMEOUT: Duration = Duration::from_secs(600);

/// Has the machine do something, and waits for it.
pub(crate) fn call<T: Send + 'static>(
    progress: &Running,
    call: impl FnOnce(&mut Driver, u64) -> T + Send + 'static,
) -> Result<T, Error> {
    let (sender, receiver) = oneshot::channel();
    progress.submit(Command::Call(Box::new(move |driver, now| {
        let answer = call(driver, now);
        driver.answer(sender, answer);
    })));
    let _ = progress.wait(&receiver, std::time::Instant::now() + CALL_TIMEOUT);
    match receiver.take() {
        Some(Ok(answer)) => Ok(answer),
        Some(Err(_)) => Err(Error::Ended),
        None => Err(Error::TimedOut { what: "ask the engine", after: CALL_TIMEOUT }),
    }
}

fn tuning(settings: &Settings, rails: &[Box<dyn Rail>]) -> Tuning {
    let messages = rails.iter().map(|rail| rail.properties().message_max.saturating_sub(HEADER));
    let message_max = messages.min().map_or(settings.message_max, |max| max.min(settings.message_max));
    Tuning {
        heartbeat: nanoseconds(settings.heartbeat),
        silence: nanoseconds(settings.silence),
        stall: nanoseconds(settings.stall),
        drain: nanoseconds(settings.drain),
        cool_down: nanoseconds(settings.cool_down),
        messages: settings.messages,
        message_max,
    }
}

fn seed() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id()) as u32
}

/// A peer that is being connected to.
#[derive(Debug)]
pub struct Connecting {
    engine: Engine,
    address: SocketAddr,
    receiver: oneshot::Receiver<Connected>,
    made: Option<(Peer, Watcher)>,
}

impl Connecting {
    /// With what has gone wrong with its links, if something has: that is what is to be mended.
    fn refused(&self, cause: &str) -> Error {
        let note = self.made.as_ref().and_then(|(peer, _)| peer.notes().pop());
        let (cause, fix) = match note {
            Some(note) => (format!("{cause}: {note}"), note.fix),
            None => (cause.to_owned(), NO_RAIL_FIX.to_owned()),
        };
        let address = SocketAddr::new(self.address.ip().to_canonical(), self.address.port());
        Error::Connect { address: address.to_string(), cause, fix }
    }
}

const NO_RAIL_FIX: &str =
    "see that both sides have a rail of the same kind, and that no firewall is between their ends";

impl Answer for Connecting {
    type Output = Result<Peer, Error>;
}

impl Sealed for Connecting {
    type Found = Result<Peer, Error>;

    fn is_ready(&self) -> bool {
        match &self.made {
            None => self.receiver.is_ready(),
            Some((peer, _)) => peer.cell().is_up() || peer.lost().is_some(),
        }
    }

    fn listen(&self, listener: &Listener) {
        match &self.made {
            None => self.receiver.listen(listener),
            Some((_, watcher)) => watcher.listen(listener),
        }
    }

    fn take(&mut self) -> Option<Self::Found> {
        if self.made.is_none() {
            match self.receiver.take()? {
                Ok(Ok((key, cell))) => {
                    let watcher = cell.watch.watcher();
                    self.made = Some((self.engine.peer(key, cell, self.address), watcher));
                }
                Ok(Err(error)) => return Some(Err(error)),
                Err(_) => return Some(Err(Error::Ended)),
            }
        }
        let (peer, _) = self.made.as_ref()?;
        if peer.cell().is_up() {
            return self.made.take().map(|(peer, _)| Ok(peer));
        }
        let cause = peer.lost()?.to_string();
        Some(Err(self.refused(&cause)))
    }

    fn timed_out(&mut self, after: Duration) -> Self::Found {
        Err(match self.made {
            None => self.refused(&format!("no answer within {after:.1?}")),
            Some(_) => self.refused(&format!("it answers, but no rail was ready within {after:.1?}")),
        })
    }

    fn ended(&mut self) -> Self::Found {
        Err(Error::Ended)
    }
}

/// Who was refused so long ago is told to whoever waits in vain.
const LATELY: Duration = Duration::from_secs(60);

/// A peer that will connect.
#[derive(Debug)]
pub struct Accepting {
    engine: Engine,
    watcher: Watcher,
}

impl Answer for Accepting {
    type Output = Result<Peer, Error>;
}

impl Sealed for Accepting {
    type Found = Result<Peer, Error>;

    fn is_ready(&self) -> bool {
        self.engine.0.backlog.has_one()
    }

    fn listen(&self, listener: &Listener) {
        self.watcher.listen(listener);
    }

    fn take(&mut self) -> Option<Self::Found> {
        let (key, address, cell) = self.engine.0.backlog.take()?;
        Some(Ok(self.engine.peer(key, cell, address)))
    }

    fn timed_out(&mut self, after: Duration) -> Self::Found {
        Err(match self.engine.0.backlog.take_error(after.max(LATELY)) {
            Some(trouble) => trouble,
            None => Error::TimedOut { what: "accept", after },
        })
    }

    fn ended(&mut self) -> Self::Found {
        Err(Error::Ended)
    }
}
