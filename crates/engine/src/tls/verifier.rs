//! Verifiers of the other side: by its certificate, or by the one public key of a shared secret.

use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::crypto::verify_tls13_signature_with_raw_key;
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible, SignatureScheme,
};

use super::certificate::Certificate;

/// A verifier of rustls that also notes which certificate it has refused, because the error does
/// not name it. Invariant: it accepts exactly what the inner one accepts.
#[derive(Debug)]
pub(super) struct Noting<V: ?Sized> {
    inner: Arc<V>,
    refused: Arc<OnceLock<Certificate>>,
}

impl<V: ?Sized> Noting<V> {
    pub(super) fn new(inner: Arc<V>, refused: Arc<OnceLock<Certificate>>) -> Self {
        Self { inner, refused }
    }

    fn note<T>(&self, verified: Result<T, Error>, certificate: &CertificateDer<'_>) -> Result<T, Error> {
        if verified.is_err()
            && let Some(certificate) = Certificate::parse(certificate)
        {
            // A session verifies one certificate.
            let _ = self.refused.set(certificate);
        }
        verified
    }
}

impl ServerCertVerifier for Noting<dyn ServerCertVerifier> {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified =
            self.inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        self.note(verified, end_entity)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

impl ClientCertVerifier for Noting<dyn ClientCertVerifier> {
    fn offer_client_auth(&self) -> bool {
        self.inner.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.inner.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.inner.verify_client_cert(end_entity, intermediates, now);
        self.note(verified, end_entity)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// Accepts one public key and no other, as a raw public key (RFC 7250) in TLS 1.3.
///
/// The key is compared as a whole, with its algorithm. rustls calls the check of the signature over
/// the handshake, which proves that the other side has the private key; TLS signs client and server
/// under different labels, so the signature of one side is of no use for the other.
#[derive(Debug)]
pub(super) struct OnlyKey {
    key: SubjectPublicKeyInfoDer<'static>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl OnlyKey {
    pub(super) fn new(key: SubjectPublicKeyInfoDer<'static>, algorithms: WebPkiSupportedAlgorithms) -> Self {
        Self { key, algorithms }
    }

    fn check(&self, key: &CertificateDer<'_>, intermediates: &[CertificateDer<'_>]) -> Result<(), Error> {
        // A raw public key takes the place of the certificate, and nothing follows it.
        if key.as_ref() == self.key.as_ref() && intermediates.is_empty() {
            return Ok(());
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn check_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        // rustls makes the two checks in separate calls. A signature by another key must not pass,
        // whatever was passed to the first one.
        self.check(key, &[])?;
        verify_tls13_signature_with_raw_key(message, &self.key, dss, &self.algorithms)
    }
}

fn only_tls13() -> Result<HandshakeSignatureValid, Error> {
    // Not called: the configurations offer TLS 1.3 alone, and the traits need the function.
    Err(PeerIncompatible::Tls12NotOffered.into())
}

impl ServerCertVerifier for OnlyKey {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        // Each holder of the secret has the same key, so a name would tell nothing.
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity, intermediates).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        only_tls13()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        // The only kind of key that a secret derives.
        vec![SignatureScheme::ED25519]
    }

    // The default, `false`, is for certificates.
    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for OnlyKey {
    // That a client shows a key at all is the default of this trait (`client_auth_mandatory`).
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity, intermediates).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        only_tls13()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use rustls::server::AlwaysResolvesServerRawPublicKeys;
    use rustls::sign::CertifiedKey;
    use rustls::version::TLS13;
    use rustls::{ClientConnection, ConnectionCommon, ServerConfig, ServerConnection, SideData};

    use super::*;
    use crate::Tls;

    const SECRET: &str = "5f1d7a9c03e2b846d1f0a37c9be4582610cc47e39a5d8b71f2640e9d3ab8c75e";

    /// Passes bytes of one side to the other one.
    fn pass<A: SideData, B: SideData>(
        from: &mut ConnectionCommon<A>,
        to: &mut ConnectionCommon<B>,
    ) -> Result<(), Error> {
        let mut bytes = Vec::new();
        while from.wants_write() {
            from.write_tls(&mut bytes).unwrap();
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            to.read_tls(&mut rest).unwrap();
            to.process_new_packets()?;
        }
        Ok(())
    }

    /// Returns the error of the client, if it does not accept the server.
    fn client_error(client: &mut ClientConnection, server: &mut ServerConnection) -> Option<Error> {
        for _ in 0..10 {
            pass(client, server).unwrap();
            if let Err(error) = pass(server, client) {
                return Some(error);
            }
        }
        assert!(!client.is_handshaking());
        None
    }

    /// Returns a server that presents this public key, and signs with another key.
    fn pretending(public: Vec<u8>) -> ServerConnection {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut key = vec![48, 46, 2, 1, 0, 48, 5, 6, 3, 43, 101, 112, 4, 34, 4, 32];
        key.extend([7; 32]);
        let key = rustls::crypto::ring::sign::any_eddsa_type(&key.into()).unwrap();
        let presented = CertifiedKey::new(vec![public.into()], key);
        let known = crate::tls::public_key_of(SECRET).into();
        let clients = OnlyKey::new(known, provider.signature_verification_algorithms);
        let resolver = AlwaysResolvesServerRawPublicKeys::new(Arc::new(presented));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .with_client_cert_verifier(Arc::new(clients))
            .with_cert_resolver(Arc::new(resolver));
        config.alpn_protocols = vec![b"farreach-secret".to_vec()];
        ServerConnection::new(Arc::new(config)).unwrap()
    }

    /// The public key of the secret is not enough, nor is one that is similar.
    #[test]
    fn a_server_without_the_secret_is_refused() {
        let tls = Tls::from_secret(SECRET.parse().unwrap());
        let public = crate::tls::public_key_of(SECRET);
        let mut client = tls.connecting("storage-7").unwrap();
        let error = client_error(&mut client, &mut pretending(public.clone()));
        assert_eq!(error, Some(CertificateError::BadSignature.into()));
        for presented in [public[..public.len() - 1].to_vec(), [&public[..], &[0]].concat(), vec![0; 44]] {
            let mut client = tls.connecting("storage-7").unwrap();
            let error = client_error(&mut client, &mut pretending(presented));
            assert_eq!(error, Some(CertificateError::ApplicationVerificationFailure.into()));
        }
        let (mut client, mut server) = (tls.connecting("storage-7").unwrap(), tls.accepting().unwrap());
        assert_eq!(client_error(&mut client, &mut server), None);
    }
}
