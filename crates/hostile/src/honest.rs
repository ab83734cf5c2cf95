//! Honest clients: engines under steady load that note how each operation ends.

use std::io::{self, BufRead};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use farreach::{Buffer, Engine, ErrorKind, PageMap, Peer, RemoteCounter, RemoteSlice, Settings, Slice};

use crate::layout::{ATOMIC_AT, PAGE, PAGES_PER_WRITE, THREADS, tag_of};
use crate::load::{End, as_fast_as_possible, at_fixed_times};
use crate::protocol::SECRET;
use crate::roles::{Capacity, Done, Newcomer, Served, Session, end_with_driver, say, yield_to_others};
use crate::service::Service;
use crate::victim::PEER_TIMEOUT;

/// How long an operation may take. It is longer than any bar.
const LIMIT: Duration = Duration::from_secs(5);

/// How long a client waits for its connection: many that connect at once are served in turn, and the
/// time counts against the bar.
const CONNECT_LIMIT: Duration = Duration::from_secs(120);

/// The pause between two attempts to connect again.
const PAUSE: Duration = Duration::from_millis(50);

/// The interval of the writes of each thread, for a client that only writes. All of its threads
/// begin at the same time, so that most moments are in the middle of a write.
const WRITE_INTERVAL: Duration = Duration::from_millis(2);

/// `hostile honest`
#[derive(Debug, clap::Args)]
pub(crate) struct HonestArgs {
    /// The address of the victim.
    #[arg(long)]
    address: SocketAddr,

    /// The rail.
    #[arg(long)]
    rail: String,

    /// The name, such as `honest-0`.
    #[arg(long)]
    name: String,

    /// Use TLS.
    #[arg(long)]
    tls: bool,

    /// Write until this process is ended, and yield to other processes.
    #[arg(long)]
    writes: bool,
}

pub(crate) fn run(args: &HonestArgs) -> Result<()> {
    if args.writes {
        end_with_driver();
        // Before the engine starts, which takes more processor time than its writes.
        yield_to_others();
    }
    let client = Arc::new(Client::open(args.address, &args.rail, &args.name, args.tls)?);
    client.connected()?;
    say(&Done {})?;
    if args.writes {
        client.every_thread(|client, thread| {
            let mut buffer = None;
            at_fixed_times(Instant::now(), WRITE_INTERVAL, &End::default(), |_| {
                client.write(thread, &mut buffer)
            })
        });
    }
    let mut running: Option<Running> = None;
    for line in io::stdin().lock().lines() {
        let line = line?;
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["calibrate", ms] => say(&client.calibrate(Duration::from_millis(ms.parse()?)))?,
            ["start", per_second] => {
                running = Some(Running::start(&client, per_second.parse()?));
                say(&Done {})?;
            }
            ["stop"] => {
                let service = running.take().context("nothing was started")?.stop();
                say(&Served { service, sessions: client.sessions() })?;
            }
            _ => bail!("a client does not know the command {line:?}"),
        }
    }
    Ok(())
}

/// An engine with one peer, the victim.
struct Client {
    engine: Engine,
    address: SocketAddr,
    name: String,
    connection: Mutex<Option<Arc<Connection>>>,
    /// The connections that were lost.
    past: Mutex<Vec<Session>>,
    /// The number of messages so far, which tells them apart.
    messages: AtomicU64,
    lacks_atomics: AtomicBool,
}

/// A connection to the victim, with what the victim has granted.
struct Connection {
    peer: Peer,
    memory: RemoteSlice,
    counter: RemoteCounter,
    token: String,
    pages: AtomicU64,
    adds: AtomicU64,
    messages: AtomicU64,
    has_failed: AtomicBool,
}

impl Client {
    fn open(address: SocketAddr, rail: &str, name: &str, is_tls: bool) -> Result<Self> {
        let mut settings = Settings::new().name(name).rails([rail]).peer_timeout(PEER_TIMEOUT);
        if is_tls {
            settings = settings.secret(SECRET.parse().map_err(crate::told)?);
        }
        Ok(Self {
            engine: Engine::with(settings).map_err(crate::told)?,
            address,
            name: name.to_owned(),
            connection: Mutex::default(),
            past: Mutex::default(),
            messages: AtomicU64::new(0),
            lacks_atomics: AtomicBool::new(false),
        })
    }

    /// Returns the connection. Connects if there is none, or if the victim has lost it.
    fn connected(&self) -> Result<Arc<Connection>> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = connection.as_ref().filter(|it| it.peer.lost().is_none()) {
            return Ok(Arc::clone(connection));
        }
        if let Some(lost) = connection.take() {
            lost.has_failed.store(true, Ordering::Relaxed);
            self.past.lock().unwrap_or_else(PoisonError::into_inner).push(lost.session());
            thread::sleep(PAUSE);
        }
        let made = Connection::open(&self.engine, self.address)?;
        Ok(Arc::clone(connection.insert(Arc::new(made))))
    }

    fn sessions(&self) -> Vec<Session> {
        let mut sessions = self.past.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.extend(connection.iter().map(|connection| connection.session()));
        sessions
    }

    fn every_thread<T: Send>(&self, work: impl Fn(&Self, usize) -> T + Sync) -> Vec<T> {
        thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> =
                (0..THREADS).map(|number| scope.spawn(move || work(self, number))).collect();
            threads.into_iter().map(|it| it.join().expect("a client does not panic")).collect()
        })
    }

    fn calibrate(&self, time: Duration) -> Capacity {
        let counts = self.every_thread(|client, thread| {
            let mut buffer = None;
            as_fast_as_possible(time, |number| client.operate(thread, number, &mut buffer))
        });
        Capacity { per_second: counts.iter().sum::<u64>() as f64 / time.as_secs_f64() }
    }

    /// Does the next operation of a thread: most are writes.
    fn operate(&self, thread: usize, number: u64, buffer: &mut Option<Slice>) -> Result<(), String> {
        match number % 8 {
            3 => self.send(),
            5 if !self.lacks_atomics.load(Ordering::Relaxed) => self.add(),
            _ => self.write(thread, buffer),
        }
    }

    fn write(&self, thread: usize, buffer: &mut Option<Slice>) -> Result<(), String> {
        let connection = self.connected().map_err(|error| error.to_string())?;
        let slice = match buffer.take() {
            Some(slice) => slice,
            None => {
                let len = PAGES_PER_WRITE as usize * PAGE as usize;
                let mut slice = self.engine.allocate(len).wait(LIMIT).map_err(|error| error.to_string())?;
                slice.fill(tag_of(&self.name).unwrap_or_default());
                slice
            }
        };
        let first = thread as u32 * PAGES_PER_WRITE;
        let map = PageMap::of(PAGE).from(0..PAGES_PER_WRITE).to(first..first + PAGES_PER_WRITE);
        let Connection { peer, memory, counter, .. } = &*connection;
        match peer.write_pages(slice, &map, memory, Some(counter)).wait(LIMIT) {
            Ok(written) => {
                connection.pages.fetch_add(PAGES_PER_WRITE.into(), Ordering::Relaxed);
                *buffer = written.buffer.into_slice().ok();
                Ok(())
            }
            Err(error) => {
                *buffer = error.buffer.and_then(|buffer: Buffer| buffer.into_slice().ok());
                connection.failed(&error.error)
            }
        }
    }

    fn send(&self) -> Result<(), String> {
        let connection = self.connected().map_err(|error| error.to_string())?;
        let number = self.messages.fetch_add(1, Ordering::Relaxed);
        match connection.peer.send(format!("{} {number}", self.name)).wait(LIMIT) {
            Ok(()) => {
                connection.messages.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => connection.failed(&error),
        }
    }

    fn add(&self) -> Result<(), String> {
        let connection = self.connected().map_err(|error| error.to_string())?;
        let word =
            connection.memory.get(ATOMIC_AT as u64..ATOMIC_AT as u64 + 8).ok_or("the grant is short")?;
        match connection.peer.fetch_add(&word, 1).wait(LIMIT) {
            Ok(_) => {
                connection.adds.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                self.lacks_atomics.store(true, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => connection.failed(&error),
        }
    }
}

impl Connection {
    fn open(engine: &Engine, address: SocketAddr) -> Result<Self, farreach::Error> {
        let peer = engine.connect(address)?.wait(CONNECT_LIMIT)?;
        let told = peer.recv().wait(LIMIT)?;
        let told = String::from_utf8_lossy(&told).into_owned();
        let (grant, token) = told.split_once(' ').unwrap_or_default();
        let memory = peer.remote(grant.parse().unwrap_or_else(|_| no_token(&told))).wait(LIMIT)?;
        let parsed = token.parse().unwrap_or_else(|_| no_token(&told));
        let counter = peer.remote_counter(parsed).wait(LIMIT)?;
        Ok(Self {
            peer,
            memory,
            counter,
            token: token.to_owned(),
            pages: AtomicU64::new(0),
            adds: AtomicU64::new(0),
            messages: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
        })
    }

    fn failed(&self, error: &farreach::Error) -> Result<(), String> {
        self.has_failed.store(true, Ordering::Relaxed);
        Err(error.to_string())
    }

    fn session(&self) -> Session {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Session {
            counter: self.token.clone(),
            pages: of(&self.pages),
            adds: of(&self.adds),
            messages: of(&self.messages),
            has_failed: self.has_failed.load(Ordering::Relaxed),
        }
    }
}

/// The victim's first message is not what it should be: an attacker has sent one in its name.
fn no_token<T>(told: &str) -> T {
    panic!("the victim's first message has no tokens: {told:?}")
}

/// A load that is running.
struct Running {
    end: End,
    threads: Vec<JoinHandle<Service>>,
}

impl Running {
    /// Starts a load of so many operations per second.
    fn start(client: &Arc<Client>, per_second: f64) -> Self {
        let end = End::default();
        let interval = Duration::from_secs_f64(THREADS as f64 / per_second.max(0.1));
        let start = Instant::now();
        let work = |thread: usize| {
            let (client, end) = (Arc::clone(client), end.clone());
            // The threads take turns, so that operations are evenly spaced.
            let first = start + interval.mul_f64(thread as f64 / THREADS as f64);
            thread::spawn(move || {
                let mut buffer = None;
                at_fixed_times(first, interval, &end, |number| client.operate(thread, number, &mut buffer))
            })
        };
        let threads = (0..THREADS).map(work).collect();
        Self { end, threads }
    }

    fn stop(self) -> Service {
        self.end.now();
        let mut all = Service::default();
        for thread in self.threads {
            all.add(thread.join().expect("a client does not panic"));
        }
        all
    }
}

/// `hostile newcomer`
#[derive(Debug, clap::Args)]
pub(crate) struct NewcomerArgs {
    /// The address of the victim.
    #[arg(long)]
    address: SocketAddr,

    /// The rail.
    #[arg(long)]
    rail: String,

    /// Use TLS.
    #[arg(long)]
    tls: bool,
}

/// Connects as a client that was not there before, and writes some pages.
pub(crate) fn newcomer(args: &NewcomerArgs) -> Result<()> {
    end_with_driver();
    // The start of an engine takes processor time, which is not the victim's fault.
    yield_to_others();
    let client = Client::open(args.address, &args.rail, "newcomer", args.tls)?;
    let start = Instant::now();
    let mut buffer = None;
    let served = (0..THREADS).try_for_each(|thread| client.write(thread, &mut buffer));
    let took = start.elapsed();
    let ms = took.as_millis() as u64;
    let is_connected = client.connection.lock().unwrap_or_else(PoisonError::into_inner).is_some();
    say(&match served {
        Ok(()) => Newcomer::Served { ms },
        // The client's own timeouts take longer than that.
        Err(reason) if !is_connected && took < PEER_TIMEOUT / 2 => Newcomer::Refused { ms, reason },
        Err(reason) => Newcomer::Unanswered { reason },
    })
}
