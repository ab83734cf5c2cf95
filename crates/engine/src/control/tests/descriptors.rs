//! What happens when no descriptor is left. Each test runs in a process of its own, which has few.

use std::fs::File;
use std::process::Command;

use super::budgets::{frames_until_end, is_open, refusal};
use super::*;
use crate::control::exceeded::Exceeded;
use crate::control::handshakes::GRACE;

/// Runs a test of this module in another process, with 64 descriptors.
fn in_process_with_few(test: &str) {
    let program = std::env::current_exe().unwrap();
    let few = format!("ulimit -n 64 && exec \"$0\" --ignored --exact {}::{test}", module_path!());
    let few = few.replace("farreach::", "");
    let told = Command::new("sh").args(["-c", &few]).arg(program).output().unwrap();
    let words = String::from_utf8_lossy(&told.stdout);
    assert!(told.status.success() && words.contains("1 passed"), "{words}");
}

macro_rules! with_few_descriptors {
    ($($(#[$attribute:meta])* $name:ident => $test:ident;)*) => {$(
        $(#[$attribute])*
        #[test]
        fn $name() {
            in_process_with_few(stringify!($test));
        }
    )*};
}

with_few_descriptors! {
    newcomers_are_refused_and_it_is_told_once => refuse_newcomers;
    a_stranger_ends_for_a_newcomer => end_a_stranger;
    without_a_spare_one_it_waits => wait_without_a_spare;
    #[cfg(feature = "tls")]
    newcomers_over_tls_get_an_alert => refuse_over_tls;
}

/// Opens files until `left` descriptors are left.
fn use_up(left: usize) -> Vec<File> {
    let mut files: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    files.truncate(files.len() - left);
    files
}

fn troubles(side: &Side) -> Vec<(SocketAddr, &str, &str)> {
    let troubles = side.events.iter().filter_map(|event| match event {
        ControlEvent::CannotAccept { local, cause, fix } => Some((*local, cause.as_str(), *fix)),
        _ => None,
    });
    troubles.collect()
}

#[test]
#[ignore = "another test runs it in a process of its own, which has few descriptors"]
fn refuse_newcomers() {
    let (mut side, address) = Side::listening();
    for round in 1..3 {
        // Each peer in this test takes a descriptor, too.
        let files = use_up(3);
        let newcomers: Vec<_> = (0..3).map(|_| raw_peer(address)).collect();
        for newcomer in &newcomers {
            assert_eq!(frames_until_end(&mut side, newcomer), [refusal(Exceeded::Descriptors)]);
        }
        let troubles = troubles(&side);
        assert_eq!(troubles.len(), round, "once in each round: {troubles:?}");
        let (local, cause, fix) = troubles[0];
        assert_eq!((local, cause), (address, "too many open files"));
        assert!(fix.contains("ulimit -n"), "{fix}");
        assert!(side.control.connections.is_empty());
        let begun = Instant::now();
        side.control.sleep(Some(Duration::from_millis(50))).unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(50), "it does not try without end");
        drop((files, newcomers));
        let peer = raw_peer(address);
        side.until(|side| (side.accepted().len() == round).then_some(()));
        drop(peer);
        side.until(|side| side.control.connections.is_empty().then_some(()));
    }
}

#[test]
#[ignore = "another test runs it in a process of its own, which has few descriptors"]
fn end_a_stranger() {
    let (mut side, address) = Side::listening();
    let stranger = TcpStream::connect(address).unwrap();
    let peer = raw_peer(address);
    side.until(|side| (side.control.connections.len() == 2 && !side.accepted().is_empty()).then_some(()));
    let files = use_up(1);
    side.ahead = GRACE;
    let newcomer = raw_peer(address);
    side.until(|side| (side.accepted().len() == 2).then_some(()));
    assert_eq!(frames_until_end(&mut side, &stranger), [refusal(Exceeded::Descriptors)]);
    assert!(is_open(&peer) && is_open(&newcomer) && troubles(&side).is_empty());
    let reason = side.any_closed().unwrap();
    assert!(reason.to_string().ends_with("no descriptor is left for it: too many open files"), "{reason}");
    drop(files);
}

/// Another thread has taken the place of the spare descriptor.
#[test]
#[ignore = "another test runs it in a process of its own, which has few descriptors"]
fn wait_without_a_spare() {
    let (mut side, address) = Side::listening();
    let mut files = use_up(0);
    side.control.spare.give_up();
    files.extend(use_up(0));
    // For the peer in this test.
    files.swap_remove(0);
    let newcomer = raw_peer(address);
    side.until(|side| (!side.events.is_empty()).then_some(()));
    let begun = Instant::now();
    side.control.sleep(Some(Duration::from_millis(50))).unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(50), "it does not try without end");
    side.poll();
    assert_eq!((troubles(&side).len(), side.events.len()), (1, 1));
    assert!(is_open(&newcomer));
    drop(files);
    side.until_accepted();
    side.control.spare.restore();
    let _files = use_up(1);
    let another = raw_peer(address);
    assert_eq!(frames_until_end(&mut side, &another), [refusal(Exceeded::Descriptors)], "it has one again");
}

#[cfg(feature = "tls")]
#[test]
#[ignore = "another test runs it in a process of its own, which has few descriptors"]
fn refuse_over_tls() {
    let (here, there) = tls::friends();
    let (mut side, address) = tls::listening_over(there);
    let mut caller = Side::new();
    let _files = use_up(1);
    let session = tls::record_layer(here.connecting("127.0.0.1").unwrap());
    let id = caller.control.connect(address, session).unwrap();
    let reason = run(&mut caller, &mut side, |caller, _| caller.closed(id));
    assert!(reason.to_string().contains("it has no descriptor left"), "{reason}");
    assert!(reason.fix().contains("ulimit -n"), "{}", reason.fix());
    assert_eq!(troubles(&side).len(), 1);
}
