//! Shared by the examples: arguments, waits and errors.
#![allow(dead_code, reason = "each program uses its part")]

use std::fmt::Debug;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use farreach_verbs::ah::Gid;
use farreach_verbs::context::Context;
use farreach_verbs::cq::{CompletionQueue, Success, WorkKind};
use farreach_verbs::device::DeviceList;
use farreach_verbs::qp::state::ConnectionParameters;
use farreach_verbs::wr::{Buffers, PostError, Refusal};
use farreach_verbs::{cm, cq, system};

pub(crate) mod end;

/// The maximum time of every wait.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the deadline of a wait that begins now.
pub(crate) fn deadline() -> Instant {
    Instant::now() + PATIENCE
}

/// A failure, with its cause and its fix.
pub(crate) struct Failure {
    pub(crate) error: String,
    pub(crate) cause: String,
    pub(crate) fix: String,
    code: u8,
}

impl Failure {
    pub(crate) fn new(error: impl Into<String>, cause: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { error: error.into(), cause: cause.into(), fix: fix.into(), code: 1 }
    }

    /// Prints the failure in three lines.
    pub(crate) fn tell(&self) {
        eprintln!("error: {}\ncause: {}\nfix: {}", self.error, self.cause, self.fix);
    }

    pub(crate) fn usage(error: impl Into<String>) -> Self {
        let usage = Self::new(error, "the command line is invalid", "see the usage: --help");
        Self { code: 2, ..usage }
    }

    pub(crate) fn timed_out(awaited: &str) -> Self {
        Self::new(
            format!("no {awaited} within {} s", PATIENCE.as_secs()),
            "the other side is slow, stuck or gone",
            "check that it is still running, and read its output",
        )
    }

    pub(crate) fn wrong_bytes(place: &str) -> Self {
        Self::new(
            format!("wrong bytes in {place}"),
            "the other side is another program, or the transport is broken",
            "run both sides from the same build",
        )
    }
}

impl From<farreach_verbs::Error> for Failure {
    fn from(error: farreach_verbs::Error) -> Self {
        Self::new(error.to_string(), error.cause(), error.fix())
    }
}

impl From<cm::Error> for Failure {
    fn from(error: cm::Error) -> Self {
        Self::new(error.to_string(), error.cause(), error.fix())
    }
}

impl From<cq::Failure> for Failure {
    fn from(failure: cq::Failure) -> Self {
        Self::new(failure.to_string(), failure.cause(), failure.fix())
    }
}

impl From<Refusal> for Failure {
    fn from(reason: Refusal) -> Self {
        Self::new("a work request was not posted", reason.to_string(), reason.fix())
    }
}

impl<R: Debug> From<PostError<R>> for Failure {
    fn from(error: PostError<R>) -> Self {
        error.reason.into()
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        let fix = "check that the other side is running, and check its address and port";
        Self::new("the socket failed", error.to_string(), fix)
    }
}

/// Runs a program. Returns 0 on success, 1 on failure, 2 on a usage error.
pub(crate) fn run(usage: &str, options: &[&str], program: fn(&Arguments) -> Result<(), Failure>) -> ExitCode {
    if std::env::args().skip(1).any(|word| word == "--help" || word == "-h") {
        println!("{usage}");
        return ExitCode::SUCCESS;
    }
    match Arguments::read(options).and_then(|arguments| program(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.tell();
            ExitCode::from(failure.code)
        }
    }
}

/// The positional arguments, and the options with their values.
pub(crate) struct Arguments {
    words: Vec<String>,
    options: Vec<(String, String)>,
}

impl Arguments {
    fn read(known: &[&str]) -> Result<Self, Failure> {
        let (mut words, mut options) = (Vec::new(), Vec::new());
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            if !argument.starts_with('-') {
                words.push(argument);
            } else if known.contains(&argument.as_str()) {
                let value =
                    arguments.next().ok_or_else(|| Failure::usage(format!("{argument} has no value")))?;
                options.push((argument, value));
            } else {
                return Err(Failure::usage(format!("unknown option {argument}")));
            }
        }
        Ok(Self { words, options })
    }

    /// Returns the only positional argument, if any.
    pub(crate) fn word(&self) -> Result<Option<&str>, Failure> {
        match &self.words[..] {
            [] => Ok(None),
            [word] => Ok(Some(word)),
            [_, other, ..] => Err(Failure::usage(format!("unexpected argument {other}"))),
        }
    }

    /// Checks that there is no positional argument.
    pub(crate) fn none(&self) -> Result<(), Failure> {
        match self.words.first() {
            None => Ok(()),
            Some(word) => Err(Failure::usage(format!("unexpected argument {word}"))),
        }
    }

    /// Returns the required positional argument.
    pub(crate) fn needed(&self) -> Result<&str, Failure> {
        self.word()?.ok_or_else(|| Failure::usage("`serve` or a host is required"))
    }

    /// Returns the value of an option, if it was given.
    pub(crate) fn option<T: FromStr>(&self, name: &str) -> Result<Option<T>, Failure> {
        let Some((_, value)) = self.options.iter().rev().find(|(given, _)| given == name) else {
            return Ok(None);
        };
        value.parse().map(Some).map_err(|_| Failure::usage(format!("invalid value {value} for {name}")))
    }

    /// Returns the value of a numeric option within a range, or `default`.
    pub(crate) fn number(
        &self,
        name: &str,
        default: u32,
        range: RangeInclusive<u32>,
    ) -> Result<u32, Failure> {
        let number = self.option(name)?.unwrap_or(default);
        match range.contains(&number) {
            true => Ok(number),
            false => Err(Failure::usage(format!("{name} must be from {} to {}", range.start(), range.end()))),
        }
    }

    /// Returns the value of an option that is one of the choices. The first one is the default.
    pub(crate) fn one_of(&self, name: &str, choices: &[&'static str]) -> Result<&'static str, Failure> {
        let Some(value) = self.option::<String>(name)? else { return Ok(choices[0]) };
        let found = choices.iter().find(|choice| **choice == value);
        found.copied().ok_or_else(|| Failure::usage(format!("{name} must be one of {}", choices.join(", "))))
    }
}

/// Resolves the address of a host. The examples use IPv4.
pub(crate) fn resolve(host: &str, port: u16) -> Result<SocketAddr, Failure> {
    let unknown = |cause: String| {
        Failure::new(format!("no address for {host}"), cause, "use an address of the other side's device")
    };
    let mut found = (host, port).to_socket_addrs().map_err(|error| unknown(error.to_string()))?;
    found
        .find(|address| matches!(address.ip(), IpAddr::V4(_)))
        .ok_or_else(|| unknown("it has no IPv4 address".to_owned()))
}

/// Accepts a client's TCP connection.
pub(crate) fn accept(port: u16) -> Result<TcpStream, Failure> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
    listener.set_nonblocking(true)?;
    let end = deadline();
    loop {
        match listener.accept() {
            Ok((socket, _)) => {
                socket.set_nonblocking(false)?;
                socket.set_read_timeout(Some(PATIENCE))?;
                return Ok(socket);
            }
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error.into()),
            Err(_) if Instant::now() >= end => return Err(Failure::timed_out("client")),
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Opens the first device that has an address to reach the peer from. Returns it with the
/// parameters of a connection.
pub(crate) fn open(peer: Option<IpAddr>) -> Result<(Context, ConnectionParameters), Failure> {
    let peer = peer.map(|peer| match peer {
        IpAddr::V4(address) => Gid::from(address),
        IpAddr::V6(address) => Gid::from(address),
    });
    let mut reason = match system::survey().obstacles().first() {
        Some(obstacle) => Failure::new("no RDMA device", obstacle.to_string(), obstacle.fix()),
        None => Failure::new("no RDMA device", "libibverbs lists none", "see: farreach devices"),
    };
    for device in &DeviceList::get()? {
        let context = device.open()?;
        match ConnectionParameters::choose(&context, 1, peer) {
            Ok(parameters) => return Ok((context, parameters)),
            Err(error) => reason = error.into(),
        }
    }
    Err(reason)
}

/// A work request that succeeded.
pub(crate) struct Done {
    pub(crate) tag: u64,
    pub(crate) kind: WorkKind,
    pub(crate) success: Success,
    pub(crate) buffers: Buffers,
}

/// Returns the next completion, if there is one. A failed one is an error.
pub(crate) fn take(cq: &CompletionQueue) -> Result<Option<Done>, Failure> {
    let mut poller = cq.poller();
    let Some(completion) = poller.poll()?.next() else { return Ok(None) };
    let (tag, kind, success) = (completion.tag(), completion.kind(), completion.outcome()?);
    Ok(Some(Done { tag, kind, success, buffers: completion.into_buffers() }))
}

/// Returns the next completion, by polling.
pub(crate) fn wait(cq: &CompletionQueue) -> Result<Done, Failure> {
    let end = deadline();
    loop {
        if let Some(done) = take(cq)? {
            return Ok(done);
        }
        if Instant::now() >= end {
            return Err(Failure::timed_out("completion"));
        }
        // The peer may need this core to send its message.
        thread::yield_now();
    }
}

/// Fills a buffer with the bytes of a message, which depend on the offset and the message.
pub(crate) fn fill(bytes: &mut [u8], message: u32) {
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = pattern(message, index);
    }
}

/// Returns an error that names the place if `is_right` is `false`.
pub(crate) fn check(is_right: bool, place: &str) -> Result<(), Failure> {
    if is_right { Ok(()) } else { Err(Failure::wrong_bytes(place)) }
}

/// Returns `true` if these are the bytes of that message.
pub(crate) fn is_filled(bytes: &[u8], message: u32) -> bool {
    bytes.iter().enumerate().all(|(index, byte)| *byte == pattern(message, index))
}

fn pattern(message: u32, index: usize) -> u8 {
    (index as u8).wrapping_mul(31) ^ (index >> 8) as u8 ^ (message as u8).wrapping_mul(7)
}
