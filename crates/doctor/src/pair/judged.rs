//! The judgement of one rail with another.

use super::report::State;
use crate::finding::Finding;

/// The judgement of one rail with another.
pub(super) struct Judged {
    pub(super) state: State,
    /// The condition under which it is no fault that the two do not reach each other.
    pub(super) apart: Apart,
    /// A few words for the matrix.
    pub(super) why: String,
    pub(super) finding: Finding,
}

/// When it is no fault that two cards do not reach each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Apart {
    Never,
    /// If this host's card reaches another one: the two are on different networks.
    Networks,
    /// If any two cards of the hosts reach each other: one is InfiniBand, the other Ethernet. A
    /// storage host may have no InfiniBand.
    Wires,
}

impl Judged {
    fn new(state: State, why: String, finding: Finding) -> Self {
        Self { state, apart: Apart::Never, why, finding }
    }

    pub(super) fn works(why: &str, finding: Finding) -> Self {
        Self::new(State::Works, why.to_owned(), finding)
    }

    pub(super) fn warns(why: String, finding: Finding) -> Self {
        Self::new(State::Warns, why, finding)
    }

    pub(super) fn fails(why: &str, finding: Finding) -> Self {
        Self::new(State::Fails, why.to_owned(), finding)
    }

    pub(super) fn perhaps_apart(self) -> Self {
        Self { apart: Apart::Networks, ..self }
    }

    pub(super) fn of_unlike_wires(self) -> Self {
        Self { apart: Apart::Wires, ..self }
    }
}
