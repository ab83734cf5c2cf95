//! Records of which nothing comes: they are billed, or end the connection.

use std::net::TcpListener;
use std::sync::Arc;

use farreach_proto::wire::encode;
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

use super::*;

/// The bytes of a frame that is long enough for every test.
fn long_frame() -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&Frame::Message { sequence: 1, bytes: vec![7; 4000] }, &mut bytes).unwrap();
    bytes
}

/// Sends what a session has to send. Returns whether the other side still takes it.
fn send(session: &mut TlsSession, mut peer: &TcpStream) -> bool {
    let mut bytes = Vec::new();
    while session.wants_write() {
        session.write_tls(&mut bytes).unwrap();
    }
    peer.write_all(&bytes).is_ok()
}

/// Each kind of record without content begins the row of the other kinds anew, so rustls alone would
/// take them for ever.
#[test]
fn records_without_content_end_the_connection() {
    let (here, there) = friends();
    let (mut called, address) = listening_over(there);
    let (from, peer, mut session) = introduced(&mut called, address, &here);
    for byte in long_frame().iter().take(300) {
        session.writer().write_all(&[*byte]).unwrap();
        (0..8).for_each(|_| session.refresh_traffic_keys().unwrap());
        if !send(&mut session, &peer) || called.closed(from).is_some() {
            break;
        }
        called.poll();
    }
    let reason = called.until_closed(from);
    assert!(matches!(reason, CloseReason::Tls { .. }), "{reason}");
    assert!(reason.cause().contains("TLS records without content"), "{reason}");
    assert!(called.frames(from).is_empty() && !reason.fix().is_empty());
}

/// A frame in records of a byte each costs a decryption for each byte.
#[test]
fn records_of_a_byte_are_billed() {
    let (here, there) = friends();
    let budgets = ControlBudgets { frames_per_second: 1000, ..ControlBudgets::default() };
    let (mut called, address) = listening_with(there, budgets);
    let (from, peer, mut session) = introduced(&mut called, address, &here);
    let begun = Instant::now();
    called.stopped = Some(begun);
    peer.set_nonblocking(true).unwrap();
    for byte in long_frame() {
        session.writer().write_all(&[byte]).unwrap();
        while session.wants_write() {
            if session.write_tls(&mut &peer).is_err() {
                called.poll();
            }
        }
    }
    called.until(|side| (!side.control.paused.is_empty()).then_some(()));
    assert!(called.frames(from).is_empty(), "4,000 records were read in no time");
    called.stopped = None;
    called.until(|side| {
        side.ahead += Duration::from_millis(100);
        (side.frames(from).len() == 1).then_some(())
    });
    // A second's worth came at once.
    let took = begun.elapsed() + called.ahead;
    assert!(took >= Duration::from_secs(2), "{took:?}");
    assert_eq!(called.any_closed(), None, "it is slowed down, and not lost");
}

/// Sessions with a certificate of the authority, which name no protocol.
fn of_another_service(authority: &Authority) -> (ClientConnection, ServerConnection) {
    let shown = authority.certify(&["127.0.0.1"]);
    let chain = vec![CertificateDer::from_pem_slice(shown.certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(shown.key.as_bytes()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.root().as_bytes()).unwrap()).unwrap();
    let (roots, provider) = (Arc::new(roots), Arc::new(rustls::crypto::ring::default_provider()));
    let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_root_certificates(Arc::clone(&roots))
        .with_client_auth_cert(chain.clone(), key.clone_key())
        .unwrap();
    client.resumption = Resumption::disabled();
    let clients = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider)).build().unwrap();
    let server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)
        .unwrap();
    let client = ClientConnection::new(Arc::new(client), "127.0.0.1".try_into().unwrap()).unwrap();
    (client, ServerConnection::new(Arc::new(server)).unwrap())
}

/// A certificate of the same authority may be that of another service.
#[test]
fn who_names_no_protocol_is_refused_by_either_side() {
    const CAUSE: &str = "names no protocol in its TLS handshake (ALPN)";
    let authority = Authority::new("the house");
    let tls = tls(&authority.certify(&["127.0.0.1"]), &authority);
    let (mut client, mut server) = of_another_service(&authority);
    let (mut called, address) = listening_over(tls.clone());
    let mut stranger = TcpStream::connect(address).unwrap();
    let hand = std::thread::spawn(move || {
        // It fails as soon as the other side refuses.
        let _ = rustls::Stream::new(&mut client, &mut stranger).write_all(&introduction());
        (client, stranger)
    });
    let reason = called.until(|side| side.any_closed());
    assert!(reason.cause().contains(CAUSE) && !reason.fix().is_empty(), "{reason}");
    assert!(called.accepted().is_empty());
    hand.join().unwrap();

    let (mut caller, listener) = (Side::new(), TcpListener::bind("127.0.0.1:0").unwrap());
    let session = record_layer(tls.connecting("127.0.0.1").unwrap());
    let id = caller.control.connect(listener.local_addr().unwrap(), session).unwrap();
    let (mut stranger, _) = listener.accept().unwrap();
    let hand = std::thread::spawn(move || {
        let _ = rustls::Stream::new(&mut server, &mut stranger).write_all(&preamble());
        (server, stranger)
    });
    let reason = caller.until_closed(id);
    assert!(reason.cause().contains(CAUSE), "{reason}");
    assert!(!caller.is_connected(id));
    hand.join().unwrap();
}
