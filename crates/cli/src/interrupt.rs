//! Ctrl-C, and SIGTERM: the first one ends what is being done in good order, the second one at once.
//!
//! Both are blocked and waited for, not handled: libraries that libfabric loads (PSM3's) put handlers of their own in place of ours, which
//! end the process at once, without a word.

use std::io;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};

use crate::exit::{Exit, Failure};

/// How long anything waits before it looks whether the person has had enough.
pub(crate) const GLANCE: Duration = Duration::from_millis(100);

static IS_ASKED: AtomicBool = AtomicBool::new(false);

/// Takes both signals from now on. To be called before other threads are started: those that run would have them else.
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

/// Of a command that was ended before there was anything to tell.
pub(crate) fn before_anything() -> Failure {
    Failure::new(Exit::Interrupted, "interrupted before anything was measured")
}

/// Whether one has come.
pub(crate) fn is_asked() -> bool {
    IS_ASKED.load(Ordering::Relaxed)
}
