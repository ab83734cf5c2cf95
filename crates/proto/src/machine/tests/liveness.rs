//! When a peer is pinged, and when it is lost.

use super::*;
use crate::ids::GrantId;
use crate::time::Time;

/// Runs the timers until `end`, in steps of a tenth of a millisecond, and answers pings if
/// `is_alive`. Returns the times of pings, and of the loss.
fn run(machine: &mut Machine, begin: u64, end: u64, is_alive: bool) -> (Vec<u64>, Option<u64>) {
    let (mut pings, mut lost_at) = (Vec::new(), None);
    for now in (begin..end).step_by(MS as usize / 10) {
        machine.begin_step(Time(now));
        machine.end_step();
        for frame in frames(machine) {
            if let Frame::Ping { nonce } = frame {
                pings.push(now);
                if is_alive {
                    machine.handle_frame(PEER, Frame::Pong { nonce }, Time(now));
                }
            }
        }
        for event in events(machine) {
            match event {
                Event::Peer(_, PeerChange::Lost(LostReason::Silent { .. })) => lost_at = Some(now),
                Event::Peer(key, PeerChange::Unwatched) if is_alive => machine.watch(key, Time(now)),
                _ => {}
            }
        }
    }
    (pings, lost_at)
}

/// The longest delay of a timer.
const LATE: u64 = 3 * MS;

#[test]
fn a_peer_that_nothing_waits_for_is_pinged_rarely() {
    let mut machine = ready();
    let (pings, lost) = run(&mut machine, 0, 20 * tuning().idle_heartbeat, true);
    assert!((8..=20).contains(&pings.len()), "{} pings", pings.len());
    assert_eq!(lost, None);
}

#[test]
fn a_ping_is_answered() {
    let mut machine = ready();
    machine.handle_frame(PEER, Frame::Ping { nonce: 7 }, Time::ZERO);
    assert_eq!(frames(&mut machine).pop(), Some(Frame::Pong { nonce: 7 }));
}

#[test]
fn a_peer_that_is_watched_is_pinged_often_until_the_watch_ends() {
    let mut machine = ready();
    machine.watch(PEER, Time::ZERO);
    // `run` renews it.
    let (pings, lost) = run(&mut machine, 0, 100 * tuning().heartbeat, true);
    assert!((40..=100).contains(&pings.len()), "{} pings", pings.len());
    assert_eq!(lost, None);
}

/// Whatever waits, a peer that does not answer is lost when the permitted silence is over. It counts
/// from the beginning of the wait.
#[test]
fn every_kind_of_wait_ends_with_a_silent_peer() {
    type Begin = fn(&mut Machine, u64);
    let waits: [(&str, Begin); 5] = [
        ("watch", |machine, now| machine.watch(PEER, Time(now))),
        ("message", |machine, now| machine.send_message(OpId(1), PEER, vec![1], Time(now))),
        ("leave", |machine, now| {
            machine.send_message(OpId(1), PEER, vec![1], Time(now));
            machine.leave(PEER, Time(now));
        }),
        ("revoke", |machine, now| {
            let id = machine.grant(PEER, 64, Rights::WRITE, over_network(vec![Some((0, 1))]), Time(now));
            machine.revoke(Some(OpId(2)), id, Time::NEVER, Time(now));
        }),
        ("transfer", |machine, now| {
            hostile::submit_page(machine, OpId(3), GrantId(5), now);
        }),
    ];
    for (what, begin) in waits {
        let mut machine = ready();
        machine.handle_frame(PEER, Frame::Grant(hostile::grant(GrantId(5))), Time::ZERO);
        let begun = tuning().idle_heartbeat / 2;
        run(&mut machine, 0, begun, true);
        begin(&mut machine, begun);
        let end = begun + 2 * tuning().silence;
        // Only `watch` has to be renewed, and `run` does not do that for a peer that is not alive.
        let (pings, lost) = run(&mut machine, begun, end, false);
        assert_eq!(pings.len(), 1, "{what}");
        let lost = lost.unwrap_or_else(|| panic!("{what}: the peer is not lost")) - begun;
        let silence = tuning().silence;
        assert!((silence - LATE..silence + LATE).contains(&lost), "{what}: lost after {lost} ns");
    }
}
