//! Reasons for which a peer is lost.

use std::time::Duration;

use farreach_text::Untrusted;

use crate::rail::RailError;

/// The reason for which a peer is lost. A lost peer stays lost: a peer that connects again is
/// another one.
///
/// ```
/// use farreach_proto::lost::LostReason;
///
/// assert_eq!(LostReason::Goodbye.to_string(), "the peer closed the connection");
/// assert!(!LostReason::Goodbye.fix().is_empty());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LostReason {
    /// The peer closed the connection in order.
    #[error("the peer closed the connection")]
    Goodbye,
    /// This side closed the connection, or dropped its last handle.
    #[error("this side closed the connection")]
    Left,
    /// The control connection is open, and nothing was received over it.
    #[error("nothing was received for {} ms", silent.as_millis())]
    Silent {
        /// The length of the silence.
        silent: Duration,
    },
    /// The control connection has ended.
    #[error("{cause}")]
    Disconnected {
        /// The way in which it ended.
        cause: String,
        /// A remedy.
        fix: String,
    },
    /// The two sides have no rail of the same kind.
    #[error("no rail in common: the peer has {:?}, this side has {:?}", for_people(theirs.iter().map(Untrusted::as_sent)), for_people(ours.iter().map(String::as_str)))]
    NoCommonRail {
        /// The kinds of the peer's rails.
        theirs: Vec<Untrusted>,
        /// The kinds of this side's rails.
        ours: Vec<String>,
    },
    /// The peer violated the protocol.
    #[error("{0}")]
    Violation(&'static str),
    /// The peer asked for more than this side allows.
    #[error("the peer exceeded a budget of this side: at most {max} {what}")]
    OverBudget {
        /// What the budget limits.
        what: &'static str,
        /// The limit.
        max: u32,
        /// The name of the setting, in the engine's `Budgets`.
        setting: &'static str,
    },
    /// The peer does not accept this side.
    #[error("the peer refused the connection: {}", reason.shown())]
    Refused {
        /// The peer's reason.
        reason: Untrusted,
    },
    /// The peer may still write to memory of this side over a rail that cannot be stopped, so
    /// nothing can be guaranteed about that memory.
    #[error("operations in flight cannot be stopped: {rail}")]
    Unstoppable {
        /// The rail's error.
        rail: RailError,
    },
    /// The peer was lost earlier, and its state is gone.
    #[error("the peer was lost earlier")]
    Gone,
}

impl LostReason {
    /// Returns a remedy to show to the user.
    pub fn fix(&self) -> String {
        match self {
            Self::Goodbye | Self::Left | Self::Gone => {
                "connect to the peer again; its grants ended with the connection".to_owned()
            }
            Self::Silent { .. } => {
                "check that the peer's process runs and that the network path to it is up".to_owned()
            }
            Self::Disconnected { fix, .. } => fix.clone(),
            Self::NoCommonRail { theirs, ours }
                if theirs.iter().any(|kind| is_shm(kind.as_sent()))
                    && ours.iter().any(|kind| is_shm(kind)) =>
            {
                "shm connects processes of one user on one host, in one network namespace or with one \
                 `Settings::shm_dir`: start both sides so, or give both another rail of the same kind"
                    .to_owned()
            }
            Self::NoCommonRail { .. } => {
                "give both sides a rail of the same kind; `farreach devices` lists them".to_owned()
            }
            Self::Violation(_) => {
                "run the same release on both sides; if they already do, this is a bug in one of them"
                    .to_owned()
            }
            Self::OverBudget { setting, .. } => {
                format!("raise `Budgets::{setting}` if the peer is trusted and needs more")
            }
            Self::Refused { .. } => {
                "check the log of the peer, and its budgets; connect again later".to_owned()
            }
            Self::Unstoppable { rail } => rail.fix.clone(),
        }
    }
}

/// The beginning of the kind of the rail within a host. A digest follows.
const SHM: &str = "shm/";

fn is_shm(kind: &str) -> bool {
    kind.starts_with(SHM)
}

/// Returns the kinds without digests, which mean nothing to people.
fn for_people<'a>(kinds: impl Iterator<Item = &'a str>) -> Vec<Untrusted> {
    kinds.map(|kind| Untrusted::new(if is_shm(kind) { "shm" } else { kind })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_of_kinds_are_not_printed() {
        let lost = |theirs: &[&str], ours: &[&str]| LostReason::NoCommonRail {
            theirs: theirs.iter().map(|&kind| kind.into()).collect(),
            ours: ours.iter().map(|&kind| kind.to_owned()).collect(),
        };
        let both = lost(&["shm/0123", "fabric/tcp/xnet"], &["shm/4567"]);
        assert_eq!(
            both.to_string(),
            r#"no rail in common: the peer has ["shm", "fabric/tcp/xnet"], this side has ["shm"]"#
        );
        assert!(both.fix().starts_with("shm connects processes of one user"), "{}", both.fix());
        assert!(lost(&["shm/0123"], &["fabric/tcp/xnet"]).fix().starts_with("give both sides"));
    }
}
