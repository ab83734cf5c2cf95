//! Converts a failure of the command to an error between two rails.

use farreach_doctor::pair::readings::{Obstacle, Trouble};

use crate::exit::Failure;

/// Keeps the texts, and adds the kind of the error.
pub(super) fn trouble(obstacle: Obstacle, failure: Failure) -> Trouble {
    let mut trouble = Trouble::new(obstacle, failure.error);
    (trouble.cause, trouble.fix) = (failure.cause, failure.fix.or(failure.their_fix));
    trouble
}
