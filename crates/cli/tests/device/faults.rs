//! What a client says on real RDMA when something goes away in the middle.

use std::thread;
use std::time::{Duration, Instant};

use crate::support::client::{Client, assert_failed};
use crate::support::faults::DeletedLinks;
use crate::support::host::Host;
use crate::support::network::DownLink;
use crate::support::server::Server;

/// An emulated host is slow: the limit of the tests elsewhere, and this much beside.
const TOLD_WITHIN: Duration = Duration::from_secs(40);

/// Clients in the middle of their tests.
fn clients(server: &mut Server) -> Vec<Client> {
    let tests: [(&str, &[&str]); 2] =
        [("ping", &["-D", "300"]), ("blast", &["-D", "300", "-s", "64K", "--depth", "4"])];
    let clients = tests.map(|(command, words)| server.start_client(command, words));
    server.wait_for_logs(" from ", tests.len());
    clients.into_iter().chain([server.start_fill_that_is_prepared(&[])]).collect()
}

/// The library has the same faults in every guest; here it is what the command says to them.
mod one_guest {
    use super::*;

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn agents_that_are_killed_end_their_tests() {
        let mut server = Server::start_far(&[]);
        let clients = clients(&mut server);
        server.signal_agents("KILL");
        for client in clients {
            assert_failed(client.end_within(TOLD_WITHIN), 4, &["error: the peer is lost\n"]);
        }
    }

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn agents_that_are_stopped_end_their_tests() {
        let mut server = Server::start_far(&[]);
        let clients = clients(&mut server);
        server.signal_agents("STOP");
        for client in clients {
            assert_failed(
                client.end_within(TOLD_WITHIN),
                4,
                &["error: the peer is lost\n", "nothing was received for"],
            );
        }
        server.signal_agents("KILL");
    }

    /// The port of the client's card goes down. Where there are two hosts the connection goes with it.
    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn a_port_that_goes_down_in_the_middle_ends_the_test() {
        let net_device = match (Host::all().len(), Host::HERE.run(&["ip", "link", "show", "va"]).code) {
            (1, _) => "v0",
            (_, Some(0)) => "va",
            _ => "eth0",
        };
        let mut server = Server::start_far(&[]);
        let client = server.start_client("ping", &["-D", "300"]);
        server.wait_for_log("ping from");
        thread::sleep(Duration::from_secs(1));
        let down = DownLink::of(Host::HERE, net_device);
        let ended = client.end_within(TOLD_WITHIN);
        drop(down);
        assert_failed(ended, 4, &[]);
    }

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn a_card_that_is_deleted_in_the_middle_stays_until_the_test_is_done_and_no_longer() {
        let mut server = Server::start_far(&[]);
        let client = server.start_client("ping", &["-D", "8"]);
        server.wait_for_log("ping from");
        // The kernel waits for whoever has the card open: the client and its agent, and not the server.
        let deleting = thread::spawn(DeletedLinks::new);
        thread::sleep(Duration::from_secs(1));
        assert!(!deleting.is_finished(), "Soft-RoCE removes what is in use");
        let ended = client.end_within(TOLD_WITHIN);
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        server.wait_for_no_agent();
        let deadline = Instant::now() + TOLD_WITHIN;
        while !deleting.is_finished() {
            assert!(Instant::now() < deadline, "the server holds the card");
            thread::sleep(Duration::from_millis(50));
        }
        deleting.join().expect("the card is deleted").restore();
    }
}
