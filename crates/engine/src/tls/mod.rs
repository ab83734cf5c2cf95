//! TLS configuration of an engine: its certificate and the roots that it trusts, or a shared secret.

mod certificate;
mod failure;
mod identity;
mod private_file;
mod records;
mod secret;
mod session;
mod verifier;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConnection, RootCertStore, ServerConnection};
use zeroize::Zeroizing;

use self::certificate::{Certificate, Validity};
use self::failure::ThisSide;
use self::identity::Identity;
pub use self::secret::Secret;
pub use self::session::{Received, TlsSession};
use crate::Error;
use crate::warning::{Warning, WarningKind};

/// TLS configuration of an engine: a certificate, its key, and the roots that must have issued the
/// other side's certificate. Both sides present one.
///
/// Pass it to [`Settings::tls`](crate::Settings::tls). Only TLS 1.3 is used. `farreach tls init`
/// makes a certificate authority and the files for each host.
///
/// [`from_secret`](Self::from_secret) makes one of a [`Secret`] instead; then no certificate and no
/// name is checked, and what follows does not apply.
///
/// # Who is trusted
///
/// - Each side trusts certificates that one of its roots has issued, while they are valid. The
///   roots of the system are not used.
/// - The side that connects also checks names: the host that it was given has to be one of the
///   certificate's. A name, as in `storage-7:18520`, has to be among its DNS names, an address
///   among its IP addresses. [`server_name`](Self::server_name) sets another name to expect of
///   every peer, for clusters in which all have the same.
/// - The side that accepts checks no names: any peer with a certificate of the roots may connect.
/// - If a certificate restricts its use (extended key usage), it has to allow both client and
///   server.
/// - Certificate revocation lists are not checked: use short-lived certificates.
///
/// Each connection presents and checks certificates. Files are read once: a renewed certificate
/// needs a new engine.
///
/// ```no_run
/// use farreach::{Engine, Settings, Tls, TlsParts};
///
/// # fn main() -> Result<(), farreach::Error> {
/// let tls = Tls::from_files(TlsParts {
///     certificate: "/etc/farreach/here.pem",
///     key: "/etc/farreach/here.key",
///     roots: "/etc/farreach/roots.pem",
/// })?;
/// let engine = Engine::with(Settings::new().tls(tls))?;
/// # drop(engine);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Tls {
    identity: Arc<Identity>,
    /// The name expected of every peer, instead of the host in its address.
    name: Option<ServerName<'static>>,
}

/// The parts of a [`Tls`] configuration, in PEM.
#[derive(Debug, Clone)]
pub struct TlsParts<T> {
    /// The certificate of this host, followed by the intermediate certificates up to its root.
    pub certificate: T,
    /// The private key of the certificate: PKCS#8, PKCS#1 or SEC1, unencrypted.
    pub key: T,
    /// The roots that issue the certificates of peers.
    pub roots: T,
}

impl Tls {
    /// Reads the parts from files. That of the key must belong to this user or to root, and nobody else
    /// may have access to it; a group may read a file of root.
    pub fn from_files(parts: TlsParts<impl AsRef<Path>>) -> Result<Self, Error> {
        let read = |what: &str, path: &Path, is_private: bool| -> Result<Part, Error> {
            let name = format!("the {what} in {}", path.display());
            let operation = format!("read {name}");
            let unreadable = |error: std::io::Error| {
                refused(
                    operation.clone(),
                    crate::error::words(&error),
                    "check that the file exists and that this user may read it",
                )
            };
            let bytes = if is_private {
                private_file::read(path, KEY_FILE_MAX, &operation, &unreadable)?
            } else {
                // Certificates and roots are public, so their owner and mode do not matter.
                Zeroizing::new(std::fs::read(path).map_err(unreadable)?)
            };
            Ok(Part { name, file: Some(path.display().to_string()), bytes })
        };
        let certificate = read("certificate", parts.certificate.as_ref(), false)?;
        let key = read("key", parts.key.as_ref(), true)?;
        let roots = read("roots", parts.roots.as_ref(), false)?;
        Self::from_named(&certificate, &key, &roots)
    }

    /// Takes the contents of such files.
    pub fn from_pem(parts: TlsParts<impl AsRef<[u8]>>) -> Result<Self, Error> {
        let named = |what: &str, bytes: &[u8]| Part {
            name: format!("the {what}"),
            file: None,
            bytes: bytes.to_vec().into(),
        };
        let certificate = named("certificate", parts.certificate.as_ref());
        let (key, roots) = (named("key", parts.key.as_ref()), named("roots", parts.roots.as_ref()));
        Self::from_named(&certificate, &key, &roots)
    }

    fn from_named(certificate: &Part, key: &Part, roots: &Part) -> Result<Self, Error> {
        let chain = certificates(certificate)?;
        // A key that PKCS#8 has encrypted is not found: its section has another name.
        let key = PrivateKeyDer::from_pem_slice(&key.bytes).map_err(|error| {
            let cause = pem_words(&error, "it contains no unencrypted private key");
            refused(format!("read {}", key.name), cause, "use a PEM file with a `PRIVATE KEY` section")
        })?;
        let (trusted, names) = trusted(roots)?;
        let this_side = ThisSide::Certificate {
            // Only for texts: rustls decides whether a certificate can be used, also one that
            // cannot be described here.
            certificate: chain.first().and_then(|first| Certificate::parse(first)),
            file: certificate.file.clone(),
            roots: names,
        };
        let identity = Identity::of_certificate(chain, key, trusted, this_side).map_err(|error| {
            let operation = format!("use {}", certificate.name);
            let fix = "use the key of this certificate, and put the certificate first in its file";
            refused(operation, error.to_string(), fix)
        })?;
        Ok(Self { identity: Arc::new(identity), name: None })
    }

    /// Uses a shared secret instead of certificates. Each side accepts only the key that is derived
    /// from the same secret.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), farreach::Error> {
    /// use farreach::{Secret, Tls};
    ///
    /// let tls = Tls::from_secret(Secret::from_file("farreach.secret")?);
    /// let session = tls.connecting("storage-7")?;
    /// # drop(session);
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_secret(secret: Secret) -> Self {
        Self { identity: secret.identity, name: None }
    }

    /// Returns a warning if the certificate of this side has expired, expires within 30 days, or is
    /// not valid yet. [`Engine::warnings`](crate::Engine::warnings) includes it.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), farreach::Error> {
    /// use farreach::{Tls, TlsParts};
    ///
    /// let tls = Tls::from_files(TlsParts { certificate: "here.pem", key: "here.key", roots: "roots.pem" })?;
    /// for warning in tls.warnings() {
    ///     eprintln!("warning: {warning}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn warnings(&self) -> Vec<Warning> {
        self.warning_at(SystemTime::now()).into_iter().collect()
    }

    fn warning_at(&self, now: SystemTime) -> Option<Warning> {
        // A secret has no dates.
        let ThisSide::Certificate { certificate: Some(certificate), file, .. } = &*self.identity.this_side
        else {
            return None;
        };
        let (first, last) = (certificate.not_before(), certificate.not_after());
        let what = match certificate.validity(now) {
            Validity::Valid => return None,
            Validity::EndsIn(days) => {
                format!("expires on {last}, in {days} day{}", if days == 1 { "" } else { "s" })
            }
            Validity::Expired => format!("has expired on {last}: peers refuse it"),
            Validity::NotYet => format!("is not valid before {first}: peers refuse it"),
        };
        let file = file.as_ref().map(|file| format!(" in {file}")).unwrap_or_default();
        let message = format!("the certificate \"{}\"{file} {what}", certificate.name());
        let fix = "renew it, unless this host's clock is wrong (`date`); on the host with the CA:\n\
                   mv DIR/HOST DIR/HOST.old && farreach tls init DIR HOST";
        Some(Warning::new(WarningKind::Certificate, message, fix))
    }

    /// Expects this name or IP address in the certificate of every peer that this engine connects
    /// to, instead of the host in the address.
    pub fn server_name(mut self, name: impl AsRef<str>) -> Result<Self, Error> {
        self.name = Some(server_name(name.as_ref())?);
        Ok(self)
    }

    /// Returns a session of the connecting side, for
    /// [`ControlStream::tls`](crate::ControlStream::tls). The peer is expected to have a
    /// certificate for `host`.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use farreach::{Tls, TlsParts};
    ///
    /// let tls = Tls::from_files(TlsParts { certificate: "here.pem", key: "here.key", roots: "roots.pem" })?;
    /// let mut stream = std::net::TcpStream::connect("storage-7:18520")?;
    /// let mut session = tls.connecting("storage-7")?;
    /// session.complete_io(&mut stream)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connecting(&self, host: &str) -> Result<TlsSession<ClientConnection>, Error> {
        let name = match &self.name {
            // Set for clusters in which all hosts have the same name in their certificates.
            Some(name) => name.clone(),
            // rustls wants a name, although none is checked or sent.
            None if !self.identity.checks_names() => server_name("farreach.invalid")?,
            None => server_name(host)?,
        };
        self.identity.connecting(name).map_err(|error| not_begun(&error))
    }

    /// Returns a session of the accepting side, for
    /// [`ControlStream::tls`](crate::ControlStream::tls).
    pub fn accepting(&self) -> Result<TlsSession<ServerConnection>, Error> {
        self.identity.accepting().map_err(|error| not_begun(&error))
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys are not printed.
        f.debug_struct("Tls").field("name", &self.name).finish_non_exhaustive()
    }
}

/// One of the [`TlsParts`].
struct Part {
    /// `the roots in /etc/farreach/ca.pem`
    name: String,
    file: Option<String>,
    bytes: Zeroizing<Vec<u8>>,
}

/// The length of a file with a key. That of a key is some thousand bytes at most, and certificates may
/// be in the same file.
const KEY_FILE_MAX: usize = 64 << 10;

/// Returns the roots, and their names.
fn trusted(roots: &Part) -> Result<(RootCertStore, Vec<String>), Error> {
    let (mut trusted, mut names) = (RootCertStore::empty(), Vec::new());
    // Only these roots, not those of the system: otherwise any public CA could issue a certificate
    // for a peer.
    for root in certificates(roots)? {
        names.extend(Certificate::parse(&root).map(|root| root.name().to_owned()));
        trusted.add(root).map_err(|error| {
            refused(
                format!("use {}", roots.name),
                error.to_string(),
                "use the certificate of a certificate authority",
            )
        })?;
    }
    Ok((trusted, names))
}

fn certificates(Part { name, bytes, .. }: &Part) -> Result<Vec<CertificateDer<'static>>, Error> {
    const NONE: &str = "it contains no certificate";
    let fix = "use a PEM file with a `CERTIFICATE` section";
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    match read {
        // A file without any such section is no error of the parser.
        Ok(found) if found.is_empty() => Err(refused(format!("read {name}"), NONE.to_owned(), fix)),
        Ok(found) => Ok(found),
        Err(error) => Err(refused(format!("read {name}"), pem_words(&error, NONE), fix)),
    }
}

fn pem_words(error: &pem::Error, none: &str) -> String {
    match error {
        // The text of the library does not tell what was looked for.
        pem::Error::NoItemsFound => none.to_owned(),
        other => other.to_string(),
    }
}

fn server_name(name: &str) -> Result<ServerName<'static>, Error> {
    ServerName::try_from(name.to_owned()).map_err(|error| {
        refused(
            format!("use `{name}` as the name of a peer"),
            error.to_string(),
            "use a DNS name such as storage-7.example, or an IP address, without a port",
        )
    })
}

fn not_begun(error: &rustls::Error) -> Error {
    refused(
        "start a TLS session".to_owned(),
        error.to_string(),
        "check that the system's random number generator works",
    )
}

fn refused(operation: String, cause: String, fix: &'static str) -> Error {
    Error::tls(&operation, &cause, fix)
}

/// Returns the public key that is derived from a secret.
#[cfg(test)]
pub(crate) fn public_key_of(secret: &str) -> Vec<u8> {
    secret.parse::<Secret>().unwrap().identity.public_key().unwrap()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use farreach_testkit::Authority;

    use super::*;

    #[test]
    fn a_certificate_that_ends_soon_is_warned_of() {
        let authority = Authority::new("the house");
        let shown = authority.certify_for_days(&["storage-7"], 40);
        let tls = Tls::from_pem(TlsParts {
            certificate: shown.certificate.as_str(),
            key: &shown.key,
            roots: authority.root(),
        })
        .unwrap();
        assert!(tls.warnings().is_empty());
        let in_hours = |hours: i64| {
            let distance = Duration::from_secs(hours.unsigned_abs() * 60 * 60);
            let now = SystemTime::now();
            tls.warning_at(if hours < 0 { now - distance } else { now + distance })
        };
        for (hours, words) in [
            (20 * 24 + 12, "\"storage-7\" expires on 20"),
            (20 * 24 + 12, ", in 19 days"),
            (38 * 24 + 12, ", in 1 day"),
            (41 * 24, "has expired on 20"),
            (-25, "is not valid before 20"),
        ] {
            let warning = in_hours(hours).unwrap();
            assert_eq!(warning.kind(), WarningKind::Certificate);
            assert!(warning.to_string().contains(words), "{hours}: {warning}");
            assert!(warning.fix().ends_with("\nmv DIR/HOST DIR/HOST.old && farreach tls init DIR HOST"));
        }
        let secret = "5f1d7a9c03e2b846d1f0a37c9be45826".parse().unwrap();
        assert!(Tls::from_secret(secret).warnings().is_empty());
    }
}
