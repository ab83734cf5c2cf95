//! Settings for engines over TLS.

use std::sync::OnceLock;

use farreach::{Settings, Tls, TlsParts};
use farreach_testkit::Authority;

/// Adds a certificate that all engines of the process trust.
pub(crate) fn over_tls(settings: Settings) -> Settings {
    static TLS: OnceLock<Tls> = OnceLock::new();
    let tls = TLS.get_or_init(|| {
        let authority = Authority::new("the suite");
        let shown = authority.certify(&["127.0.0.1"]);
        Tls::from_pem(TlsParts {
            certificate: shown.certificate.as_str(),
            key: &shown.key,
            roots: authority.root(),
        })
        .unwrap()
    });
    settings.tls(tls.clone())
}
