//! What a client says on real RDMA when its card, its rights or the way to its peer are wrong.
//!
//! Each is one of those that people run into with other software. Of the messages collected from others' trackers, these are not shown
//! here:
//!
//! - `Unexpected CM event`, and `Unable to create QP`: the command connects queue pairs without the connection manager, and asks for nothing
//!   that Soft-RoCE refuses. The verbs crate's own tests make both.
//! - A kernel that was built without RDMA, and `fi_getinfo: -61`: tests/engine_failures.rs, on hosts without a card.
//! - A provider library that is missing: the guest's root has all; farreach_verbs::system's tests make such hosts up.

use std::process::Command;
use std::time::Duration;

use crate::support::client::{Client, assert_failed};
use crate::support::faults::{ClosedNodes, DeletedLinks};
use crate::support::host::Host;
use crate::support::run::{Ended, FARREACH};
use crate::support::server::{SECRET, Server};

/// An emulated host starts a process in seconds. The limit itself is that of the tests elsewhere, and this much beside.
const TOLD_WITHIN: Duration = Duration::from_secs(40);

/// The card of the host that clients run on.
fn card() -> &'static str {
    if Host::all().len() == 1 { "rxe0" } else { "rxea" }
}

fn assert_fails(command: &mut Command, code: i32, words: &[&str]) -> Ended {
    let ended = assert_failed(Client::start(command).end_within(TOLD_WITHIN), code, words);
    let errors = ended.stderr.lines().filter(|line| line.starts_with("error: ")).count();
    assert_eq!(errors, 1, "only the first failure is told: {ended:#?}");
    ended
}

/// What is the same on every kernel.
mod one_guest {
    use super::*;

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn a_gid_index_that_is_empty_is_told_and_nothing_else_is_taken() {
        let server = Server::start_far(&[]);
        for words in [&["-x", "99"][..], &["-x", "99", "-d", card()]] {
            assert_fails(&mut server.client("ping", words), 3, &["99", card(), "GID"]);
        }
    }

    /// A queue pair that does not go to RTR.
    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn gids_of_two_families_are_told_with_both_gids() {
        let server = Server::start_far(&["-x", "1"]);
        let words = [
            "INIT to RTR",
            "GID 0 fe80::",
            "towards ::ffff:192.0.2.",
            "one GID is IPv4 and the other IPv6",
            "address family",
        ];
        assert_fails(&mut server.client("ping", &["-x", "0", "-d", card()]), 4, &words);
    }

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn memory_that_may_not_be_locked_is_told_in_bytes_with_the_fix_for_each_place() {
        let server = Server::start_far(&[]);
        let limited = "ulimit -l 64 && exec setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock \"$@\"";
        let mut client = Host::HERE.command(&[
            "sh",
            "-c",
            limited,
            "sh",
            "env",
            SECRET,
            FARREACH,
            "ping",
            &server.address(),
        ]);
        let words = [
            "bytes cannot be locked in memory",
            "this process may lock 65536 bytes of memory (ulimit -l) and has no CAP_IPC_LOCK",
            "ulimit -l unlimited",
            "/etc/security/limits.d",
            "LimitMEMLOCK=infinity",
            "--ulimit memlock=-1",
        ];
        assert_fails(&mut client, 3, &words);
    }

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn a_node_that_this_user_may_not_open_is_named_with_the_fix() {
        let server = Server::start_far(&[]);
        let nodes = ClosedNodes::new();
        for words in [&["-d", card()][..], &["--require-rdma"]] {
            let ended = nodes.as_nobody(&[&["ping", &server.address(), "-n", "1"], words].concat());
            let words = ["this user may not open", "user read and write access to /dev/infiniband/uverbs"];
            assert_failed(ended, 3, &words);
        }
    }

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn a_card_that_was_deleted_is_told_and_nobody_falls_back_in_silence() {
        let server = Server::start_far(&[]);
        let deleted = DeletedLinks::new();
        let words = ["the kernel has no RDMA device", "rdma link add rxe0 type rxe netdev NETDEV"];
        for flags in [&["-d", card()][..], &["--require-rdma"]] {
            assert_fails(&mut server.client("ping", &[flags, &["-n", "1"]].concat()), 3, &words);
        }
        let ended = server.run("ping", &["-n", "1", "-v"]);
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        assert!(
            ended.stdout.contains("(no RDMA)") && ended.stderr.contains("no active RDMA card"),
            "{ended:#?}"
        );
        deleted.restore();
    }
}

mod two_hosts {
    use super::*;
    use crate::support::network::DroppedPackets;

    fn far() -> Host {
        *Host::all().last().expect("a guest has a host")
    }

    /// `Got completion with error 12`.
    #[test]
    #[ignore = "needs two hosts: cargo xtask vm test runs it"]
    fn packets_that_a_firewall_drops_are_told_from_a_peer_that_is_gone() {
        let server = Server::start_far(&[]);
        let dropped = DroppedPackets::at(far());
        let clients = [("ping", &["-n", "10"][..]), ("blast", &["-n", "10"]), ("fill", &["--pages", "8"])]
            .map(|(command, words)| server.start_client(command, words));
        let words = [
            "the TCP connection to the peer works, but data over the rail does not arrive",
            "no acknowledgement from the peer after all retries",
        ];
        let ended = clients.map(|client| assert_failed(client.end_within(TOLD_WITHIN), 4, &words));
        // Whose own card has found it out says what to look for; one who has it from the other side says to look there.
        assert!(
            ended.iter().any(|it| it.stderr.contains("UDP port 4791") && it.stderr.contains("VLAN")),
            "{ended:#?}"
        );
        drop(dropped);
        assert_eq!(server.run("ping", &["-n", "1"]).code, Some(0), "{:#?}", server.log());
    }
}
