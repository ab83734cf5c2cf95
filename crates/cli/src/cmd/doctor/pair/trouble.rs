//! A failure of the command as trouble between two rails.

use farreach_doctor::pair::readings::{Obstacle, Trouble};

use crate::exit::Failure;

/// The same words, and what kind of trouble it is.
pub(super) fn trouble(obstacle: Obstacle, failure: Failure) -> Trouble {
    let mut trouble = Trouble::new(obstacle, failure.error);
    (trouble.cause, trouble.fix) = (failure.cause, failure.fix);
    trouble
}
