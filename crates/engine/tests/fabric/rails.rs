//! Properties of rails, several rails, and sleeping on one.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use farreach::rails::fabric::{FabricRail, FabricSettings, offers};
use farreach::{Memory, Rights};
use farreach_rail::{EndedKeys, Event, LinkKey, Proof, Rail, RemoteSegment};
use farreach_sim::request::post;
use farreach_testkit::pattern;

use super::pair::{A, B, Pair, Place, write};

pub(crate) fn its_properties_are_what_the_library_says(place: &Place) {
    let rail = place.open(&FabricSettings::default());
    let properties = rail.properties();
    // A rail has the name that the user gave. The library has its own: 1.x calls this tcp `net`.
    let is_named =
        |name: &str| name.starts_with(place.name) || place.name == "tcp" && name.starts_with("net");
    assert!(properties.name.starts_with(place.name), "{properties:?}");
    assert!(properties.kind.starts_with("fabric/"), "{properties:?}");
    assert_eq!(properties.is_rdma, place.is_rdma);
    assert_eq!(properties.has_atomics, place.has_atomics());
    assert_eq!(properties.writes_prove, Proof::Delivered);
    assert_eq!(properties.message_max, FabricSettings::default().message_max);
    assert!(properties.limits.is_usable(), "{properties:?}");
    assert_eq!(rail.wait_fd().is_some(), place.has_descriptor());
    assert!(!properties.links_end_alone && !properties.immediates_name_link);
    let limits = properties.limits;
    assert!(limits.is_ordered);
    if !place.is_rdma {
        assert_eq!((limits.pieces, limits.targets), (4, 4));
        assert_eq!(properties.ended_keys, EndedKeys::StopNew);
    }
    assert_eq!((rail.in_flight(), rail.unattributed()), (0, 0));

    let settings = FabricSettings { providers: vec![place.name.to_owned()], ..FabricSettings::default() };
    let found = offers(&settings).unwrap();
    assert!(!found.is_empty() && is_named(found[0].provider()), "{found:?}");
    let error = FabricRail::open_named("no_such_provider", None, &settings).unwrap_err();
    assert!(error.cause.contains("no_such_provider") && !error.fix.is_empty(), "{error:?}");
    let all = offers(&FabricSettings::default()).unwrap();
    let is_rdma: Vec<_> = all.iter().map(|info| info.provider().contains("verbs")).collect();
    assert!(is_rdma.is_sorted_by(|left, right| left >= right), "RDMA first: {all:?}");
    assert!(!all.is_empty(), "tcp is everywhere");
}

pub(crate) fn what_is_no_end_is_refused(place: &Place) {
    let mut pair = Pair::open(place);
    let (link, end) = pair.rails[A].open_link(farreach_rail::PeerKey(0)).unwrap();
    for wrong in [&end[..end.len() - 1], &[], &[0xff; 64], &[&end[..], &[0]].concat()] {
        let error = pair.rails[A].connect(link, wrong).unwrap_err();
        assert!(!error.cause.is_empty() && error.fix.contains("same kind"), "{error:?}");
    }
    let granted = pair.expose(B, 64);
    assert!(post(&mut pair.rails[A], link, 1, granted.immediate(1)).is_err(), "it is not connected");
    pair.rails[A].connect(link, &end).expect("a rail may have a link to itself");
    assert!(pair.rails[A].connect(link, &end).is_err(), "once is enough");
    assert!(pair.rails[A].connect(LinkKey(u64::MAX), &end).is_err(), "there is no such link");
    pair.assert_quiet();
}

/// Like a host with two cards: each rail has its own address and key to the same memory.
pub(crate) fn one_memory_is_reached_over_two_rails(place: &Place) {
    let settings = FabricSettings::default();
    let open = |number: u8| {
        let is_loopback = place.bind.is_some_and(|bind| bind().is_loopback());
        let bind: Option<IpAddr> = if is_loopback {
            Some(Ipv4Addr::new(127, 0, 0, number).into())
        } else {
            place.bind.map(|bind| bind())
        };
        let rail = || FabricRail::open_named(place.name, bind, &settings).unwrap();
        let pair = Pair::of([rail(), rail()]);
        if let (true, Some(bind)) = (is_loopback, bind) {
            assert!(
                pair.rails[A].properties().name.ends_with(&bind.to_string()),
                "{:?}",
                pair.rails[A].properties()
            );
        }
        pair
    };
    let mut rails = [open(2), open(3)];
    let memory = Arc::new(Memory::allocate(8192).unwrap().expose());
    let keys = [0, 1].map(|rail: usize| {
        rails[rail].rails[B].make_key(farreach_rail::PeerKey(0), &memory, Rights::WRITE).unwrap()
    });
    for (rail, pair) in rails.iter_mut().enumerate() {
        let slice = pair.slice(A, &pattern(rail as u8, 4096));
        let (key, offset) = (keys[rail], 4096 * rail as u64);
        let target = RemoteSegment { address: key.address + offset, key: key.key, len: 4096 };
        pair.post(A, 1, write(slice, target, Some(rail as u32)));
        assert_eq!(pair.immediate(B), rail as u32);
        pair.done(A, 1);
    }
    let mut bytes = vec![0; 8192];
    memory.read_at(0, &mut bytes);
    assert_eq!(bytes, [pattern(0, 4096), pattern(1, 4096)].concat());
    for (rail, pair) in rails.iter_mut().enumerate() {
        pair.rails[B].end_key(keys[rail].id).unwrap();
        pair.assert_quiet();
    }
    drop(rails);
    assert_eq!(memory.keys(), 0, "no peer reaches it by either");
}

pub(crate) fn whoever_sleeps_is_woken(place: &Place) {
    const PAUSE: Duration = Duration::from_millis(200);
    let mut pair = Pair::open(place);
    // Connected, and idle.
    let granted = pair.expose(B, 64);
    pair.post(A, 1, granted.immediate(1));
    assert_eq!(pair.immediate(B), 1);
    pair.done(A, 1);
    pair.assert_quiet();
    if !place.has_descriptor() {
        assert!(!pair.rails[B].may_sleep().unwrap(), "there is nothing to sleep on");
        return;
    }
    let Pair { rails: [mut source, mut target], links, .. } = pair;
    thread::scope(|scope| {
        let sleeper = scope.spawn(move || {
            let (start, mut immediates, mut polls) = (Instant::now(), 0, 0);
            while immediates == 0 && start.elapsed() < Duration::from_secs(20) {
                polls += 1;
                target
                    .poll(&mut |event| immediates += u32::from(matches!(event, Event::Immediate { .. })))
                    .unwrap();
                if immediates == 0 && target.may_sleep().unwrap() {
                    let fd = target.wait_fd().unwrap().as_raw_fd();
                    let mut polled = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                    // SAFETY: one entry, valid for reads and writes, and the descriptor is open.
                    unsafe { libc::poll(&raw mut polled, 1, 5000) };
                }
            }
            (start.elapsed(), polls)
        });
        thread::sleep(PAUSE);
        post(&mut source, links[A], 2, granted.immediate(1)).unwrap();
        while source.in_flight() > 0 {
            source
                .poll(&mut |event| assert!(matches!(event, Event::Completed { outcome: Ok(()), .. })))
                .unwrap();
            thread::yield_now();
            if sleeper.is_finished() {
                break;
            }
        }
        let (slept, polls) = sleeper.join().unwrap();
        assert!(slept < Duration::from_secs(4), "nobody woke it: {slept:?}");
        assert!(polls < 1000, "it did not sleep: {polls} polls");
    });
}
