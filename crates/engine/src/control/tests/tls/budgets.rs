//! Budgets of connections, over TLS.

use super::*;
use crate::control::exceeded::Exceeded;

#[test]
fn one_peer_beyond_the_limit_is_told_so_after_the_handshake() {
    let (here, there) = friends();
    let budgets = ControlBudgets { peers: 1, ..ControlBudgets::default() };
    let (mut called, address) = listening_with(there, budgets);
    let mut caller = Side::new();
    let connect = |caller: &mut Side| {
        let session = record_layer(here.connecting("127.0.0.1").unwrap());
        let id = caller.control.connect(address, session).unwrap();
        caller.control.send(id, &hello()).unwrap();
        id
    };
    let first = connect(&mut caller);
    run(&mut caller, &mut called, |_, called| called.accepted().pop());
    let second = connect(&mut caller);
    let reason = run(&mut caller, &mut called, |caller, _| caller.closed(second));
    assert!(matches!(reason, CloseReason::Ended { is_torn: false, .. }), "{reason}");
    let refusal = Frame::Refused { reason: Exceeded::Peers(1).to_string() };
    assert_eq!(caller.frames(second), [&refusal]);
    assert_eq!((called.accepted().len(), caller.closed(first)), (1, None));
    let reported = called.any_closed().unwrap();
    assert!(matches!(reported, CloseReason::OverBudget { exceeded: Exceeded::Peers(1), .. }), "{reported}");
}

/// Strangers that stop in the middle of the TLS handshake keep nobody out.
#[test]
fn a_half_open_handshake_ends_for_a_newcomer() {
    const HALF_OPEN: usize = 50;
    let (here, there) = friends();
    let budgets = ControlBudgets { handshakes: 10, ..ControlBudgets::default() };
    let (mut called, address) = listening_with(there, budgets);
    let half_open: Vec<_> = (0..HALF_OPEN)
        .map(|number| {
            let mut flight = Vec::new();
            here.connecting("127.0.0.1").unwrap().write_tls(&mut flight).unwrap();
            flight.truncate(flight.len() - number % 2);
            let mut stranger = TcpStream::connect(address).unwrap();
            stranger.write_all(&flight).unwrap();
            called.poll();
            stranger
        })
        .collect();
    let mut caller = Side::new();
    let session = record_layer(here.connecting("127.0.0.1").unwrap());
    let id = caller.control.connect(address, session).unwrap();
    caller.control.send(id, &hello()).unwrap();
    run(&mut caller, &mut called, |caller, called| {
        called.accepted().pop().filter(|_| caller.is_connected(id))
    });
    assert!(called.control.handshakes.accepted() < 10);
    let reported = called.events.iter().filter(|event| matches!(event, ControlEvent::Closed(..))).count();
    assert_eq!(reported, 1, "{:?}", called.events);
    drop(half_open);
}
