//! Warnings: what an operator should know although nothing has failed.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// Something that the operator of an engine should know although nothing has failed, with its fix.
/// [`Engine::warnings`](crate::Engine::warnings) returns them.
///
/// `Display` writes the warning in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    kind: WarningKind,
    message: String,
    fix: String,
}

/// The kind of a [`Warning`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WarningKind {
    /// Control connections beyond this host are neither encrypted nor authenticated
    /// ([`Settings::insecure`](crate::Settings::insecure)).
    Insecure,
    /// A rail that engines open by default could not be opened, and others were.
    Rail,
    /// Peers are to be separated ([`Settings::isolate_peers`](crate::Settings::isolate_peers)), and
    /// keys of a card cannot be bound to the link of one peer.
    SharedKeys,
    /// The certificate of this side has expired, expires soon, or is not valid yet.
    Certificate,
    /// A call into the library of a rail has not returned for a second or longer. The engine makes no
    /// progress until it does.
    HungCall,
}

impl Warning {
    pub(crate) fn new(kind: WarningKind, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { kind, message: message.into(), fix: fix.into() }
    }

    /// Returns its kind.
    pub fn kind(&self) -> WarningKind {
        self.kind
    }

    /// Returns what to do about it. A command to copy is alone on its line.
    pub fn fix(&self) -> &str {
        &self.fix
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Warnings that are kept. A program may connect any number of times.
const KEPT_MAX: usize = 64;

/// The latest warnings of an engine.
#[derive(Debug, Default)]
pub(crate) struct Warnings(Mutex<VecDeque<Warning>>);

impl Warnings {
    pub(crate) fn add(&self, warning: Warning) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back(warning);
    }

    pub(crate) fn all(&self) -> Vec<Warning> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_kept_and_no_more() {
        let warnings = Warnings::default();
        for number in 0..1000 {
            warnings.add(Warning::new(WarningKind::Insecure, number.to_string(), ""));
        }
        let kept = warnings.all();
        assert_eq!((kept.len(), kept[0].to_string()), (KEPT_MAX, (1000 - KEPT_MAX).to_string()));
    }
}
