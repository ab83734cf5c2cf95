//! The suite over libfabric's tcp and shm, with whichever generation of it the dynamic linker finds.

#[cfg(feature = "tls")]
mod secure;
mod suite;

use std::sync::{Mutex, PoisonError};

use farreach::{Engine, Settings};
use suite::{Provider, suite};

fn over(rails: &[&str], settings: Settings) -> Engine {
    Engine::with(settings.rails(rails.iter().copied())).unwrap()
}

const TCP: Provider = Provider { open: |settings| over(&["tcp"], settings), has_atomics: None, rails: 1 };
const TWO_TCP: Provider =
    Provider { open: |settings| over(&["tcp@127.0.0.1", "tcp@127.0.0.2"], settings), rails: 2, ..TCP };
const SHM: Provider = Provider { open: |settings| over(&["shm"], settings), has_atomics: Some(true), ..TCP };

suite! {
    here, "needs libfabric: cargo xtask test runs it";
    tcp = crate::TCP;
    two_tcp = crate::TWO_TCP;
}

suite! {
    alone, "needs libfabric: cargo xtask test runs it";
    shm = crate::SHM;
}

#[cfg(feature = "tls")]
mod over_tls {
    use crate::secure::over_tls;
    use crate::suite::{Provider, suite};
    use crate::{TCP, over};

    const TLS: Provider = Provider { open: |settings| over(&["tcp"], over_tls(settings)), ..TCP };

    suite! {
        here, "needs libfabric: cargo xtask test runs it";
        tcp = crate::over_tls::TLS;
    }
}

fn here(test: impl FnOnce()) {
    test();
}

/// One at a time: endpoints over shm that come and go in one process, on several threads, have died of each other's ends (docs/PROVIDERS.md).
fn alone(test: impl FnOnce()) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    test();
}
