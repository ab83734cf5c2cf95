//! Describes why a TLS session failed: which side is at fault, and the fix for that side.

use std::net::SocketAddr;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

use super::reason::CloseReason;
use super::session::SessionEnd;

impl CloseReason {
    /// Describes the end of a session. Returns `None` if it has ended in order.
    pub(super) fn of_session(end: &SessionEnd, peer: SocketAddr) -> Option<Self> {
        let SessionEnd::Failed { error, is_early } = end else { return None };
        let (cause, fix) = match error {
            // The first byte is of no TLS record type, so the peer sends plaintext.
            Error::InvalidMessage(InvalidMessage::InvalidContentType) if *is_early => {
                return Some(Self::TlsNotThere { peer });
            }
            Error::InvalidCertificate(error) => of_certificate(error),
            Error::NoCertificatesPresented => (
                "the peer presents no certificate".to_owned(),
                "configure a certificate on the peer's engine: each side presents its own".to_owned(),
            ),
            Error::AlertReceived(alert) => of_alert(*alert),
            other => (
                format!("TLS with the peer failed: {other}"),
                "run the same release on both sides, and check for a proxy between them".to_owned(),
            ),
        };
        Some(Self::Tls { peer, cause, fix })
    }
}

/// Returns cause and fix for a certificate of the peer that this side refuses.
fn of_certificate(error: &CertificateError) -> (String, String) {
    let (cause, fix) = match error {
        CertificateError::UnknownIssuer => (
            "no root of this side has issued it".to_owned(),
            "add the root that issued the peer's certificate to the roots of this side, or issue one for the peer \
             from a root of this side",
        ),
        CertificateError::BadSignature => (
            "its signature does not match the key of the root with that name".to_owned(),
            "configure the root that signed it on this side: an authority that was created again has \
             another key",
        ),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => (
            "it has expired".to_owned(),
            "renew the peer's certificate, unless this host's clock is wrong (`date`)",
        ),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => (
            "it is not valid yet".to_owned(),
            "check the clocks of both hosts (`date`), and the first day on which the certificate is valid",
        ),
        CertificateError::NotValidForNameContext { expected, presented } => {
            (format!("it is for {}, not for {}", list(presented), expected.to_str()), OTHER_NAME)
        }
        CertificateError::NotValidForName => ("it is for another name".to_owned(), OTHER_NAME),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => (
            "its extended key usage does not allow this use".to_owned(),
            "issue it for both client and server authentication (extended key usage), or without this \
             extension",
        ),
        other => (other.to_string(), "issue a new certificate for the peer"),
    };
    (format!("the peer's certificate is refused: {cause}"), fix.to_owned())
}

const OTHER_NAME: &str =
    "connect to a name or address in the certificate, or set the name to expect (`Tls::server_name`)";

/// Lists the names in a certificate.
fn list(names: &[String]) -> String {
    // rustls formats a name as `DnsName("storage-7")`; the text in quotes is wanted.
    let bare = |name: &String| name.split('"').nth(1).map_or_else(|| name.clone(), ToOwned::to_owned);
    match names {
        [] => "no name".to_owned(),
        names => names.iter().map(bare).collect::<Vec<_>>().join(", "),
    }
}

/// Returns cause and fix for an alert of the peer, which refuses this side's certificate.
fn of_alert(alert: AlertDescription) -> (String, String) {
    let (cause, fix) = match alert {
        AlertDescription::UnknownCA => (
            "no root of the peer has issued it",
            "add the root that issued this side's certificate to the roots of the peer, or issue one for this side \
             from a root of the peer",
        ),
        AlertDescription::CertificateExpired => (
            "it has expired, or is not valid yet",
            "renew this side's certificate, unless the peer's clock is wrong (`date`)",
        ),
        AlertDescription::CertificateRequired => {
            ("this side presents none", "configure a certificate on this side: each side presents its own")
        }
        AlertDescription::UnsupportedCertificate => (
            "its extended key usage does not allow this use",
            "issue it for both client and server authentication (extended key usage), or without this \
             extension",
        ),
        AlertDescription::BadCertificate => (
            "the peer expects another name, or cannot parse it",
            "compare the name or address that the peer connects to with those in this side's certificate",
        ),
        AlertDescription::CertificateRevoked
        | AlertDescription::CertificateUnknown
        | AlertDescription::AccessDenied
        | AlertDescription::DecryptError => (
            "the peer reports no cause",
            "read the error on the peer, and issue a new certificate for this side",
        ),
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
    (format!("the peer refuses this side's certificate: {cause}"), fix.to_owned())
}
