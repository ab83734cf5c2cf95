//! What the two sides tell each other while they measure: typed words over the rails.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use farreach::{Error, Outcome, Peer};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

use crate::exit::{self, Exit, Failure};
use crate::interrupt;

/// How long so many bytes may take that are on their way: more than any network needs that works, and less than a person waits.
pub(crate) fn patience(bytes: u64) -> Duration {
    Duration::from_secs(8 + bytes / SLOWEST_BYTES_PER_SECOND)
}

/// An emulated card has been seen at a few MB/s.
const SLOWEST_BYTES_PER_SECOND: u64 = 1 << 20;

/// How long the other side may take for a word that it says at once.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// How long one who has said its last word waits for the other one to leave.
const LINGER: Duration = Duration::from_secs(2);

/// How long last words may take: they were said before what made us ask.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// One end of the conversation.
#[derive(Debug, Clone)]
pub(crate) struct Talk {
    pub(crate) peer: Peer,
    /// One who is told to end does so; a client first tells what it has measured.
    is_agent: bool,
}

/// A word, or why there is none.
#[derive(Debug, Serialize, Deserialize)]
enum Word<T> {
    Said(T),
    Failed(Failure),
}

impl Talk {
    pub(crate) fn of_client(peer: Peer) -> Self {
        Self { peer, is_agent: false }
    }

    pub(crate) fn of_agent(peer: Peer) -> Self {
        Self { peer, is_agent: true }
    }

    /// Says something.
    pub(crate) fn say(&self, word: impl Serialize) -> Result<()> {
        self.send(&Word::Said(word))
    }

    /// Says what went wrong on this side, and waits until the other one has heard it and gone.
    pub(crate) fn say_failure(&self, failure: &Failure) -> Result<()> {
        self.send(&Word::<()>::Failed(failure.clone()))?;
        self.linger();
        Ok(())
    }

    /// Waits for the other side to leave, a moment at most: what was said last is lost with this process.
    pub(crate) fn linger(&self) {
        let deadline = Instant::now() + LINGER;
        while self.peer.lost().is_none() && Instant::now() < deadline {
            // Whatever it still says is of no interest.
            let _ = self.peer.recv().wait(interrupt::GLANCE);
        }
    }

    fn send<T: Serialize>(&self, word: &Word<T>) -> Result<()> {
        let mut bytes = WORD_MARK.to_vec();
        serde_json::to_writer(&mut bytes, word).context("cannot write a word")?;
        Ok(self.peer.send(bytes).wait(SOON)?)
    }

    /// Hears something that is said at once.
    pub(crate) fn hear<T: DeserializeOwned>(&self) -> Result<T> {
        self.hear_within(SOON)
    }

    /// Hears something, at the latest then.
    pub(crate) fn hear_within<T: DeserializeOwned>(&self, patience: Duration) -> Result<T> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(word) = self.hear_for(interrupt::GLANCE)? {
                return Ok(word);
            }
            if Instant::now() >= deadline {
                return Err(Error::TimedOut { what: "hear from the other side", after: patience }.into());
            }
        }
    }

    /// Hears something that takes the other side so long that a person may have enough before.
    pub(crate) fn hear_or_end<T: DeserializeOwned>(&self, patience: Duration) -> Result<T> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(word) = self.hear_for(interrupt::GLANCE)? {
                return Ok(word);
            }
            if interrupt::is_asked() {
                return Err(interrupt::before_anything().into());
            }
            if Instant::now() >= deadline {
                return Err(Error::TimedOut { what: "hear from the other side", after: patience }.into());
            }
        }
    }

    /// Hears something, however long that takes: until the other side is lost, or this one is told to end.
    pub(crate) fn hear_at_last<T: DeserializeOwned>(&self) -> Result<T> {
        loop {
            if let Some(word) = self.hear_for(interrupt::GLANCE)? {
                return Ok(word);
            }
            if interrupt::is_asked() {
                return Err(stopped().into());
            }
        }
    }

    /// Hears something, if it comes within so long.
    pub(crate) fn hear_for<T: DeserializeOwned>(&self, patience: Duration) -> Result<Option<T>> {
        match self.recv(patience)? {
            Some(bytes) => understand(&bytes).map(Some),
            None => Ok(None),
        }
    }

    /// Hears the bytes of a test.
    pub(crate) fn hear_bytes(&self, patience: Duration) -> Result<Vec<u8>> {
        match self.hear_either::<Never>(patience)? {
            Heard::Bytes(bytes) => Ok(bytes),
            Heard::Word(never) => match never {},
        }
    }

    /// Hears the bytes of a test, or a word in between.
    pub(crate) fn hear_either<T: DeserializeOwned>(&self, patience: Duration) -> Result<Heard<T>> {
        let Some(bytes) = self.recv(patience)? else {
            return Err(Error::TimedOut { what: "hear from the other side", after: patience }.into());
        };
        match bytes.strip_prefix(WORD_MARK) {
            Some(_) => understand(&bytes).map(Heard::Word),
            None => Ok(Heard::Bytes(bytes)),
        }
    }

    /// An error if this is an agent that was told to end.
    pub(crate) fn check_end(&self) -> Result<()> {
        if interrupt::is_asked() && self.is_agent { Err(stopped().into()) } else { Ok(()) }
    }

    fn recv(&self, patience: Duration) -> Result<Option<Vec<u8>>> {
        self.check_end()?;
        match self.peer.recv().wait(patience) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Error::TimedOut { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// What the other side has said went wrong there, before it went. It may have said other things before, which are of no interest any more.
    pub(crate) fn last_words(&self) -> Option<Failure> {
        let deadline = Instant::now() + LAST_WORDS;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let bytes = self.peer.recv().wait(left).ok()?;
            let word = bytes.strip_prefix(WORD_MARK).map(serde_json::from_slice::<Word<IgnoredAny>>);
            if let Some(Ok(Word::Failed(failure))) = word {
                return Some(of_the_other_side(failure));
            }
        }
    }

    /// Why something was not counted.
    pub(crate) fn why_not(&self, outcome: Outcome, what: &str) -> Failure {
        if let Some(failure) = self.last_words() {
            return failure;
        }
        match outcome {
            Outcome::PeerLost => exit::lost(self.peer.lost().unwrap_or("its connection has ended")),
            Outcome::TimedOut => self.stuck(format!("{what} has not come in time")),
            _ => exit::lost(&format!("the other side has given {what} up")),
        }
    }

    /// What is behind an error of a test: where something took too long, what is wrong with the links.
    pub(crate) fn explained(&self, error: anyhow::Error) -> anyhow::Error {
        if !exit::is_timeout(&error) || self.peer.notes().is_empty() {
            return error;
        }
        self.stuck(Failure::of(&error).error).into()
    }

    /// Something takes too long, though the other side is there.
    fn stuck(&self, what: String) -> Failure {
        let failure = Failure::new(Exit::PeerLost, what);
        match self.peer.notes().pop() {
            Some(note) => failure
                .cause(format!("the two sides hear each other over TCP, but what goes over the rail does not arrive: {note}"))
                .fix(note.fix),
            None => failure
                .cause("the other side is there, and does not come to it")
                .fix("see the server's log, and whether its host is overloaded"),
        }
    }
}

/// Bytes of a test, or a word.
#[derive(Debug)]
pub(crate) enum Heard<T> {
    Word(T),
    Bytes(Vec<u8>),
}

/// A word that nobody says.
#[derive(Debug, Deserialize)]
enum Never {}

/// Words begin with this, and bytes of tests hardly ever: sixteen bytes that nobody sends by chance.
const WORD_MARK: &[u8] = b"farreach, a word";

fn understand<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    let not_understood = |cause: String| {
        let failure = Failure::new(Exit::Failed, "the other side says what is not understood");
        failure.cause(cause).fix("install the same farreach on both sides")
    };
    let Some(word) = bytes.strip_prefix(WORD_MARK) else {
        return Err(not_understood("bytes came where a word was expected".to_owned()).into());
    };
    match serde_json::from_slice(word) {
        Ok(Word::Said(word)) => Ok(word),
        Ok(Word::Failed(failure)) => Err(of_the_other_side(failure).into()),
        Err(error) => Err(not_understood(error.to_string()).into()),
    }
}

pub(super) fn stopped() -> Failure {
    Failure::new(Exit::PeerLost, "the server was told to end").fix("start it again, and the test")
}

fn of_the_other_side(failure: Failure) -> Failure {
    // It says itself who that is.
    if failure == stopped() {
        return failure;
    }
    Failure { error: format!("on the other side: {}", failure.error), ..failure }
}
