//! The suite over libfabric's tcp, with the generation of the library that the dynamic linker
//! finds.

use farreach::{Engine, Settings};

use crate::suite::{RailUnderTest, suite};

fn over(rails: &[&str], settings: Settings) -> Engine {
    Engine::with(settings.rails(rails.iter().copied())).unwrap()
}

const TCP: RailUnderTest =
    RailUnderTest { open: |settings| over(&["tcp"], settings), has_atomics: None, rails: 1 };
const TWO_TCP: RailUnderTest =
    RailUnderTest { open: |settings| over(&["tcp@127.0.0.1", "tcp@127.0.0.2"], settings), rails: 2, ..TCP };

suite! {
    crate::over_libfabric::here, "needs libfabric: cargo xtask test runs it";
    tcp = crate::over_libfabric::TCP;
    two_tcp = crate::over_libfabric::TWO_TCP;
}

#[cfg(feature = "tls")]
mod over_tls {
    use crate::over_libfabric::{TCP, over};
    use crate::secure::over_tls;
    use crate::suite::{RailUnderTest, suite};

    const TLS: RailUnderTest = RailUnderTest { open: |settings| over(&["tcp"], over_tls(settings)), ..TCP };

    suite! {
        crate::over_libfabric::here, "needs libfabric: cargo xtask test runs it";
        tcp = crate::over_libfabric::over_tls::TLS;
    }
}

pub(crate) fn here(test: impl FnOnce()) {
    test();
}
