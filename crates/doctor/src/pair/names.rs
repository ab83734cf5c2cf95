//! The names of the two hosts in findings.

use super::readings::PairReadings;
use crate::finding::Fix;
use crate::pack::Pack;

/// Both hosts.
#[derive(Debug, Clone)]
pub(super) struct Names<'a> {
    /// The host that asked.
    pub(super) here: String,
    pub(super) peer: String,
    pub(super) here_pack: &'a Pack,
    pub(super) peer_pack: &'a Pack,
}

impl<'a> Names<'a> {
    /// Names the hosts so that they differ: two hosts of the same name have their addresses, too. A
    /// host that is its own peer has the name that was typed.
    pub(super) fn of(readings: &PairReadings, here_pack: &'a Pack, peer_pack: &'a Pack) -> Self {
        let (host, peer_host) = (here_pack.host(), peer_pack.host());
        let (here, peer) = match readings.addresses() {
            Some((ours, theirs)) if host == peer_host && ours != theirs => {
                (format!("{host} ({ours})"), format!("{peer_host} ({theirs})"))
            }
            _ => (host.to_owned(), readings.peer.clone()),
        };
        Self { here, peer, here_pack, peer_pack }
    }

    /// Returns the direction of a trial in words.
    pub(super) fn way(&self, is_there: bool) -> String {
        let (from, to) = if is_there { (&self.here, &self.peer) } else { (&self.peer, &self.here) };
        format!("from {from} to {to}")
    }

    pub(super) fn host(&self, is_here: bool) -> &str {
        if is_here { &self.here } else { &self.peer }
    }

    /// Creates a fix for one of the hosts.
    pub(super) fn fix(&self, is_here: bool, what: impl Into<String>) -> Fix {
        Fix::new(what).at(format!("on {}", self.host(is_here)))
    }
}

/// The place of a fix that concerns both hosts.
pub(super) const BOTH: &str = "on both hosts";
