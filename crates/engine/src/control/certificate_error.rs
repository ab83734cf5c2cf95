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
                "the peer shows no certificate".to_owned(),
                "give the peer's engine one: each side shows its own".to_owned(),
            ),
            Error::AlertReceived(alert) => of_alert(*alert),
            other => (
                format!("TLS with the peer failed: {other}"),
                "run the same release on both sides, and see what is between them".to_owned(),
            ),
        };
        Some(Self::Tls { peer, cause, fix })
    }
}

/// Returns cause and fix for a certificate of the peer that this side refuses.
fn of_certificate(error: &CertificateError) -> (String, String) {
    let (cause, fix) = match error {
        CertificateError::UnknownIssuer => (
            "it comes from none of the roots that this side was given".to_owned(),
            "give this side the root that the peer's certificate comes from, or the peer one from a root of this \
             side's",
        ),
        CertificateError::BadSignature => (
            "its signature is not by the root of that name".to_owned(),
            "give this side the root that signed it: an authority that was made anew has another key",
        ),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => (
            "it has expired".to_owned(),
            "renew the peer's certificate, if this host's clock is right (`date`)",
        ),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => (
            "it is not valid yet".to_owned(),
            "see both hosts' clocks (`date`), and from when on the certificate is valid",
        ),
        CertificateError::NotValidForNameContext { expected, presented } => {
            (format!("it is for {}, and not for {}", list(presented), expected.to_str()), OTHER_NAME)
        }
        CertificateError::NotValidForName => ("it is for another name".to_owned(), OTHER_NAME),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => (
            "it may not be used for this".to_owned(),
            "have it made for clients and servers alike (extended key usage), or without saying for what",
        ),
        other => (other.to_string(), "have a certificate made anew for the peer"),
    };
    (format!("the peer's certificate is refused: {cause}"), fix.to_owned())
}

const OTHER_NAME: &str =
    "connect by a name or address that the certificate has, or say which one to expect (`Tls::server_name`)";

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
            "it comes from none of the roots that the peer was given",
            "give the peer the root that this side's certificate comes from, or this side one from a root of the peer's",
        ),
        AlertDescription::CertificateExpired => (
            "it has expired, or is not valid yet",
            "renew this side's certificate, if the peer's clock is right (`date`)",
        ),
        AlertDescription::CertificateRequired => {
            ("there is none", "give this side one: each side shows its own")
        }
        AlertDescription::UnsupportedCertificate => (
            "it may not be used for this",
            "have it made for clients and servers alike (extended key usage), or without saying for what",
        ),
        AlertDescription::BadCertificate => (
            "it is for another name than the peer expects, or broken",
            "see by which name or address the peer connects, and which ones this side's certificate has",
        ),
        AlertDescription::CertificateRevoked
        | AlertDescription::CertificateUnknown
        | AlertDescription::AccessDenied
        | AlertDescription::DecryptError => (
            "the peer does not say why",
            "have a certificate made anew for this side, and see what the peer says",
        ),
        other => {
            return (
                format!("the peer has ended TLS: {other:?}"),
                "run the same release on both sides, and see what the peer says".to_owned(),
            );
        }
    };
    (format!("the peer refuses this side's certificate: {cause}"), fix.to_owned())
}
