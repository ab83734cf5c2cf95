//! The client's side of the handshake.

use std::collections::HashSet;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use farreach::{Engine, Tls};
use serde::Serialize;

use super::handshake::{Line, Other, is_closed};
use super::theirs::{TheirFailure, of_the_server};
use super::{Channel, EngineRules, Notice, Order, Security, Welcome, host_name, named};
use crate::args::ClientArgs;
use crate::bounds;
use crate::exit::{Exit, Failure};
use crate::rails::{self, Choice, Tuning};
use crate::{interrupt, measure, terminal, units};

/// How long a server may take to answer.
const DIAL_PATIENCE: Duration = Duration::from_secs(5);

/// How long rails may take to be ready.
const RAIL_PATIENCE: Duration = Duration::from_secs(10);

/// How long an agent may take until it is ready. Its process starts and opens rails, which takes a
/// second and more on a host with many cards, and longer if many clients come at once.
const AGENT_PATIENCE: Duration = Duration::from_secs(60);

/// How long a client waits in the server's queue until it reports this. A shorter wait is usual.
const TELL_AFTER: Duration = Duration::from_secs(1);

/// The interval of reports about the wait.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// The requirements of a test on both engines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// Operations in flight.
    pub(crate) depth: usize,
    /// The longest message.
    pub(crate) message_bytes_max: usize,
    /// Whether the test can do with shorter messages, where a rail has no such long ones.
    pub(crate) may_shorten: bool,
    /// Message slots on each side.
    pub(crate) messages: u32,
    /// Connections, each with an agent of its own.
    pub(crate) queues: usize,
    /// The time that the test measures; zero if that is not known before.
    pub(crate) time: Duration,
    /// The maximum number of rails.
    pub(crate) rails_max: Option<usize>,
    /// The options for packets and processors.
    pub(crate) tuning: Tuning,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            depth: 128,
            message_bytes_max: 4096,
            may_shorten: false,
            messages: bounds::MESSAGES.max() as u32,
            queues: 1,
            time: Duration::ZERO,
            rails_max: None,
            tuning: Tuning::default(),
        }
    }
}

/// An engine that is connected to a server's agents.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) engine: Engine,
    /// One for each connection.
    pub(crate) channels: Vec<Channel>,
    pub(crate) choice: Choice,
    /// The longest message.
    pub(crate) message_bytes_max: usize,
    /// As it was typed, with its port.
    pub(crate) address: String,
    pub(crate) welcome: Welcome,
}

impl Session {
    /// Connects, and orders an agent to serve this command with these parameters.
    pub(crate) fn open(
        args: &ClientArgs,
        rules: Rules,
        command: &'static str,
        parameters: &impl Serialize,
    ) -> Result<Self> {
        rules.tuning.pin_client()?;
        interrupt::watch().context("cannot set up signal handling")?;
        measure::sleep_exactly();
        // A mistyped rail is reported without a server.
        rails::check_named(&args.rails)?;
        let address = args.peer.told(args.port);
        let (welcome, here) = look(args)?;
        check_queues(rules.queues, &welcome)?;
        let mut choice = rails::choose(&args.rails, &welcome.offers, here)?;
        // A rail that is named twice is used once.
        let mut seen = HashSet::new();
        choice.names.retain(|name| seen.insert(name.clone()));
        choice.names.truncate(rules.rails_max.unwrap_or(usize::MAX));
        rules.tuning.check(&choice.names)?;
        choice.wish.tuning = rules.tuning;
        let message_bytes_max = message_bytes_max(&rules, &choice)?;
        let engine_rules =
            EngineRules { wait: args.wait, depth: rules.depth, messages: rules.messages, message_bytes_max };
        let mut settings = engine_rules.settings().rails(choice.names.clone()).name(host_name());
        if args.rails.require_rdma {
            settings = settings.require_rdma();
        }
        if let Some(index) = args.rails.gid_index {
            settings = settings.gid_index(index);
        }
        if let Some(path) = &args.rails.shm_dir {
            settings = settings.shm_dir(path);
        }
        if args.security().allows_clear_text() {
            settings = settings.insecure();
        }
        let engine = Engine::with(rules.tuning.apply(settings))?;
        if args.verbose {
            tell_rails(&engine, &choice, &welcome, &address);
        }
        let order = Order {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: host_name(),
            rails: choice.wish.clone(),
            engine: engine_rules,
            test: measure::any_number(),
            connections: rules.queues as u32,
            time_ms: rules.time.as_millis().try_into().unwrap_or(u64::MAX),
            task: named(command, parameters),
        };
        // The server starts the agents of a test together, so all orders are sent first.
        let placed = (0..rules.queues).map(|_| place(args, &order)).collect::<Result<Vec<_>>>()?;
        let mut channels = Vec::new();
        for placed in placed {
            channels.push(Channel::of_client(meet(&engine, placed)?));
        }
        Ok(Self { engine, channels, choice, message_bytes_max, address, welcome })
    }

    /// Returns what an agent has reported before it disconnected, which is closer to the cause, or
    /// else the error of this test.
    pub(crate) fn explained(&self, error: anyhow::Error) -> anyhow::Error {
        match self.channels.iter().find_map(|channel| channel.ended_by(&error)) {
            Some(failure) => failure.into(),
            None => self.channels.iter().fold(error, |error, channel| channel.explained(error)),
        }
    }

    /// Returns the only channel of a test with one connection.
    pub(crate) fn channel(&self) -> &Channel {
        &self.channels[0]
    }

    /// Returns the names on this side of the rails that carry the test, without duplicates.
    pub(crate) fn rails(&self) -> Vec<String> {
        let mut rails: Vec<String> = self.channels.iter().flat_map(|channel| channel.peer.rails()).collect();
        rails.sort();
        rails.dedup();
        rails
    }
}

/// Returns the length of the longest message, or an error if the test needs longer ones than its
/// rails have.
fn message_bytes_max(rules: &Rules, choice: &Choice) -> Result<usize, Failure> {
    let (wanted, max) = (rules.message_bytes_max, rails::message_bytes_max(&choice.names));
    if wanted <= max || rules.may_shorten {
        return Ok(wanted.min(max));
    }
    let (over, wanted) = (choice.names.join(", "), units::size(wanted as u64));
    Err(Failure::new(Exit::Unavailable, format!("messages of {wanted} are not possible over {over}"))
        .cause(format!("a message has at most {max} bytes there"))
        .fix("choose shorter messages with -s, another operation with --op, or another rail with -d"))
}

fn tell_rails(engine: &Engine, choice: &Choice, welcome: &Welcome, address: &str) {
    terminal::tell(&format!("server: {} at {address}, farreach {}", welcome.host, welcome.version));
    for rail in engine.rail_properties() {
        terminal::tell(&format!(
            "rail: {} ({}), {}",
            rail.name,
            if rail.is_rdma { "RDMA" } else { "no RDMA" },
            rail.native
        ));
    }
    terminal::tell(&format!("why: {}", choice.why));
}

/// How often a client connects before it gives up, and the mean pause between two attempts.
const ATTEMPTS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(150);

/// Connects again if the server closes the connection before its welcome. A server that has too many
/// connections closes some of them, and no order was accepted then.
fn persistently<T>(connect: impl Fn() -> Result<T>) -> Result<T> {
    for _ in 1..ATTEMPTS {
        match connect() {
            Err(error) if error.downcast_ref().is_some_and(is_closed) && !interrupt::is_asked() => {
                // Clients that were closed together do not come again together.
                thread::sleep(PAUSE / 2 + PAUSE.mul_f64(measure::any_number() as f64 / 2_f64.powi(64)));
            }
            other => return other,
        }
    }
    connect()
}

fn check_queues(queues: usize, welcome: &Welcome) -> Result<(), Failure> {
    if queues == 0 {
        return Err(Failure::new(Exit::Usage, "the number of queues is 0").fix("use at least one queue"));
    }
    let max = welcome.connections_max;
    if queues <= max {
        return Ok(());
    }
    let failure = Failure::new(Exit::PeerLost, format!("the server cannot serve {queues} queues at once"));
    Err(match max {
        1 => failure
            .cause("it serves one connection, and a test has one for each queue")
            .fix("start the server without --once and with a larger --clients-max, or use one queue"),
        _ => failure
            .cause(format!("it serves up to {max} connections from one address"))
            .fix("use fewer queues, or start the server with a larger --clients-max"),
    })
}

/// Asks a server what it offers. Returns this side's address of the connection, too.
///
/// The connection is closed then: opening an engine takes too long to keep the server waiting.
pub(crate) fn look(args: &ClientArgs) -> Result<(Welcome, SocketAddr)> {
    let server = Server::find(args)?;
    let (line, welcome) = persistently(|| {
        let mut line = server.connect()?;
        line.say_head()?;
        let welcome = recv_welcome(&mut line)?;
        Ok((line, welcome))
    })?;
    Ok((welcome, line.stream().local_addr().context("cannot read the address of the connection")?))
}

/// A connection on which an order was sent.
#[derive(Debug)]
pub(crate) struct Placed {
    line: Line,
    pub(crate) welcome: Welcome,
    /// What the TLS session with the agent needs.
    renewal: Option<Renewal>,
    /// The time from the order to the server's first notice.
    pub(crate) round_trip: Duration,
    first: Notice<TheirFailure>,
}

/// The configuration of a second TLS session with the same host.
#[derive(Debug)]
struct Renewal {
    tls: Tls,
    host: String,
    security: Security,
}

/// Connects, and sends an order. The server's first notice is the answer.
pub(crate) fn place(args: &ClientArgs, order: &Order<impl Serialize>) -> Result<Placed> {
    let server = Server::find(args)?;
    let (mut line, welcome, began) = persistently(|| {
        let mut line = server.connect()?;
        let began = Instant::now();
        line.send_with_head(order)?;
        let welcome = recv_welcome(&mut line)?;
        Ok((line, welcome, began))
    })?;
    let first = line.recv()?;
    let Server { host, security, tls, .. } = server;
    let renewal = tls.map(|tls| Renewal { tls, host: host.to_owned(), security });
    Ok(Placed { line, welcome, renewal, round_trip: began.elapsed(), first })
}

impl Placed {
    /// Waits until an agent has the connection. Reports a long wait on stderr.
    pub(crate) fn wait(mut self) -> Result<Line> {
        let (began, mut told_at) = (Instant::now(), None::<Instant>);
        let mut notice = self.first;
        loop {
            match notice {
                Notice::Served => break,
                Notice::Refused(failure) => return Err(of_the_server(failure).into()),
                Notice::Waiting { ahead, served } => {
                    let is_due = told_at.is_none_or(|at| at.elapsed() >= TELL_EVERY);
                    if began.elapsed() >= TELL_AFTER && is_due {
                        told_at = Some(Instant::now());
                        terminal::tell(&waiting(ahead, served));
                    }
                }
            }
            if interrupt::is_asked() {
                return Err(interrupt::before_anything().into());
            }
            notice = self.line.recv()?;
        }
        self.line.be_patient(AGENT_PATIENCE);
        if let Some(Renewal { tls, host, security }) = &self.renewal {
            self.line.renew_as_client(tls, host, security)?;
        }
        Ok(self.line)
    }
}

fn waiting(ahead: usize, served: usize) -> String {
    let are =
        |count: usize| if count == 1 { "1 client is".to_owned() } else { format!("{count} clients are") };
    format!("waiting: the server is busy: {} being served, {} ahead in the queue", are(served), are(ahead))
}

/// Waits for the agent, and hands the connection to the engine.
pub(crate) fn meet(engine: &Engine, placed: Placed) -> Result<farreach::Peer> {
    let mut line = placed.wait()?;
    let reply: Result<(), TheirFailure> = line.recv()?;
    reply.map_err(of_the_server)?;
    Ok(engine.connect_over(line.into_control())?.wait(RAIL_PATIENCE)?)
}

/// Opens a connection, with TLS if it is configured. Returns the TLS configuration, too.
/// A server, and how to connect to it.
struct Server<'a> {
    host: &'a str,
    /// The server as error messages name it.
    told: String,
    addresses: Vec<SocketAddr>,
    security: Security,
    tls: Option<Tls>,
}

impl<'a> Server<'a> {
    /// Resolves the server's name and opens this side's files, which are checked without a server.
    fn find(args: &'a ClientArgs) -> Result<Self> {
        let security = args.security();
        let mut tls = security.open()?;
        let (addresses, told) = (args.peer.resolve(args.port)?, args.peer.told(args.port));
        security.check_server(&addresses, &told)?;
        if let Some(tls) = &tls {
            Security::warn_of_certificate(tls);
        }
        if let (Some(opened), Some(name)) = (&tls, &args.tls_name) {
            tls = Some(opened.clone().server_name(name)?);
        }
        Ok(Self { host: args.peer.host(), told, addresses, security, tls })
    }

    fn connect(&self) -> Result<Line> {
        let stream = dial(&self.addresses, &self.told, &self.security)?;
        let mut line = Line::new(stream).context("cannot configure the connection")?;
        if let Some(tls) = &self.tls {
            line.secure_as_client(tls, self.host, &self.security)?;
        }
        Ok(line)
    }
}

fn recv_welcome(line: &mut Line) -> Result<Welcome> {
    line.recv_head(Other::Server)?;
    let welcome: Result<Welcome, TheirFailure> = line.recv()?;
    Ok(welcome.map_err(of_the_server)?)
}

/// Connects to the first address that accepts.
fn dial(addresses: &[SocketAddr], told: &str, security: &Security) -> Result<TcpStream, Failure> {
    let mut refusal = None;
    for address in addresses {
        match TcpStream::connect_timeout(address, DIAL_PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => refusal = Some(why_not(told, address, &error, security)),
        }
    }
    Err(refusal.unwrap_or_else(|| Failure::new(Exit::PeerLost, format!("cannot connect to {told}"))))
}

fn why_not(told: &str, address: &SocketAddr, error: &std::io::Error, security: &Security) -> Failure {
    use std::io::ErrorKind;
    let failure = Failure::new(Exit::PeerLost, format!("cannot connect to {told}"));
    let (ip, port) = (address.ip(), address.port());
    match error.kind() {
        ErrorKind::ConnectionRefused => failure.cause(format!("nothing listens on {address}")).fix(format!(
            "give the server's port with -p, or start the server on {ip}:\nfarreach serve -p {port} {}",
            security.flags_of_server(address.ip())
        )),
        ErrorKind::TimedOut | ErrorKind::WouldBlock => failure
            .cause(format!("no answer from {ip} within {DIAL_PATIENCE:?}"))
            .fix(format!("check that no firewall drops TCP port {port}, and that {ip} is up:\nping {ip}")),
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => failure
            .cause(format!("no route to {ip}: {error}"))
            .fix(format!("check the route:\nip route get {ip}")),
        _ => failure.cause(error.to_string()).fix(format!("check that this host can reach {ip}:\nping {ip}")),
    }
}
