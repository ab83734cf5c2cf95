//! Meetings, and those who must not meet.

use std::path::Path;
use std::time::{Duration, Instant};

use farreach_shm::{Connecting, Expected, Listener, MeetError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::pair::{OURS, THEIRS, accept, listener, run_as_another_user, wait};

/// Connects without a proof.
fn stranger(listener: &Listener) -> Option<std::os::fd::OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let name = listener.name().strip_prefix('@').unwrap();
    connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).ok()?;
    Some(socket)
}

fn outcome(connecting: &mut Connecting, listener: &mut Listener) -> MeetError {
    wait("an error", || {
        assert!(listener.poll(Instant::now()).unwrap().is_none());
        connecting.poll().err()
    })
}

#[test]
fn those_who_say_nothing_displace_nobody_and_are_closed_in_time() {
    let mut listener = Listener::bind(Duration::from_secs(5)).unwrap();
    listener.expect(Expected { id: 5, theirs: THEIRS, ours: OURS });
    let now = Instant::now();
    let mut idle = Vec::new();
    wait("a crowd", || {
        idle.extend((0..10).filter_map(|_| stranger(&listener)));
        assert!(listener.poll(now).unwrap().is_none());
        assert!(listener.strangers() <= 64);
        (listener.refused() > 100).then_some(())
    });
    assert!(idle.len() > 160 && listener.strangers() == 64);
    let mut connecting = Connecting::new(listener.name(), THEIRS, OURS).unwrap();
    wait("a link in the crowd", || {
        idle.extend(stranger(&listener));
        assert!(connecting.poll().unwrap().is_none());
        listener.poll(Instant::now()).unwrap()
    });
    assert!(listener.poll(Instant::now() + Duration::from_secs(5)).unwrap().is_none());
    assert_eq!(listener.strangers(), 0);
}

#[test]
fn a_wrong_nonce_is_refused_on_both_sides_and_a_right_one_is_valid_once() {
    let mut listener = listener();
    let mut connecting = Connecting::new(listener.name(), [9; 32], OURS).unwrap();
    assert!(matches!(outcome(&mut connecting, &mut listener), MeetError::Refused));
    // The listener does not know what the other side expects: it finds out itself.
    let mut connecting = Connecting::new(listener.name(), THEIRS, [9; 32]).unwrap();
    assert!(connecting.poll().unwrap().is_none());
    drop(accept(&mut listener));
    let error = wait("an error", || connecting.poll().err());
    assert!(matches!(error, MeetError::WrongNonce), "{error}");
    let mut connecting = Connecting::new(listener.name(), THEIRS, OURS).unwrap();
    assert!(matches!(outcome(&mut connecting, &mut listener), MeetError::Refused));
    listener.expect(Expected { id: 6, theirs: THEIRS, ours: OURS });
    listener.forget(6);
    let mut connecting = Connecting::new(listener.name(), THEIRS, OURS).unwrap();
    assert!(matches!(outcome(&mut connecting, &mut listener), MeetError::Refused));
    assert_eq!(listener.refused(), 3);
}

#[test]
fn names_that_lead_nowhere_are_told() {
    for name in ["", "farreach", "relative/path", "@farreach-gone", "@/tmp/.X11-unix/X0", GONE] {
        assert!(matches!(Connecting::new(name, OURS, THEIRS), Err(MeetError::WrongName { .. })), "{name}");
    }
    let error = Connecting::new(&format!("@{GONE}"), OURS, THEIRS).unwrap().poll().unwrap_err();
    assert!(matches!(error, MeetError::NotFound { .. }) && error.fix().contains("namespace"), "{error}");
    let long = format!("@{}", "x".repeat(200));
    assert!(matches!(Connecting::new(&long, OURS, THEIRS), Err(MeetError::WrongName { .. })));
}

/// The name of a listener that there is not.
const GONE: &str = "farreach-00000000000000000000000000000000";

#[test]
fn a_process_of_another_user_is_refused() {
    run_as_another_user("meeting::role_of_another_user", &mut listener(), Path::new("/"));
}

#[test]
#[ignore = "a role in another test"]
fn role_of_another_user() {
    let name = std::env::var("FARREACH_SHM_NAME").unwrap();
    let error = Connecting::new(&name, THEIRS, OURS).unwrap().poll().unwrap_err();
    assert!(matches!(error, MeetError::Process(_)) && error.fix().contains("one user"), "{error}");
}

/// Those who connect without a pause are not accepted without one, unless somebody is expected.
#[test]
fn a_flood_keeps_nobody_busy() {
    let mut listener = Listener::bind(Duration::from_secs(5)).unwrap();
    let (now, mut crowd) = (Instant::now(), Vec::new());
    // No time passes for the listener, and the queue of the kernel is never empty.
    wait("the end of its patience", || {
        crowd.extend((0..200).map_while(|_| stranger(&listener)));
        let before = listener.refused() + listener.strangers() as u64;
        assert!(listener.poll(now).unwrap().is_none());
        let has_paused =
            listener.refused() + listener.strangers() as u64 == before && !is_readable(&listener);
        has_paused.then_some(())
    });
    assert!(listener.refused() + 64 <= 300, "{}", listener.refused());
    // It goes on by itself, and for one that is expected soon.
    wait("the end of the pause", || is_readable(&listener).then_some(()));
    listener.expect(Expected { id: 5, theirs: THEIRS, ours: OURS });
    let mut connecting = Connecting::new(listener.name(), THEIRS, OURS).unwrap();
    wait("a link in the flood", || {
        let met = listener.poll(Instant::now()).unwrap();
        // It finds a place in the queue before the others.
        drop(connecting.poll().unwrap());
        crowd.extend((0..200).map_while(|_| stranger(&listener)));
        crowd.truncate(500);
        met
    });
}

fn is_readable(listener: &Listener) -> bool {
    let mut fds = [PollFd::new(listener, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
}
