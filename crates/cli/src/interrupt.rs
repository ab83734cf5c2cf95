//! Ctrl-C, and SIGTERM: the first one ends what is being done in good order, the second one at once.

use std::io;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::exit::Exit;

/// How long anything waits before it looks whether the person has had enough.
pub(crate) const GLANCE: Duration = Duration::from_millis(100);

static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Takes both signals from now on.
pub(crate) fn watch() -> io::Result<()> {
    let asked = Arc::clone(ASKED.get_or_init(Arc::default));
    for signal in [SIGINT, SIGTERM] {
        // This one first: it looks at the flag before the other sets it.
        flag::register_conditional_shutdown(signal, Exit::Interrupted.code().into(), Arc::clone(&asked))?;
        flag::register(signal, Arc::clone(&asked))?;
    }
    Ok(())
}

/// Whether one has come.
pub(crate) fn is_asked() -> bool {
    ASKED.get().is_some_and(|asked| asked.load(Ordering::Relaxed))
}
