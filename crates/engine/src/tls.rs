//! TLS configuration of an engine: its certificate, and the roots that it trusts.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

use crate::Error;

/// The ALPN protocol name, so that a certificate's other uses are not confused with this one.
const PROTOCOL: &[u8] = b"farreach";

/// TLS configuration of an engine: a certificate, its key, and the roots that must have issued the
/// other side's certificate. Both sides present one.
///
/// Pass it to [`Settings::tls`](crate::Settings::tls). Only TLS 1.3 is used.
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
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
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
    /// Reads the parts from files.
    pub fn from_files(parts: TlsParts<impl AsRef<Path>>) -> Result<Self, Error> {
        let read = |what: &str, path: &Path| {
            let name = format!("the {what} in {}", path.display());
            match std::fs::read(path) {
                Ok(bytes) => Ok((name, bytes)),
                Err(error) => Err(refused(
                    format!("read {name}"),
                    crate::error::words(&error),
                    "check that the file exists and that this user may read it",
                )),
            }
        };
        let certificate = read("certificate", parts.certificate.as_ref())?;
        let key = read("key", parts.key.as_ref())?;
        let roots = read("roots", parts.roots.as_ref())?;
        Self::from_named(&certificate, &key, &roots)
    }

    /// Takes the contents of such files.
    pub fn from_pem(parts: TlsParts<impl AsRef<[u8]>>) -> Result<Self, Error> {
        let named = |what: &str, bytes: &[u8]| (format!("the {what}"), bytes.to_vec());
        let certificate = named("certificate", parts.certificate.as_ref());
        let (key, roots) = (named("key", parts.key.as_ref()), named("roots", parts.roots.as_ref()));
        Self::from_named(&certificate, &key, &roots)
    }

    fn from_named(
        certificate: &(String, Vec<u8>),
        key: &(String, Vec<u8>),
        roots: &(String, Vec<u8>),
    ) -> Result<Self, Error> {
        let chain = certificates(certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&key.1).map_err(|error| {
            let cause = pem_words(&error, "it contains no unencrypted private key");
            refused(format!("read {}", key.0), cause, "use a PEM file with a `PRIVATE KEY` section")
        })?;
        let trusted = Arc::new(trusted(roots)?);
        let unusable = |error: rustls::Error| {
            let operation = format!("use {}", certificate.0);
            let fix = "use the key of this certificate, and put the certificate first in its file";
            refused(operation, error.to_string(), fix)
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = client(&provider, &trusted, chain.clone(), key.clone_key()).map_err(unusable)?;
        let server = server(&provider, &trusted, chain, key).map_err(unusable)?;
        Ok(Self { client: Arc::new(client), server: Arc::new(server), name: None })
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
    pub fn connecting(&self, host: &str) -> Result<ClientConnection, Error> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => server_name(host)?,
        };
        ClientConnection::new(Arc::clone(&self.client), name).map_err(|error| not_begun(&error))
    }

    /// Returns a session of the accepting side, for
    /// [`ControlStream::tls`](crate::ControlStream::tls).
    pub fn accepting(&self) -> Result<ServerConnection, Error> {
        ServerConnection::new(Arc::clone(&self.server)).map_err(|error| not_begun(&error))
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("name", &self.name).finish_non_exhaustive()
    }
}

fn client(
    provider: &Arc<CryptoProvider>,
    trusted: &Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ClientConfig, rustls::Error> {
    let mut config = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(Arc::clone(trusted))
        .with_client_auth_cert(chain, key)?;
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(config)
}

fn server(
    provider: &Arc<CryptoProvider>,
    trusted: &Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, rustls::Error> {
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(trusted), Arc::clone(provider))
        .build()
        .map_err(|error| rustls::Error::General(error.to_string()))?;
    let mut config = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(config)
}

fn trusted(roots: &(String, Vec<u8>)) -> Result<RootCertStore, Error> {
    let mut trusted = RootCertStore::empty();
    for root in certificates(roots)? {
        trusted.add(root).map_err(|error| {
            refused(
                format!("use {}", roots.0),
                error.to_string(),
                "use the certificate of a certificate authority",
            )
        })?;
    }
    Ok(trusted)
}

fn certificates((name, bytes): &(String, Vec<u8>)) -> Result<Vec<CertificateDer<'static>>, Error> {
    const NONE: &str = "it contains no certificate";
    let fix = "use a PEM file with a `CERTIFICATE` section";
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    match read {
        Ok(found) if found.is_empty() => Err(refused(format!("read {name}"), NONE.to_owned(), fix)),
        Ok(found) => Ok(found),
        Err(error) => Err(refused(format!("read {name}"), pem_words(&error, NONE), fix)),
    }
}

fn pem_words(error: &pem::Error, none: &str) -> String {
    match error {
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
