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
    says(&caller, "certificate is refused: no root of this side has issued it", "to the roots of this side");
    says(
        &called,
        "the peer refuses this side's certificate: no root of the peer",
        "to the roots of the peer",
    );
    let (caller, called) = refused(to_loopback(&trusting(&mine)), Some(tls(&yours, &theirs)));
    says(
        &caller,
        "the peer refuses this side's certificate: no root of the peer",
        "to the roots of the peer",
    );
    says(&called, "certificate is refused: no root of this side has issued it", "to the roots of this side");
}

#[test]
fn an_authority_that_was_made_anew_is_another_one() {
    let (old, new) = (Authority::new("the house"), Authority::new("the house"));
    let here = tls(&old.certify(&["127.0.0.1"]), &new);
    let (caller, called) = refused(to_loopback(&here), Some(here.clone()));
    says(&caller, "certificate is refused: its signature does not match the key", "created again");
    says(
        &called,
        "the peer refuses this side's certificate: the peer reports no cause",
        "the error on the peer",
    );
}

#[test]
fn a_certificate_out_of_its_time_is_refused_by_either_side() {
    let authority = Authority::new("the house");
    let good = tls(&authority.certify(&["127.0.0.1"]), &authority);
    let bad = [
        (authority.certify_expired(&["127.0.0.1"]), "certificate is refused: it has expired"),
        (authority.certify_for_later(&["127.0.0.1"]), "certificate is refused: it is not valid yet"),
    ];
    for (certificate, words) in bad {
        let bad = tls(&certificate, &authority);
        let (caller, called) = refused(to_loopback(&good), Some(bad.clone()));
        says(&caller, words, "date");
        says(&called, "the peer refuses this side's certificate: it has expired, or is", "renew this side's");
        let (caller, called) = refused(to_loopback(&bad), Some(good.clone()));
        says(&called, words, "date");
        says(&caller, "the peer refuses this side's certificate: it has expired, or is", "renew this side's");
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
        let mut exchange = rustls::Stream::new(&mut session, &mut stream);
        exchange.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = [0; farreach_proto::wire::PREAMBLE_LEN];
        std::io::Read::read_exact(&mut exchange, &mut answer).unwrap();
        answer
    });
    let reason = called.until(|side| side.any_closed());
    says(&reason, "the other side is not a farreach engine", "which program");
    assert_eq!(stranger.join().unwrap(), preamble(), "so that it can say who is too old");
}
