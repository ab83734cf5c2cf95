//! What the driver and the processes of other roles say to each other: a command in a line on
//! stdin, its answer as JSON in a line on stdout.

use std::collections::BTreeMap;
use std::io::{self, Write};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::insider::Secrets;
use crate::service::Service;

/// Answers the driver.
pub(crate) fn say(answer: &impl Serialize) -> Result<()> {
    let line = serde_json::to_string(answer)?;
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()?;
    Ok(())
}

/// Ends this process with the driver: its stdin is closed then. For processes that take no
/// commands.
pub(crate) fn end_with_driver() {
    std::thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        #[expect(clippy::exit, reason = "the other threads of an attacker wait for their victim")]
        std::process::exit(0)
    });
}

/// Gives this process the lowest priority. On two cores, attackers and processes that start would
/// otherwise take the processor time of honest clients, which no victim can prevent.
pub(crate) fn yield_to_others() {
    const LOWEST: i32 = 19;
    // A process with another priority attacks all the same.
    let _ = rustix::process::nice(LOWEST);
}

/// An answer without content.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Done {}

/// The first line of a victim.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Listening {
    pub(crate) address: String,
    /// The token of what it has published.
    pub(crate) publication: String,
}

/// The first line of a witness.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) secrets: Secrets,
}

/// The state of a victim.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Status {
    /// The peers that the engine knows.
    pub(crate) peers: usize,
    /// The peers that were ever accepted.
    pub(crate) accepted: u64,
    /// Honest peers and witnesses, also those that are lost.
    pub(crate) peers_watched: Vec<Watched>,
    /// What attackers did to their own memory, counters and messages, which shows that they can.
    pub(crate) attackers: Attackers,
    /// How the victim's own operations on memory of attackers ended.
    pub(crate) uses: BTreeMap<String, u64>,
    /// The victim's own operations on memory of attackers that have not ended.
    pub(crate) uses_open: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attackers {
    pub(crate) bytes: u64,
    pub(crate) pages: u64,
    pub(crate) messages: u64,
}

/// What a victim knows of an honest peer or a witness.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Watched {
    pub(crate) name: String,
    /// The token of its counter, by which a connection is told from a later one of the same client.
    pub(crate) counter: String,
    pub(crate) pages: u64,
    /// The sum of its atomics.
    pub(crate) adds: u64,
    pub(crate) messages: u64,
    /// Bytes in its memory, and messages in its name, that are not its own.
    pub(crate) foreign_bytes: u64,
    pub(crate) foreign_messages: u64,
    /// Why its counter has ended, unless the peer is lost.
    pub(crate) ended: Option<String>,
    pub(crate) lost: Option<String>,
}

/// The result of `revoke`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Revoked {
    pub(crate) after_ms: u64,
    /// Whether the memory came back as a slice.
    pub(crate) is_proven: bool,
    pub(crate) error: Option<String>,
}

/// The result of `watch`: the bytes that have changed in memory that came back as a slice.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Changed {
    pub(crate) bytes: u64,
}

/// The capacity of a client, in operations per second.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Capacity {
    pub(crate) per_second: f64,
}

/// The service that a client got in one phase.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Served {
    pub(crate) service: Service,
    /// What it has done, since it began, over each connection.
    pub(crate) sessions: Vec<Session>,
}

/// What a client has done over one connection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Session {
    pub(crate) counter: String,
    pub(crate) pages: u64,
    pub(crate) adds: u64,
    pub(crate) messages: u64,
    /// Whether an operation failed, so that the figures are lower bounds.
    pub(crate) has_failed: bool,
}

/// How a new client was received.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Newcomer {
    /// It was served.
    Served { ms: u64 },
    /// It was told why not.
    Refused { ms: u64, reason: String },
    /// It got no answer.
    Unanswered { reason: String },
}

/// What an attacker did.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Attacked {
    /// In one line, for people.
    pub(crate) did: String,
    /// Counts, for programs.
    pub(crate) counts: BTreeMap<String, u64>,
    /// Attempts to reach what is another's, each over a link or a connection that worked.
    pub(crate) attempts: u64,
    /// What the attacker itself noticed that must not be: how often, and the first case.
    breaches: BTreeMap<String, (u64, String)>,
}

impl Attacked {
    /// Says what was done, where nothing is counted.
    pub(crate) fn did(did: String) -> Self {
        Self { did, ..Self::default() }
    }

    /// Adds what another attacker did of the same attack.
    pub(crate) fn add(&mut self, other: Self) {
        for (what, count) in &other.counts {
            self.count(what, *count);
        }
        self.attempts += other.attempts;
        for (what, (count, case)) in other.breaches {
            self.breaches.entry(what).or_insert((0, case)).0 += count;
        }
        if self.did.is_empty() {
            self.did = other.did;
        }
    }

    /// Returns the counts in words.
    pub(crate) fn counted(&self) -> String {
        let counts = self.counts.iter().map(|(what, count)| format!("{count} {what}"));
        counts.collect::<Vec<_>>().join(", ")
    }

    /// Returns whether anything was done. A line whose attacker did nothing shows nothing.
    pub(crate) fn has_done_something(&self) -> bool {
        self.counts.values().any(|count| *count > 0)
    }

    /// Notes something that must not be, with this case of it.
    pub(crate) fn breach(&mut self, what: &str, case: impl Into<String>) {
        self.breaches.entry(what.to_owned()).or_insert_with(|| (0, case.into())).0 += 1;
    }

    /// Returns how often something happened that must not be.
    pub(crate) fn hits(&self) -> u64 {
        self.breaches.values().map(|(count, _)| count).sum()
    }

    /// Returns what must not be, in words.
    pub(crate) fn breaches(&self) -> Vec<String> {
        let told = |(what, (count, case)): (&String, &(u64, String))| match count {
            1 => format!("{what}: {case}"),
            _ => format!("{what}: {case}, and {} more", count - 1),
        };
        self.breaches.iter().map(told).collect()
    }

    pub(crate) fn count(&mut self, what: &str, number: u64) {
        *self.counts.entry(what.to_owned()).or_default() += number;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_breach_is_told_once_with_its_count() {
        let mut attacked = Attacked::default();
        assert_eq!(attacked.breaches(), [""; 0]);
        attacked.count("sent", 0);
        assert!(!attacked.has_done_something());
        attacked.breach("a forged key was accepted", "0x7");
        assert_eq!(attacked.breaches(), ["a forged key was accepted: 0x7"]);
        attacked.breach("a forged key was accepted", "0x8");
        assert_eq!(attacked.breaches(), ["a forged key was accepted: 0x7, and 1 more"]);
        let mut both = attacked.clone();
        both.add(attacked);
        assert_eq!(both.breaches(), ["a forged key was accepted: 0x7, and 3 more"]);
        assert_eq!(both.hits(), 4);
    }
}
