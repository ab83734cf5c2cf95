//! What can go wrong, and what to do about it.

use std::fmt;
use std::time::Duration;

use farreach_proto::plan::PlanError;

use crate::rail::RailError;
use crate::{Buffer, Explanation, LostReason};

/// Why an engine could not do something. It displays as what was asked for; [`cause`](Self::cause) says why, and [`fix`](Self::fix) what to
/// do about it. Where a program ends with it, all three are told: that is what `Debug` writes.
///
/// ```
/// use std::time::Duration;
/// use farreach::Error;
///
/// let error = Error::TimedOut { what: "accept", after: Duration::from_secs(3) };
/// assert_eq!(error.to_string(), "accept: nothing came within 3s");
/// assert!(!error.fix().is_empty());
/// ```
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A rail, or its library, said no.
    #[error(transparent)]
    Rail(#[from] RailError),
    /// No rail could be opened: what each one said.
    #[error("no rail could be opened")]
    NoRail {
        /// Each one that was tried, and what it said.
        tried: Vec<(String, RailError)>,
        /// Whether only cards would have done.
        needs_rdma: bool,
    },
    /// An engine cannot be as the settings say.
    #[error("the setting `{setting}`: {cause}")]
    Setting {
        /// Which.
        setting: &'static str,
        /// Why not.
        cause: String,
    },
    /// Nobody to talk to.
    #[error("connect to {address}: {cause}")]
    Connect {
        /// Where.
        address: String,
        /// Why not.
        cause: String,
        /// What to do.
        fix: String,
    },
    /// Who has connected could not be let in.
    #[error("accept {whom}: {cause}")]
    Accept {
        /// From whom, or where.
        whom: String,
        /// Why not.
        cause: String,
        /// What to do.
        fix: String,
    },
    /// A certificate, a key or a name is of no use.
    #[cfg(feature = "tls")]
    #[error("{operation}: {cause}")]
    Tls {
        /// What was to be done with it.
        operation: String,
        /// Why not.
        cause: String,
        /// What to do.
        fix: String,
    },
    /// An address that means nothing.
    #[error("`{address}` is no address: {cause}")]
    Address {
        /// As it was given.
        address: String,
        /// Why.
        cause: String,
    },
    /// The peer is gone.
    #[error("the peer is lost: {reason}")]
    PeerLost {
        /// Why.
        reason: LostReason,
    },
    /// The time is over.
    #[error("{what}: nothing came within {after:?}")]
    TimedOut {
        /// What was waited for.
        what: &'static str,
        /// For how long.
        after: Duration,
    },
    /// The peer has no such memory or counter for us.
    #[error("the peer has given us no {what} of this name, or wants it back")]
    NotOffered {
        /// What.
        what: &'static str,
    },
    /// A bound of the engine's.
    #[error("{what}: there are too many")]
    TooMany {
        /// Of what.
        what: &'static str,
    },
    /// The system said no.
    #[error("{operation}: {cause}")]
    System {
        /// What was asked for.
        operation: &'static str,
        /// Why not.
        cause: String,
    },
    /// The engine has ended.
    #[error("the engine has ended")]
    Ended,
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (told, cause) = (self.to_string(), self.cause());
        f.write_str(&told)?;
        if !told.contains(&cause) {
            write!(f, "\ncause: {cause}")?;
        }
        write!(f, "\nfix: {}", self.fix())
    }
}

impl Error {
    /// Why.
    pub fn cause(&self) -> String {
        match self {
            Self::Rail(error) => error.cause.clone(),
            Self::NoRail { tried, .. } if tried.is_empty() => {
                "there is none of the kinds asked for".to_owned()
            }
            Self::NoRail { tried, .. } => {
                tried.iter().map(|(name, error)| format!("{name}: {error}")).collect::<Vec<_>>().join("; ")
            }
            Self::Connect { cause, .. }
            | Self::Accept { cause, .. }
            | Self::Address { cause, .. }
            | Self::Setting { cause, .. }
            | Self::System { cause, .. } => cause.clone(),
            #[cfg(feature = "tls")]
            Self::Tls { cause, .. } => cause.clone(),
            Self::PeerLost { reason } => reason.to_string(),
            other => other.to_string(),
        }
    }

    /// What to do about it.
    pub fn fix(&self) -> String {
        match self {
            Self::Rail(error) => error.fix.clone(),
            Self::NoRail { needs_rdma: true, .. } => {
                "see `farreach devices`; without require_rdma the engine falls back to tcp".to_owned()
            }
            Self::NoRail { tried, .. } => {
                tried.first().map_or("see `farreach devices` for what there is".to_owned(), |(_, error)| {
                    error.fix.clone()
                })
            }
            Self::Connect { fix, .. } | Self::Accept { fix, .. } => fix.clone(),
            #[cfg(feature = "tls")]
            Self::Tls { fix, .. } => fix.clone(),
            Self::Setting { setting, .. } => format!("see the bounds of `Settings::{setting}`"),
            Self::Address { .. } => "give host:port, such as 10.0.0.7:18520 or [::1]:18520".to_owned(),
            Self::PeerLost { reason } => reason.fix(),
            Self::TimedOut { .. } => "see that the other side does its part, or wait longer".to_owned(),
            Self::NotOffered { .. } => "ask the peer for it again".to_owned(),
            Self::TooMany { .. } => "drop those that are not needed any more".to_owned(),
            Self::System { .. } => "see the limits of this process: ulimit -n, ulimit -l".to_owned(),
            Self::Ended => "make a new engine".to_owned(),
        }
    }
}

/// Why pages were not moved, or not all of them: and this side's memory, where no card has a part of it any more.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
#[non_exhaustive]
pub struct TransferError {
    /// Why.
    pub reason: TransferReason,
    /// This side's memory. Where a card may still have a part of it there is none: the engine keeps it until the card is done, and
    /// frees it then.
    pub buffer: Option<Buffer>,
    /// How far it got.
    pub explanation: Explanation,
}

/// Why pages were not moved, or not all of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransferReason {
    /// The pages do not fit the memory.
    #[error(transparent)]
    Pages(#[from] PlanError),
    /// The peer is gone. Some pages may have arrived.
    #[error("the peer is lost: {0}")]
    PeerLost(LostReason),
    /// It took too long, and goes on.
    #[error("not done within {0:?}; it goes on")]
    TimedOut(Duration),
    /// It was given up.
    #[error("the transfer was given up")]
    Aborted,
    /// The peer wants its memory back.
    #[error("the peer has revoked its memory")]
    Revoked,
    /// The peer has not granted this memory, or not for this.
    #[error("the peer has not granted this memory for it")]
    NotGranted,
    /// The peer has no such counter any more.
    #[error("the peer has closed the counter")]
    NoSuchCounter,
    /// The rail said no.
    #[error(transparent)]
    Rail(RailError),
    /// The engine has ended.
    #[error("the engine has ended")]
    Ended,
}

/// The system's words, without the number that std adds to them.
pub(crate) fn words(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((words, _)) => words.to_lowercase(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_ends_with_an_error_tells_operation_cause_and_fix() {
        let (address, cause, fix) = ("10.0.0.7:1".to_owned(), "nobody".to_owned(), "start it".to_owned());
        let error = Error::Connect { address, cause, fix };
        assert_eq!(format!("{error:?}"), "connect to 10.0.0.7:1: nobody\nfix: start it");
        let tried = vec![("tcp".to_owned(), RailError::new("open", "busy", "wait"))];
        let told = format!("{:?}", Error::NoRail { tried, needs_rdma: false });
        assert!(
            told.starts_with("no rail could be opened\ncause: tcp: ") && told.ends_with("\nfix: wait"),
            "{told}"
        );
    }
}
