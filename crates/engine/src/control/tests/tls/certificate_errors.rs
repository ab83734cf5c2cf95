//! A peer that is not trusted is refused, and both sides report cause and fix.

use super::*;

/// Returns the reasons that both sides report when one of them refuses the connection: first the
/// one that connects, then the one that accepts.
fn refused(caller: RecordLayer, called: Option<Tls>) -> (CloseReason, CloseReason) {
    let (mut there, address) = match called {
        Some(tls) => listening_over(tls),
        None => Side::listening(),
    };
    let mut here = Side::new();
    let begun = Instant::now();
    let id = here.control.connect(address, caller).unwrap();
    let reasons = run(&mut here, &mut there, |here, there| here.closed(id).zip(there.any_closed()));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(!here.is_connected(id));
    reasons
}

fn to_loopback(tls: &Tls) -> RecordLayer {
    record_layer(tls.connecting("127.0.0.1").unwrap())
}

#[track_caller]
fn says(reason: &CloseReason, cause: &str, fix: &str) {
    assert!(reason.to_string().starts_with("control connection with 127.0.0.1:"), "{reason}");
    assert!(reason.cause().contains(cause), "{reason}");
    assert!(reason.fix().contains(fix), "{}", reason.fix());
}

#[test]
fn a_side_without_tls_and_one_with_it_both_say_which() {
    let (tls, _) = friends();
    let (plain, secure) = refused(RecordLayer::Plain, Some(tls.clone()));
    says(&plain, "the peer uses TLS, this side does not", "Settings::tls");
    says(&secure, "this side uses TLS, the peer does not", "Settings::tls");
    let (secure, plain) = refused(to_loopback(&tls), None);
    says(&plain, "the peer uses TLS, this side does not", "Settings::tls");
    says(&secure, "this side uses TLS, the peer does not", "Settings::tls");
}

#[test]
fn a_certificate_of_an_unknown_authority_is_refused_by_either_side() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let both = [ours.root(), theirs.root()].concat();
    let (mine, yours) = (ours.certify(&["127.0.0.1"]), theirs.certify(&["127.0.0.1"]));
    let trusting = |shown: &Certificate| {
        Tls::from_pem(TlsParts { certificate: &shown.certificate, key: &shown.key, roots: &both }).unwrap()
    };
    let (caller, called) = refused(to_loopback(&tls(&mine, &ours)), Some(trusting(&yours)));
    says(&caller, "issued by \"theirs\", valid from 20", "to the roots of this side");
    says(
        &caller,
        ") is refused: no root of this side has issued it; its root is \"ours\"",
        "farreach tls init",
    );
    says(&called, "the peer refuses this side's certificate (\"", "to the roots of the peer");
    says(&called, "issued by \"theirs\", valid from 20", "farreach tls init");
    says(&called, "): no root of the peer has issued it", "farreach tls init");
    let (caller, called) = refused(to_loopback(&trusting(&mine)), Some(tls(&yours, &theirs)));
    says(&caller, "issued by \"ours\"", "to the roots of the peer");
    says(&caller, "): no root of the peer has issued it", "to the roots of the peer");
    says(&called, "issued by \"ours\"", "to the roots of this side");
    says(&called, ") is refused: no root of this side has issued it", "to the roots of this side");
}

#[test]
fn an_authority_that_was_made_anew_is_another_one() {
    let (old, new) = (Authority::new("the house"), Authority::new("the house"));
    let here = tls(&old.certify(&["127.0.0.1"]), &new);
    let (caller, called) = refused(to_loopback(&here), Some(here.clone()));
    says(&caller, ") is refused: its signature does not match the key", "created again");
    says(&called, "): the peer reports no cause", "the error on the peer");
}

#[test]
fn a_certificate_out_of_its_time_is_refused_by_either_side() {
    let authority = Authority::new("the house");
    let good = tls(&authority.certify(&["127.0.0.1"]), &authority);
    let bad = [
        (authority.certify_expired(&["127.0.0.1"]), ") is refused: it has expired"),
        (authority.certify_for_later(&["127.0.0.1"]), ") is refused: it is not valid yet"),
    ];
    for (certificate, words) in bad {
        let bad = tls(&certificate, &authority);
        let (caller, called) = refused(to_loopback(&good), Some(bad.clone()));
        says(&caller, words, "date");
        says(&called, "): it has expired, or is not valid yet", "renew this side's");
        let (caller, called) = refused(to_loopback(&bad), Some(good.clone()));
        says(&called, words, "date");
        says(&caller, "): it has expired, or is not valid yet", "renew this side's");
    }
}

#[test]
fn a_certificate_for_another_name_is_refused_by_who_connects() {
    let authority = Authority::new("the house");
    let here = tls(&authority.certify(&["127.0.0.1"]), &authority);
    let there = tls(&authority.certify(&["storage-7", "storage-8"]), &authority);
    let (caller, called) = refused(to_loopback(&here), Some(there.clone()));
    says(&caller, "it is for storage-7, storage-8, not for 127.0.0.1", "Tls::server_name");
    says(&called, "the peer expects another name", "that the peer connects to");
    let knowing = here.server_name("storage-8").unwrap();
    let (mut called, address) = listening_over(there);
    let mut caller = Side::new();
    let id = caller.control.connect(address, to_loopback(&knowing)).unwrap();
    run(&mut caller, &mut called, |caller, _| caller.is_connected(id).then_some(()));
}

#[test]
fn a_certificate_for_another_use_is_refused() {
    let authority = Authority::new("the house");
    let both = tls(&authority.certify(&["127.0.0.1"]), &authority);
    let server = tls(&authority.certify_server(&["127.0.0.1"]), &authority);
    let (caller, called) = refused(to_loopback(&server), Some(both));
    says(&caller, "its extended key usage does not allow this use", "extended key usage");
    says(&called, "its extended key usage does not allow this use", "extended key usage");
}

const SECRET: &str = "5f1d7a9c03e2b846d1f0a37c9be4582610cc47e39a5d8b71f2640e9d3ab8c75e";
const OTHER_SECRET: &str = "8b1f6e0d4c7a2935e8d07cb16fa4932155fe08b7c9d346a2e17bc05f9d82a63c";

fn of_secret(digits: &str) -> Tls {
    Tls::from_secret(digits.parse().unwrap())
}

#[test]
fn two_sides_with_one_secret_need_no_certificate_and_no_name() {
    let (mut called, address) = listening_over(of_secret(SECRET));
    let mut caller = Side::new();
    for host in ["127.0.0.1", "storage-7", "no name at all"] {
        let layer = record_layer(of_secret(SECRET).connecting(host).unwrap());
        let id = caller.control.connect(address, layer).unwrap();
        run(&mut caller, &mut called, |caller, _| caller.is_connected(id).then_some(()));
    }
}

#[test]
fn another_secret_is_refused_and_both_sides_say_so() {
    let (caller, called) = refused(to_loopback(&of_secret(SECRET)), Some(of_secret(OTHER_SECRET)));
    for reason in [caller, called] {
        says(&reason, "the two sides have different secrets", "copy the file");
        assert!(!format!("{reason:?}").contains(&SECRET[..8]), "{reason:?}");
    }
}

#[test]
fn a_secret_and_a_certificate_do_not_meet_and_both_sides_say_so() {
    let (certified, _) = friends();
    let (caller, called) = refused(to_loopback(&of_secret(SECRET)), Some(certified.clone()));
    says(&caller, "this side uses a secret, the peer uses certificates", "the same on both sides");
    says(&called, "this side uses certificates, the peer uses a secret", "the same on both sides");
    let (caller, called) = refused(to_loopback(&certified), Some(of_secret(SECRET)));
    says(&called, "this side uses a secret, the peer uses certificates", "the same on both sides");
    says(&caller, "this side uses certificates, the peer uses a secret", "the same on both sides");
    let (plain, secret) = refused(RecordLayer::Plain, Some(of_secret(SECRET)));
    says(&plain, "the peer uses TLS, this side does not", "Settings::tls");
    says(&secret, "this side uses TLS, the peer does not", "Settings::tls");
}

/// Presents the public key of the secret, which is no secret, and signs with another key.
#[derive(Debug)]
struct Pretender(std::sync::Arc<rustls::sign::CertifiedKey>);

impl rustls::client::ResolvesClientCert for Pretender {
    fn resolve(
        &self,
        _: &[&[u8]],
        _: &[rustls::SignatureScheme],
    ) -> Option<std::sync::Arc<rustls::sign::CertifiedKey>> {
        Some(self.0.clone())
    }

    fn only_raw_public_keys(&self) -> bool {
        true
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Accepts any server.
#[derive(Debug)]
struct Credulous;

impl rustls::client::danger::ServerCertVerifier for Credulous {
    fn verify_server_cert(
        &self,
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &[rustls::pki_types::CertificateDer<'_>],
        _: &rustls::pki_types::ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        vec![rustls::SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// Returns a session of a client without the secret that knows its public key.
fn pretending(public: Vec<u8>) -> rustls::ClientConnection {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    // An Ed25519 key of its own.
    let mut key =
        vec![0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
    key.extend([7; 32]);
    let key = rustls::crypto::ring::sign::any_eddsa_type(&key.into()).unwrap();
    let presented = rustls::sign::CertifiedKey::new(vec![public.into()], key);
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(std::sync::Arc::new(Credulous))
        .with_client_cert_resolver(std::sync::Arc::new(Pretender(presented.into())));
    config.alpn_protocols = vec![b"farreach-secret".to_vec()];
    rustls::ClientConnection::new(config.into(), "127.0.0.1".try_into().unwrap()).unwrap()
}

/// The public key of a secret is not enough, nor is any other key.
#[test]
fn who_cannot_sign_with_the_key_of_the_secret_is_refused() {
    let public = crate::tls::public_key_of(SECRET);
    let mut other = public.clone();
    *other.last_mut().unwrap() ^= 1;
    let mut longer = public.clone();
    longer.push(0);
    for presented in [public.clone(), other, longer, public[..public.len() - 1].to_vec(), Vec::new()] {
        let (caller, called) = refused(record_layer(pretending(presented)), Some(of_secret(SECRET)));
        assert!(matches!(called, CloseReason::Tls { .. }), "{called}");
        assert!(matches!(caller, CloseReason::Tls { .. } | CloseReason::Ended { .. }), "{caller}");
    }
}

/// A peer that uses TLS correctly and has no certificate.
#[test]
fn who_shows_no_certificate_is_refused() {
    let authority = Authority::new("the house");
    let there = tls(&authority.certify(&["127.0.0.1"]), &authority);
    let mut roots = rustls::RootCertStore::empty();
    let root = rustls::pki_types::pem::PemObject::from_pem_slice(authority.root().as_bytes());
    roots.add(root.unwrap()).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"farreach".to_vec()];
    let name = "127.0.0.1".try_into().unwrap();
    let session = rustls::ClientConnection::new(config.into(), name).unwrap();
    let (caller, called) = refused(record_layer(session), Some(there));
    says(&caller, "the peer refuses this side's certificate: this side presents none", "on this side");
    says(&called, "the peer presents no certificate", "on the peer's engine");
}

/// Both sides trust each other, and one of them sends another protocol inside TLS.
#[test]
fn a_stranger_that_has_a_certificate_is_refused_all_the_same() {
    let (here, there) = friends();
    let (mut called, address) = listening_over(there);
    let stranger = std::thread::spawn(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        let mut session = here.connecting("127.0.0.1").unwrap();
        let mut exchange = rustls::Stream::new(&mut *session, &mut stream);
        exchange.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = [0; farreach_proto::wire::PREAMBLE_LEN];
        std::io::Read::read_exact(&mut exchange, &mut answer).unwrap();
        answer
    });
    let reason = called.until(|side| side.any_closed());
    says(&reason, "the other side is not a farreach engine", "which program");
    assert_eq!(stranger.join().unwrap(), preamble(), "so that it can say who is too old");
}
