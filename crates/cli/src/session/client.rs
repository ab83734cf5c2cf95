//! The client's side of the handshake.

use std::collections::HashSet;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};
use farreach::Engine;
use serde::Serialize;

use super::handshake::{Line, Other};
use super::{Channel, EngineRules, Order, Security, Welcome, host_name, named};
use crate::args::ClientArgs;
use crate::exit::{Exit, Failure};
use crate::rails::{self, Choice, Tuning};
use crate::{interrupt, measure, terminal};

/// How long a server may take to answer.
const DIAL_PATIENCE: Duration = Duration::from_secs(5);

/// How long rails may take to be ready.
const RAIL_PATIENCE: Duration = Duration::from_secs(10);

/// The requirements of a test on both engines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// Operations in flight.
    pub(crate) depth: usize,
    /// The longest message.
    pub(crate) message_bytes_max: usize,
    /// Message slots on each side.
    pub(crate) messages: u32,
    /// Connections, each with an agent of its own.
    pub(crate) queues: usize,
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
            messages: MESSAGES,
            queues: 1,
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
        let mut calls = Vec::new();
        for _ in 0..rules.queues {
            calls.push(call(args)?);
        }
        let Some((first, welcome)) = calls.first() else {
            return Err(Failure::new(Exit::Usage, "the number of queues is 0")
                .fix("use at least one queue")
                .into());
        };
        let (welcome, here) = (
            welcome.clone(),
            first.stream().local_addr().context("cannot read the address of the connection")?,
        );
        let mut choice = rails::choose(&args.rails, &welcome.offers, here)?;
        // A rail that is named twice is used once.
        let mut seen = HashSet::new();
        choice.names.retain(|name| seen.insert(name.clone()));
        choice.names.truncate(rules.rails_max.unwrap_or(usize::MAX));
        rules.tuning.check(&choice.names)?;
        choice.wish.tuning = rules.tuning;
        let engine_rules = EngineRules {
            wait: args.wait,
            depth: rules.depth,
            messages: rules.messages,
            message_bytes_max: rules.message_bytes_max,
        };
        let mut settings = engine_rules.settings().rails(choice.names.clone()).name(host_name());
        if args.rails.require_rdma {
            settings = settings.require_rdma();
        }
        if let Some(index) = args.rails.gid_index {
            settings = settings.gid_index(index);
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
            task: named(command, parameters),
        };
        let mut channels = Vec::new();
        for (line, _) in calls {
            channels.push(Channel::of_client(meet(&engine, line, &order)?));
        }
        Ok(Self { engine, channels, choice, address, welcome })
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

/// Message slots on each side: more than a test that waits for answers has in flight.
pub(crate) const MESSAGES: u32 = 256;

/// The longest message. Each side has memory for all its message slots, and the engine holds a
/// whole message until it is received.
pub(crate) const MESSAGE_MAX: usize = 1 << 20;

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

/// Opens a connection and does the handshake up to the welcome.
pub(crate) fn call(args: &ClientArgs) -> Result<(Line, Welcome)> {
    let security = args.security();
    // What is wrong with the files of this side is reported without a server.
    let mut tls = security.open()?;
    let (addresses, told) = (args.peer.resolve(args.port)?, args.peer.told(args.port));
    security.check_server(&addresses, &told)?;
    if let Some(tls) = &tls {
        Security::warn_of_certificate(tls);
    }
    if let (Some(opened), Some(name)) = (&tls, &args.tls_name) {
        tls = Some(opened.clone().server_name(name)?);
    }
    let stream = dial(&addresses, &told, &security)?;
    let mut line = Line::new(stream).context("cannot configure the connection")?;
    if let Some(tls) = &tls {
        line.secure_as_client(tls, args.peer.host(), &security)?;
    }
    line.say_head()?;
    line.recv_head(Other::Server)?;
    let welcome: Result<Welcome, Failure> = line.recv()?;
    Ok((line, welcome.map_err(of_the_server)?))
}

/// Sends the order, and hands the connection to the engine.
pub(crate) fn meet(engine: &Engine, mut line: Line, order: &Order<impl Serialize>) -> Result<farreach::Peer> {
    line.send(order)?;
    let reply: Result<(), Failure> = line.recv()?;
    reply.map_err(of_the_server)?;
    Ok(engine.connect_over(line.into_control())?.wait(RAIL_PATIENCE)?)
}

pub(crate) fn of_the_server(failure: Failure) -> Failure {
    Failure { error: format!("the server reports: {}", failure.error), ..failure }
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
