//! Calls into a rail's library that do not return.
//!
//! The thread that leads makes these calls, and nothing can end one. Followers still end by their
//! deadlines. Whoever of them ends so finds out here whether the leader is in such a call, and for
//! how long.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farreach_dylib::InCall;
use farreach_rail::{CallInProgress, CurrentCall, RailCall};

use crate::warning::{Warning, WarningKind};

/// The time after which a call counts as hung. A call that registers much memory may take this long,
/// and a wait that ends meanwhile has it as its cause all the same.
const HUNG: Duration = Duration::from_secs(1);

/// How long a call that looks hung is watched. A process that was stopped finds its calls old, but
/// they go on.
const CONFIRMED_AFTER: Duration = Duration::from_millis(20);

/// The calls of one engine into the libraries of its rails.
#[derive(Debug)]
pub(crate) struct LibraryCalls {
    current: Arc<CurrentCall>,
    function: Arc<InCall>,
    /// The stamp of the call that was warned of last.
    warned: AtomicU64,
}

impl LibraryCalls {
    pub(crate) fn new(current: Arc<CurrentCall>, function: Arc<InCall>) -> Self {
        Self { current, function, warned: AtomicU64::new(0) }
    }

    /// Returns the call that has not returned for at least a second. Blocks for 20 ms if there is
    /// one.
    pub(crate) fn hung(&self) -> Option<HungCall> {
        // A post or a poll counts from its step, so a process that was stopped in a step finds it
        // old.
        let first = self.look()?;
        std::thread::sleep(CONFIRMED_AFTER);
        // Read before the second look: if that finds the same call, the function belongs to it.
        let function = self.function.name();
        let CallInProgress { call, rail, elapsed, stamp } = self.look()?;
        (stamp == first.stamp).then_some(HungCall { function, call, rail, elapsed, stamp })
    }

    fn look(&self) -> Option<CallInProgress> {
        self.current.get().filter(|call| call.elapsed >= HUNG)
    }

    /// Returns a warning of this call, once.
    pub(crate) fn warning_of(&self, call: &HungCall) -> Option<Warning> {
        // Several threads may find the call at once. One of them gets the warning.
        let is_known = self.warned.swap(call.stamp, Ordering::Relaxed) == call.stamp;
        (!is_known).then(|| Warning::new(WarningKind::HungCall, call.to_string(), call.fix()))
    }
}

/// A call that has not returned for a second or longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HungCall {
    /// The C function. `None` for a rail without a C library, and for functions that are too short
    /// to be noted.
    function: Option<&'static str>,
    call: RailCall,
    rail: String,
    elapsed: Duration,
    stamp: u64,
}

impl HungCall {
    pub(crate) fn fix(&self) -> String {
        format!(
            "the engine makes no progress until the call returns: restart the process, and report the call with its \
             stack:\ngdb -p {} -batch -ex 'thread apply all bt'",
            std::process::id()
        )
    }
}

impl fmt::Display for HungCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { function, call, rail, elapsed, .. } = self;
        match function {
            Some(function) => write!(f, "the call {function} (by {})", call.name())?,
            None => write!(f, "the call {}", call.name())?,
        }
        write!(f, " on rail {rail} has not returned for {:.1} s", elapsed.as_secs_f64())
    }
}

/// A wait that has timed out.
#[derive(Debug, Clone)]
pub(crate) struct Timeout {
    /// The time that the caller was ready to wait.
    pub(crate) after: Duration,
    /// The call that the engine is in, if that is the cause.
    pub(crate) hung: Option<HungCall>,
}

impl Timeout {
    /// Returns a cause with the hung call, if there is one.
    pub(crate) fn explain(&self, cause: String) -> String {
        match &self.hung {
            Some(hung) => format!("{cause}: {hung}"),
            None => cause,
        }
    }
}
