//! Explains why a TLS session failed: which side is at fault, by which certificate, and the fix for
//! that side.

use std::sync::Arc;
use std::time::SystemTime;

use rustls::{AlertDescription, CertificateError, Error, OtherError};

use super::certificate::{Certificate, Validity, printable};

/// What errors say about this side.
#[derive(Debug, Default)]
pub(super) enum ThisSide {
    /// It presents a certificate.
    Certificate {
        /// `None` if it cannot be described.
        certificate: Option<Certificate>,
        /// Where it was read; `None` if it was not in a file.
        file: Option<String>,
        /// The names of the roots of which it accepts certificates.
        roots: Vec<String>,
    },
    /// It presents the key of a shared secret.
    Secret,
    /// The session was created elsewhere.
    #[default]
    Unknown,
}

/// What this side refuses although rustls accepts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("the peer sends TLS records without content, one after the other")]
    NoContent,
    #[error(
        "the peer names no protocol in its TLS handshake (ALPN): it is not an engine and not this command"
    )]
    NoProtocol,
}

impl Refusal {
    fn fix(self) -> &'static str {
        match self {
            Self::NoContent => "check which program the peer runs: no release of Farreach sends them",
            Self::NoProtocol => {
                "check which program uses this port with a certificate of the same CA, and connect to the right one"
            }
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::Other(OtherError(Arc::new(refusal)))
    }
}

/// Roots that an error lists.
const ROOTS_MAX: usize = 3;

impl ThisSide {
    /// Describes this side's own certificate, for a sentence.
    fn own(&self) -> String {
        match self {
            Self::Certificate { certificate: Some(certificate), file, .. } => {
                let file = file.as_ref().map(|file| format!(", in {file}")).unwrap_or_default();
                format!("this side's certificate ({certificate}{file})")
            }
            _ => "this side's certificate".to_owned(),
        }
    }

    /// Lists the roots of this side: `; its roots are "the house", "strangers"`.
    fn roots(&self) -> String {
        let Self::Certificate { roots, .. } = self else { return String::new() };
        let quoted: Vec<_> = roots.iter().take(ROOTS_MAX).map(|root| format!("\"{root}\"")).collect();
        let more = if roots.len() > ROOTS_MAX { ", …" } else { "" };
        match quoted.len() {
            0 => String::new(),
            1 => format!("; its root is {}", quoted[0]),
            _ => format!("; its roots are {}{more}", quoted.join(", ")),
        }
    }

    fn is_secret(&self) -> bool {
        matches!(self, Self::Secret)
    }
}

/// Returns cause and fix of an error of a session. `refused` is the peer's certificate, if this side
/// has refused it.
pub(super) fn explain(
    error: &Error,
    this_side: &ThisSide,
    refused: Option<&Certificate>,
) -> (String, String) {
    // rustls carries a refusal of this crate as one of its own errors.
    if let Error::Other(OtherError(other)) = error
        && let Some(refusal) = other.downcast_ref::<Refusal>()
    {
        return (refusal.to_string(), refusal.fix().to_owned());
    }
    let (cause, fix) = match error {
        // With a secret, nothing but the key is checked.
        Error::InvalidCertificate(_) if this_side.is_secret() => return other_secret(),
        Error::InvalidCertificate(error) => return of_certificate(error, this_side, refused),
        Error::NoCertificatesPresented => (
            "the peer presents no certificate".to_owned(),
            "configure a certificate on the peer's engine: each side presents its own".to_owned(),
        ),
        // The protocols have different names for secrets and for certificates.
        Error::NoApplicationProtocol => return other_means(this_side),
        Error::AlertReceived(alert) => return of_alert(*alert, this_side),
        other => (
            format!("TLS with the peer failed: {other}"),
            "run the same release on both sides, and check for a proxy between them".to_owned(),
        ),
    };
    (cause, fix)
}

/// Returns cause and fix for two sides with different secrets.
fn other_secret() -> (String, String) {
    (
        "the two sides have different secrets".to_owned(),
        "give both sides the same secret: copy the file of one side to the other; to compare the files, on each \
         host:\nsha256sum FILE"
            .to_owned(),
    )
}

/// Returns cause and fix where one side has a secret and the other one a certificate.
fn other_means(this_side: &ThisSide) -> (String, String) {
    let cause = match this_side {
        ThisSide::Secret => "this side uses a secret, the peer uses certificates",
        ThisSide::Certificate { .. } => "this side uses certificates, the peer uses a secret",
        ThisSide::Unknown => "the peer does not use this protocol over TLS",
    };
    let fix = "use the same on both sides: the secret, or certificates of one CA";
    (cause.to_owned(), fix.to_owned())
}

/// The command that makes a certificate.
const MAKE_ONE: &str = "farreach tls init DIR HOST";

/// The command that makes a certificate in place of another one.
const MAKE_ANEW: &str = "mv DIR/HOST DIR/HOST.old && farreach tls init DIR HOST";

/// Returns cause and fix for a certificate of the peer that this side refuses.
fn of_certificate(
    error: &CertificateError,
    this_side: &ThisSide,
    refused: Option<&Certificate>,
) -> (String, String) {
    let (cause, fix) = match error {
        CertificateError::UnknownIssuer => (
            format!("no root of this side has issued it{}", this_side.roots()),
            format!(
                "add the root that issued the peer's certificate to the roots of this side, or issue one for the peer \
                 from a root of this side; on the host with that CA:\n{MAKE_ONE}"
            ),
        ),
        // The root was found by its name, so it exists, with another key.
        CertificateError::BadSignature => (
            "its signature does not match the key of the root with that name".to_owned(),
            "configure the root that signed it on this side: a CA that was created again has another key"
                .to_owned(),
        ),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => (
            expired(refused),
            format!(
                "renew the peer's certificate, unless this host's clock is wrong (`date`); on the host with the CA:\n\
                 {MAKE_ANEW}"
            ),
        ),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => (
            "it is not valid yet".to_owned(),
            "check the clocks of both hosts (`date`), and the first day on which the certificate is valid"
                .to_owned(),
        ),
        CertificateError::NotValidForNameContext { expected, .. } => {
            let expected = printable(&expected.to_str());
            (format!("it is for {}, not for {expected}", names(refused)), OTHER_NAME.to_owned())
        }
        CertificateError::NotValidForName => ("it is for another name".to_owned(), OTHER_NAME.to_owned()),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            ("its extended key usage does not allow this use".to_owned(), ANY_USE.to_owned())
        }
        other => (printable(&other.to_string()), "issue a new certificate for the peer".to_owned()),
    };
    let which = refused.map(|certificate| format!(" ({certificate})")).unwrap_or_default();
    (format!("the peer's certificate{which} is refused: {cause}"), fix)
}

/// An intermediate certificate may have expired, and not the one that is named.
fn expired(refused: Option<&Certificate>) -> String {
    // rustls does not tell which certificate of the chain has expired. Only the first one is known
    // here.
    match refused.map(|it| it.validity(SystemTime::now())) {
        Some(Validity::Valid | Validity::EndsIn(_)) => {
            "a certificate between it and its root has expired".to_owned()
        }
        _ => "it has expired".to_owned(),
    }
}

const OTHER_NAME: &str =
    "connect to a name or address in the certificate, or set the name to expect (`Tls::server_name`)";

const ANY_USE: &str =
    "issue it for both client and server authentication (extended key usage), or without this extension";

/// Lists the names in a certificate.
fn names(certificate: Option<&Certificate>) -> String {
    match certificate.map(Certificate::names) {
        None => "another name".to_owned(),
        Some([]) => "no name".to_owned(),
        Some(names) => names.join(", "),
    }
}

/// Returns cause and fix for an alert of the peer, which refuses what this side presents.
fn of_alert(alert: AlertDescription, this_side: &ThisSide) -> (String, String) {
    let (cause, fix) = match alert {
        // The alert is the same error as seen by the peer: one side has a secret, the other one has
        // not.
        AlertDescription::NoApplicationProtocol => return other_means(this_side),
        _ if this_side.is_secret() && is_about_key(alert) => return other_secret(),
        // An alert is a number without a text. The causes are those for which rustls sends each of
        // them.
        AlertDescription::UnknownCA => (
            "no root of the peer has issued it",
            format!(
                "add the root that issued this side's certificate to the roots of the peer, or issue one for this side \
                 from a root of the peer; on the host with that CA:\n{MAKE_ONE}"
            ),
        ),
        // rustls also sends this one for a certificate that is not valid yet.
        AlertDescription::CertificateExpired => (
            "it has expired, or is not valid yet",
            format!(
                "renew this side's certificate, unless the peer's clock is wrong (`date`); on the host with the CA:\n\
                 {MAKE_ANEW}"
            ),
        ),
        AlertDescription::CertificateRequired => (
            "this side presents none",
            "configure a certificate on this side: each side presents its own".to_owned(),
        ),
        AlertDescription::UnsupportedCertificate => {
            ("its extended key usage does not allow this use", ANY_USE.to_owned())
        }
        // rustls sends it for a wrong name, a wrong encoding, and an unknown critical extension.
        AlertDescription::BadCertificate => (
            "the peer expects another name, or cannot parse it",
            "compare the name or address that the peer connects to with those in this side's certificate"
                .to_owned(),
        ),
        AlertDescription::CertificateRevoked
        | AlertDescription::CertificateUnknown
        | AlertDescription::AccessDenied
        | AlertDescription::DecryptError => (
            "the peer reports no cause",
            "read the error on the peer, and issue a new certificate for this side".to_owned(),
        ),
        // An engine without descriptors sends this alert before the handshake
        // (`control::session::refusal`).
        AlertDescription::InternalError => {
            return (
                "the peer cannot serve this connection: it has no descriptor left, or another problem of its own"
                    .to_owned(),
                "read the error on the peer; raise its limit of open files (`ulimit -n`)".to_owned(),
            );
        }
        other => {
            return (
                format!("the peer ended the TLS session with the alert {other:?}"),
                "run the same release on both sides, and read the error on the peer".to_owned(),
            );
        }
    };
    (format!("the peer refuses {}: {cause}", this_side.own()), fix)
}

/// Returns whether an alert means that the peer does not accept the key of this side's secret.
fn is_about_key(alert: AlertDescription) -> bool {
    // rustls sends the first one for a key that `OnlyKey` refuses, and the second one for a
    // signature by another key.
    matches!(alert, AlertDescription::AccessDenied | AlertDescription::DecryptError)
}
