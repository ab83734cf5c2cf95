//! Tests over TLS, with real sockets and certificates.

mod adopted;
mod budgets;
mod certificate_errors;
mod ends;
mod floods;
mod frames;

use farreach_testkit::{Authority, Certificate};

use super::*;
use crate::control::Session;
use crate::{Tls, TlsParts, TlsSession};

/// Settings that show this certificate and trust this authority.
fn tls(shown: &Certificate, trusted: &Authority) -> Tls {
    Tls::from_pem(TlsParts {
        certificate: shown.certificate.as_str(),
        key: &shown.key,
        roots: trusted.root(),
    })
    .unwrap()
}

/// The settings of two sides that trust each other.
pub(super) fn friends() -> (Tls, Tls) {
    let authority = Authority::new("the house");
    let one = tls(&authority.certify(&["127.0.0.1"]), &authority);
    (one, tls(&authority.certify(&["127.0.0.1"]), &authority))
}

pub(super) fn record_layer(session: impl Into<TlsSession>) -> RecordLayer {
    RecordLayer::Tls(Box::new(Session::new(session)))
}

pub(super) fn listening_over(tls: Tls) -> (Side, SocketAddr) {
    listening_with(tls, ControlBudgets::default())
}

fn listening_with(tls: Tls, budgets: ControlBudgets) -> (Side, SocketAddr) {
    let (mut side, address) = Side::listening_with(budgets);
    side.control.accept_over_tls(tls);
    (side, address)
}

/// Connects a plain socket with a session, and introduces it to a side as a peer.
fn introduced(called: &mut Side, address: SocketAddr, here: &Tls) -> (ConnectionId, TcpStream, TlsSession) {
    let session = here.connecting("127.0.0.1").unwrap();
    let hand = std::thread::spawn(move || {
        let (mut peer, mut session) = (TcpStream::connect(address).unwrap(), session);
        rustls::Stream::new(&mut *session, &mut peer).write_all(&introduction()).unwrap();
        (peer, session.into())
    });
    let from = called.until_accepted();
    let (peer, session) = hand.join().unwrap();
    (from, peer, session)
}

/// Two connected sides over TLS: the one that connects and its connection, the one that accepts and
/// its connection.
fn secure_pair() -> Connected {
    let (here, there) = friends();
    let ((mut called, address), mut caller) = (listening_over(there), Side::new());
    let id = caller.control.connect(address, record_layer(here.connecting("127.0.0.1").unwrap())).unwrap();
    caller.control.send(id, &hello()).unwrap();
    let from = run(&mut caller, &mut called, |caller, called| {
        called.accepted().pop().filter(|_| caller.is_connected(id))
    });
    ((caller, id), (called, from))
}
