//! Why a peer is lost.

use std::time::Duration;

use crate::rail::RailError;

/// Why a peer is lost. A peer that was lost stays lost: whoever comes again is another one.
///
/// ```
/// use farreach_proto::lost::LostReason;
///
/// assert_eq!(LostReason::Goodbye.to_string(), "it has said goodbye");
/// assert!(!LostReason::Goodbye.fix().is_empty());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LostReason {
    /// It was closed on the other side, in order.
    #[error("it has said goodbye")]
    Goodbye,
    /// It was closed on this side, or its last handle was dropped.
    #[error("nobody here needs it any more")]
    Left,
    /// Its control connection is there, and nothing comes over it.
    #[error("it has said nothing for {} ms", silent.as_millis())]
    Silent {
        /// For how long.
        silent: Duration,
    },
    /// Its control connection has ended.
    #[error("{cause}")]
    Disconnected {
        /// How.
        cause: String,
        /// What to do.
        fix: String,
    },
    /// The two sides have no rail of one kind.
    #[error("no rail in common: it has {theirs:?}, and this side {ours:?}")]
    NoCommonRail {
        /// The kinds of its rails.
        theirs: Vec<String>,
        /// The kinds of ours.
        ours: Vec<String>,
    },
    /// It does not keep to the protocol.
    #[error("{0}")]
    Violation(&'static str),
    /// A rail cannot be stopped by which it may still write to memory of ours: nothing can be promised of that memory.
    #[error("what it has under way cannot be stopped: {rail}")]
    Unstoppable {
        /// What became of the rail.
        rail: RailError,
    },
    /// It was lost before, and is forgotten.
    #[error("it is gone")]
    Gone,
}

impl LostReason {
    /// What to do about it.
    pub fn fix(&self) -> String {
        match self {
            Self::Goodbye | Self::Left | Self::Gone => {
                "connect to it again; what it had granted is gone with it".to_owned()
            }
            Self::Silent { .. } => {
                "see whether the peer's process runs, and whether the way to it is up".to_owned()
            }
            Self::Disconnected { fix, .. } => fix.clone(),
            Self::NoCommonRail { .. } => {
                "give both sides a rail of the same kind: farreach devices".to_owned()
            }
            Self::Violation(_) => {
                "run the same release on both sides; if they do, this is a bug of one of them".to_owned()
            }
            Self::Unstoppable { rail } => rail.fix.clone(),
        }
    }
}
