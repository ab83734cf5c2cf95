//! Memory that may be locked, mapped, and is near.

use crate::cmd::doctor::finding::{Answer, Finding};
use crate::cmd::doctor::pack::Pack;

/// How much memory may be locked.
pub(super) fn memlock(pack: &Pack) -> Answer {
    const LIMITS: &str = "/proc/self/limits";
    match pack.text(LIMITS) {
        Ok(_) => Finding::pass("unlimited").read(LIMITS).into(),
        Err(missing) => Finding::unread(LIMITS, &missing).into(),
    }
}
