//! Budgets: how much peers may cause an engine to hold and to do.

use farreach_proto::machine;

use crate::Error;

/// How much peers may ask of an [`Engine`](crate::Engine). Each has a default that
/// suits an ordinary service.
///
/// A peer that exceeds a budget is lost, with an error that names the budget. Other peers are not
/// affected. An engine announces the budgets that a peer has to keep, so a peer of the same release
/// that reaches one gets an error of its own instead.
///
/// ```
/// use farreach::{Budgets, Settings};
///
/// let settings = Settings::new().budgets(Budgets::new().grants(100_000));
/// # drop(settings);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Budgets {
    pub(crate) of_peer: machine::Budgets,
}

impl Default for Budgets {
    fn default() -> Self {
        Self::new()
    }
}

impl Budgets {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self { of_peer: machine::Budgets::default() }
    }

    /// Sets how many rails a peer may announce. The default is 64.
    pub fn rails(mut self, count: u32) -> Self {
        self.of_peer.rails = count;
        self
    }

    /// Sets how many grants a peer may have given to this engine at a time. The default is 16,384.
    pub fn grants(mut self, count: u32) -> Self {
        self.of_peer.grants = count;
        self
    }

    /// Sets how many counters a peer may have open for this engine at a time. The default is
    /// 16,384.
    pub fn counters(mut self, count: u32) -> Self {
        self.of_peer.counters = count;
        self
    }

    /// Sets how many resets of a rail a peer may cause within a minute. The default is 8. Only
    /// rails on which peers share an endpoint are ever reset.
    pub fn resets(mut self, count: u32) -> Self {
        self.of_peer.resets = count;
        self
    }

    /// Returns an error if a budget has a value with which no peer could connect.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.of_peer.rails {
            0 => Err(Error::setting("budgets", "with 0 rails, no peer can connect")),
            _ => Ok(()),
        }
    }
}
