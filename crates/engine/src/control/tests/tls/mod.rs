//! Tests over TLS, with real sockets and certificates.

mod adopted;
mod certificate_errors;
mod ends;
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
fn friends() -> (Tls, Tls) {
    let authority = Authority::new("the house");
    let one = tls(&authority.certify(&["127.0.0.1"]), &authority);
    (one, tls(&authority.certify(&["127.0.0.1"]), &authority))
}

fn record_layer(session: impl Into<TlsSession>) -> RecordLayer {
    RecordLayer::Tls(Box::new(Session::new(session)))
}

fn listening_over(tls: Tls) -> (Side, SocketAddr) {
    let (mut side, address) = Side::listening();
    side.control.accept_over_tls(tls);
    (side, address)
}

/// Two connected sides over TLS: the one that connects and its connection, the one that accepts and
/// its connection.
fn secure_pair() -> Connected {
    let (here, there) = friends();
    let ((mut called, address), mut caller) = (listening_over(there), Side::new());
    let id = caller.control.connect(address, record_layer(here.connecting("127.0.0.1").unwrap())).unwrap();
    let from =
        run(&mut caller, &mut called, |caller, called| called.accepted().filter(|_| caller.is_connected(id)));
    ((caller, id), (called, from))
}

impl Side {
    fn accepted(&self) -> Option<ConnectionId> {
        self.events.iter().find_map(|event| match event {
            ControlEvent::Accepted(id, _) => Some(*id),
            _ => None,
        })
    }

    /// Returns the reason of the first connection that has ended.
    fn any_closed(&self) -> Option<CloseReason> {
        self.events.iter().find_map(|event| match event {
            ControlEvent::Closed(_, reason) => Some(reason.clone()),
            _ => None,
        })
    }
}
