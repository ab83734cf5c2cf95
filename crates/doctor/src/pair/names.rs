//! The two hosts and their names.

use crate::pack::Pack;

/// Both hosts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Names<'a> {
    pub(super) peer: &'a str,
    pub(super) here_pack: &'a Pack,
    pub(super) peer_pack: &'a Pack,
}

impl Names<'_> {
    /// Returns the direction of a trial in words.
    pub(super) fn way(&self, is_there: bool) -> String {
        if is_there {
            format!("from this host to {}", self.peer)
        } else {
            format!("from {} to this host", self.peer)
        }
    }

    pub(super) fn host(&self, is_here: bool) -> String {
        if is_here { "this host".to_owned() } else { self.peer.to_owned() }
    }
}
