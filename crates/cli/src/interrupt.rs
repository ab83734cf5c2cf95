//! Handles Ctrl-C and SIGTERM: the first one ends the command in an orderly way, the second one at
//! once.
//!
//! Both signals are blocked and waited for, not handled: libraries that libfabric loads (PSM3's)
//! replace our handlers by their own, which end the process at once without a message.

use std::io;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};

use crate::exit::{Exit, Failure};

/// The interval at which waits check for an interrupt.
pub(crate) const GLANCE: Duration = Duration::from_millis(100);

static IS_ASKED: AtomicBool = AtomicBool::new(false);

/// Takes over both signals. To be called before other threads start, which would otherwise receive
/// them.
pub(crate) fn watch() -> io::Result<()> {
    let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM].into_iter().collect();
    signals.thread_block()?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        while signals.wait().is_ok() {
            if IS_ASKED.swap(true, Ordering::Relaxed) {
                #[expect(clippy::exit, reason = "the person has asked twice")]
                process::exit(Exit::Interrupted.code().into());
            }
        }
    })?;
    Ok(())
}

/// Returns the failure of a command that was interrupted before it had a result.
pub(crate) fn before_anything() -> Failure {
    Failure::new(Exit::Interrupted, "interrupted before anything was measured")
}

/// Returns whether a signal has arrived.
pub(crate) fn is_asked() -> bool {
    IS_ASKED.load(Ordering::Relaxed)
}
