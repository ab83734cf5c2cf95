//! Exchanges typed messages between client and agent over the rails while they measure.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use farreach::{Error, ErrorKind, Peer};
use farreach_text::Untrusted;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

use super::theirs::{TheirFailure, of_the_other_side, stopped};
use crate::exit::{self, Exit, Failure, NotHeard};
use crate::interrupt;

/// Returns how long a transfer of this size may take: more than any working network needs, and
/// short enough for an interactive command.
pub(crate) fn patience(bytes: u64) -> Duration {
    Duration::from_secs(8 + bytes / SLOWEST_BYTES_PER_SECOND)
}

/// A lower bound: emulated cards transfer a few MB/s.
const SLOWEST_BYTES_PER_SECOND: u64 = 1 << 20;

/// How long a message that the other side sends at once may take.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// How long a side waits after its last message for the other side to disconnect.
const LINGER: Duration = Duration::from_secs(2);

/// How long to wait for a last message that was sent before the event that made us ask.
const LAST_MESSAGE: Duration = Duration::from_millis(200);

/// How long an agent may take from revoking its memory to its last message, or to its exit.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// One end of the channel.
#[derive(Debug, Clone)]
pub(crate) struct Channel {
    pub(crate) peer: Peer,
    /// An agent stops when it is interrupted, and when its time is over. A client reports its results
    /// first.
    agent: Option<TimeLimit>,
}

/// The time that an agent has.
#[derive(Debug, Clone, Copy)]
struct TimeLimit {
    deadline: Instant,
    test_time: Duration,
}

/// A message, or the reason why there is none: a `Failure` of this side, or a `TheirFailure`.
#[derive(Debug, Serialize, Deserialize)]
enum Message<T, F> {
    Value(T),
    Failed(F),
}

impl Channel {
    pub(crate) fn of_client(peer: Peer) -> Self {
        Self { peer, agent: None }
    }

    /// Returns the end of an agent, which stops at the deadline. `test_time` is the time of a test as
    /// the server tells it.
    pub(crate) fn of_agent(peer: Peer, deadline: Instant, test_time: Duration) -> Self {
        Self { peer, agent: Some(TimeLimit { deadline, test_time }) }
    }

    /// Sends a value.
    pub(crate) fn send(&self, message: impl Serialize) -> Result<()> {
        self.send_message(&Message::<_, Failure>::Value(message))
    }

    /// Sends the reason for which this side's test has failed, and waits until the other side has received it
    /// and disconnected.
    pub(crate) fn send_failure(&self, error: &anyhow::Error) -> Result<()> {
        if exit::is_revoked(error) {
            // The other side ends for a reason of its own, and must not take this for the cause.
            self.linger();
        }
        self.send_message(&Message::<(), _>::Failed(&Failure::of(error)))?;
        self.linger();
        Ok(())
    }

    /// Waits a short time for the other side to disconnect, because the last message would be lost
    /// with this process.
    pub(crate) fn linger(&self) {
        let deadline = Instant::now() + LINGER;
        while self.peer.lost().is_none() && Instant::now() < deadline {
            // Any further messages are discarded.
            let _ = self.peer.recv().wait(interrupt::GLANCE);
        }
    }

    fn send_message(&self, message: &impl Serialize) -> Result<()> {
        let mut bytes = MESSAGE_MARK.to_vec();
        serde_json::to_writer(&mut bytes, message).context("cannot encode a message")?;
        Ok(self.peer.send(bytes).wait(SOON)?)
    }

    /// Receives a value that the other side sends at once.
    pub(crate) fn recv<T: DeserializeOwned>(&self) -> Result<T> {
        self.recv_within(SOON)
    }

    /// Receives a value, or fails with a timeout.
    pub(crate) fn recv_within<T: DeserializeOwned>(&self, patience: Duration) -> Result<T> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(message) = self.recv_for(interrupt::GLANCE)? {
                return Ok(message);
            }
            if Instant::now() >= deadline {
                return Err(NotHeard(patience).into());
            }
        }
    }

    /// Like [`recv_within`](Self::recv_within), but also ends on an interrupt. For values that take
    /// the other side a long time.
    pub(crate) fn recv_or_interrupted<T: DeserializeOwned>(&self, patience: Duration) -> Result<T> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(message) = self.recv_for(interrupt::GLANCE)? {
                return Ok(message);
            }
            if interrupt::is_asked() {
                return Err(interrupt::before_anything().into());
            }
            if Instant::now() >= deadline {
                return Err(NotHeard(patience).into());
            }
        }
    }

    /// Receives a value without a timeout. Ends when the other side is lost, or when this process
    /// is interrupted.
    pub(crate) fn recv_at_last<T: DeserializeOwned>(&self) -> Result<T> {
        loop {
            if let Some(message) = self.recv_for(interrupt::GLANCE)? {
                return Ok(message);
            }
            if interrupt::is_asked() {
                return Err(stopped().into());
            }
        }
    }

    /// Receives a value, or returns `None` after the timeout.
    pub(crate) fn recv_for<T: DeserializeOwned>(&self, patience: Duration) -> Result<Option<T>> {
        match self.recv_raw(patience)? {
            Some(bytes) => understand(&bytes).map(Some),
            None => Ok(None),
        }
    }

    /// Receives the bytes of a test.
    pub(crate) fn recv_bytes(&self, patience: Duration) -> Result<Vec<u8>> {
        match self.recv_either::<Never>(patience)? {
            Received::Bytes(bytes) => Ok(bytes),
            Received::Message(never) => match never {},
        }
    }

    /// Receives the bytes of a test, or a message among them.
    pub(crate) fn recv_either<T: DeserializeOwned>(&self, patience: Duration) -> Result<Received<T>> {
        let Some(bytes) = self.recv_raw(patience)? else {
            return Err(NotHeard(patience).into());
        };
        match bytes.strip_prefix(MESSAGE_MARK) {
            Some(_) => understand(&bytes).map(Received::Message),
            None => Ok(Received::Bytes(bytes)),
        }
    }

    /// Returns an error if this is an agent that was interrupted, or whose time is over.
    pub(crate) fn check_end(&self) -> Result<()> {
        match self.agent {
            Some(_) if interrupt::is_asked() => Err(stopped().into()),
            Some(limit) if Instant::now() >= limit.deadline => Err(out_of_time(limit.test_time).into()),
            _ => Ok(()),
        }
    }

    fn recv_raw(&self, patience: Duration) -> Result<Option<Vec<u8>>> {
        self.check_end()?;
        match self.peer.recv().wait(patience) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::TimedOut => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the failure that the other side reported before it disconnected. Earlier messages
    /// are discarded.
    fn last_failure(&self, within: Duration) -> Option<Failure> {
        let deadline = Instant::now() + within;
        loop {
            // Messages without a pause do not extend the time.
            let left = deadline.checked_duration_since(Instant::now())?;
            let bytes = self.peer.recv().wait(left).ok()?;
            let message = bytes
                .strip_prefix(MESSAGE_MARK)
                .map(serde_json::from_slice::<Message<IgnoredAny, TheirFailure>>);
            if let Some(Ok(Message::Failed(failure))) = message {
                return Some(of_the_other_side(failure));
            }
        }
    }

    /// Returns why the other side ended the test, if it did.
    pub(crate) fn ended_by(&self, error: &anyhow::Error) -> Option<Failure> {
        // The other side revokes its memory when its test ends, and reports the reason or
        // disconnects afterwards.
        let is_ending = exit::is_revoked(error);
        let failure = self.last_failure(if is_ending { ENDS_WITHIN } else { LAST_MESSAGE });
        failure.or_else(|| self.peer.lost().filter(|_| is_ending).map(exit::lost))
    }

    /// Returns why pages have not arrived, given the error of the wait for them.
    pub(crate) fn why_not(&self, error: &Error, what: &str) -> Failure {
        if error.kind() == ErrorKind::TimedOut {
            return self.not_in_time(what);
        }
        self.last_failure(LAST_MESSAGE).unwrap_or_else(|| match error.lost() {
            Some(reason) => exit::lost(reason),
            None => exit::lost(format!("the other side aborted {what}")),
        })
    }

    /// Returns why something has not arrived in time.
    pub(crate) fn not_in_time(&self, what: &str) -> Failure {
        let failure = self.last_failure(LAST_MESSAGE);
        failure.unwrap_or_else(|| self.stuck(format!("timeout while waiting for {what}")))
    }

    /// Replaces a timeout by an error of the links, if there is one.
    pub(crate) fn explained(&self, error: anyhow::Error) -> anyhow::Error {
        if !exit::is_timeout(&error) || self.peer.link_errors().is_empty() {
            return error;
        }
        self.stuck(Failure::of(&error).error).into()
    }

    /// Describes an operation that takes too long although the other side is connected.
    fn stuck(&self, what: String) -> Failure {
        let failure = Failure::new(Exit::PeerLost, what);
        match self.peer.link_errors().pop() {
            Some(note) => failure
                .cause(format!(
                    "the TCP connection to the peer works, but data over the rail does not arrive: {note}"
                ))
                .fix(note.fix),
            None => failure
                .cause("the other side is connected, but does not respond")
                .fix("check the server's log, and the load of its host"),
        }
    }
}

/// Bytes of a test, or a message.
#[derive(Debug)]
pub(crate) enum Received<T> {
    Message(T),
    Bytes(Vec<u8>),
}

/// A message that is never sent.
#[derive(Debug, Deserialize)]
enum Never {}

/// The prefix of every message. Sixteen bytes, so that bytes of a test hardly ever begin with it.
const MESSAGE_MARK: &[u8] = b"farreach message";

pub(crate) fn understand<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    let not_understood = |cause: String| {
        let cause = Untrusted::new(cause).shown();
        let failure = Failure::new(Exit::Failed, "cannot parse a message from the other side");
        failure.cause(cause).fix("install the same version of farreach on both hosts")
    };
    let Some(message) = bytes.strip_prefix(MESSAGE_MARK) else {
        return Err(not_understood("received data where a message was expected".to_owned()).into());
    };
    match serde_json::from_slice::<Message<T, TheirFailure>>(message) {
        Ok(Message::Value(message)) => Ok(message),
        Ok(Message::Failed(failure)) => Err(of_the_other_side(failure).into()),
        Err(error) => Err(not_understood(error.to_string()).into()),
    }
}

fn out_of_time(test_time: Duration) -> Failure {
    Failure::new(Exit::PeerLost, "the time of the test is over")
        .cause(format!(
            "a test may take {} s on this server, so that others get its place",
            test_time.as_secs_f64()
        ))
        .fix("measure less, or start the server with a larger --test-time")
}
