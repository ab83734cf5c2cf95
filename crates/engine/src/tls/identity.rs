//! What a side presents in TLS, and what it accepts from the other side.

use std::sync::Arc;

use rustls::client::danger::ServerCertVerifier;
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::{CertifiedKey, SigningKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, Error, RootCertStore, ServerConfig, ServerConnection};

use super::failure::ThisSide;
use super::session::{SessionContext, TlsSession};
use super::verifier::{Noting, OnlyKey};

/// The ALPN protocol names, so that a certificate's other uses are not confused with this one, and
/// so that a side with a secret and a side with a certificate can tell each other why they part. A
/// session requires that the other side has named it ([`TlsSession::receive`]).
const BY_CERTIFICATE: &[u8] = b"farreach";
const BY_SECRET: &[u8] = b"farreach-secret";

/// What this side presents and accepts.
pub(super) struct Identity {
    pub(super) this_side: Arc<ThisSide>,
    means: Means,
}

enum Means {
    Certificate(Box<ByCertificate>),
    Secret(BySecret),
}

impl Means {
    /// Returns the protocol that both sides name.
    fn protocol(&self) -> &'static [u8] {
        match self {
            Self::Certificate(_) => BY_CERTIFICATE,
            Self::Secret(_) => BY_SECRET,
        }
    }
}

/// A certificate, and the roots that must have issued the other side's.
struct ByCertificate {
    provider: Arc<CryptoProvider>,
    key: Arc<CertifiedKey>,
    /// Of the connecting side, with a verifier that each session replaces by one of its own.
    client: ClientConfig,
    servers: Arc<dyn ServerCertVerifier>,
    clients: Arc<dyn ClientCertVerifier>,
}

/// The key pair of a shared secret. Both sides have the same one.
struct BySecret {
    #[cfg(test)]
    key: Arc<CertifiedKey>,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl ByCertificate {
    fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        roots: RootCertStore,
    ) -> Result<Self, Error> {
        // Named, because the default of the process belongs to the program, which may have set
        // another one, or none.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        // This also checks that the key is that of the certificate, so that a wrong pair is an
        // error here, and not in each handshake.
        let key = Arc::new(CertifiedKey::from_der(chain, key, &provider)?);
        let roots = Arc::new(roots);
        let general = |error: rustls::server::VerifierBuilderError| Error::General(error.to_string());
        let servers = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .build()
            .map_err(general)?;
        let clients = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .build()
            .map_err(general)?;
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])?
            .with_webpki_verifier(Arc::clone(&servers))
            .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(&key))));
        // Each connection has a full handshake, which checks the certificate: a resumed session
        // would not notice that it has expired.
        client.resumption = Resumption::disabled();
        client.alpn_protocols = vec![BY_CERTIFICATE.to_vec()];
        Ok(Self { provider, key, client, servers, clients })
    }

    /// Returns the configuration of a session, whose verifier notes the refused certificate there.
    fn client(&self, context: &SessionContext) -> ClientConfig {
        let refused = Arc::clone(&context.refused);
        let verifier: Noting<dyn ServerCertVerifier> = Noting::new(Arc::clone(&self.servers), refused);
        let mut config = self.client.clone();
        config.dangerous().set_certificate_verifier(Arc::new(verifier));
        config
    }

    /// The same of the accepting side.
    fn server(&self, context: &SessionContext) -> Result<ServerConfig, Error> {
        let refused = Arc::clone(&context.refused);
        let verifier: Noting<dyn ClientCertVerifier> = Noting::new(Arc::clone(&self.clients), refused);
        let resolver = Arc::new(SingleCertAndKey::from(Arc::clone(&self.key)));
        server(&self.provider, Arc::new(verifier), resolver, BY_CERTIFICATE)
    }
}

impl BySecret {
    fn new(key: Arc<dyn SigningKey>) -> Result<Self, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        // Both sides derive the same pair, so the own public key is also the only one to accept.
        let public =
            key.public_key().ok_or_else(|| Error::General("the key has no public key".to_owned()))?;
        let public = public.into_owned();
        let verifier = Arc::new(OnlyKey::new(public.clone(), provider.signature_verification_algorithms));
        // In place of the certificate (RFC 7250). rustls has no other field for a raw public key.
        let key = Arc::new(CertifiedKey::new(vec![CertificateDer::from(public.to_vec())], key));
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&verifier) as _)
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(Arc::clone(&key))));
        client.resumption = Resumption::disabled();
        client.alpn_protocols = vec![BY_SECRET.to_vec()];
        // No name is checked, so none is sent.
        client.enable_sni = false;
        let resolver = Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::clone(&key)));
        let server = server(&provider, verifier, resolver, BY_SECRET)?;
        Ok(Self {
            #[cfg(test)]
            key,
            client: Arc::new(client),
            server: Arc::new(server),
        })
    }
}

fn server(
    provider: &Arc<CryptoProvider>,
    verifier: Arc<dyn ClientCertVerifier>,
    resolver: Arc<dyn ResolvesServerCert>,
    protocol: &[u8],
) -> Result<ServerConfig, Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(resolver);
    // As for the client: no session is resumed, so tickets would be records for nothing.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(config)
}

impl Identity {
    /// Presents this certificate, and accepts those of the roots.
    pub(super) fn of_certificate(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        roots: RootCertStore,
        this_side: ThisSide,
    ) -> Result<Self, Error> {
        let means = Means::Certificate(Box::new(ByCertificate::new(chain, key, roots)?));
        Ok(Self { this_side: Arc::new(this_side), means })
    }

    /// Presents this key, and accepts no other one.
    pub(super) fn of_secret(key: Arc<dyn SigningKey>) -> Result<Self, Error> {
        Ok(Self { this_side: Arc::new(ThisSide::Secret), means: Means::Secret(BySecret::new(key)?) })
    }

    /// Begins a session of the connecting side.
    pub(super) fn connecting(
        &self,
        name: ServerName<'static>,
    ) -> Result<TlsSession<ClientConnection>, Error> {
        let context = SessionContext::new(Arc::clone(&self.this_side), self.means.protocol());
        let config = match &self.means {
            // A configuration of its own, because its verifier notes which certificate this session
            // refuses.
            Means::Certificate(by) => Arc::new(by.client(&context)),
            Means::Secret(by) => Arc::clone(&by.client),
        };
        Ok(TlsSession::new(ClientConnection::new(config, name)?, context))
    }

    /// Begins a session of the accepting side.
    pub(super) fn accepting(&self) -> Result<TlsSession<ServerConnection>, Error> {
        let context = SessionContext::new(Arc::clone(&self.this_side), self.means.protocol());
        let config = match &self.means {
            Means::Certificate(by) => Arc::new(by.server(&context)?),
            Means::Secret(by) => Arc::clone(&by.server),
        };
        Ok(TlsSession::new(ServerConnection::new(config)?, context))
    }

    /// Returns the public key of a secret.
    #[cfg(test)]
    pub(super) fn public_key(&self) -> Option<Vec<u8>> {
        match &self.means {
            Means::Certificate(_) => None,
            Means::Secret(by) => Some(by.key.cert[0].to_vec()),
        }
    }

    /// Returns whether the name of the other side is checked.
    pub(super) fn checks_names(&self) -> bool {
        matches!(self.means, Means::Certificate(_))
    }
}
