//! A server with a crowd of clients on real RDMA, some of which are killed: nobody else notices, and the kernel has nothing of them any more.

use std::thread;
use std::time::{Duration, Instant};

use crate::support::crowd::{Crowd, clients, seconds};
use crate::support::host::Host;
use crate::support::server::Server;

/// What the kernel has of each kind: `0: rxe0: qp 1 cq 2 pd 1 mr 0 …`, on each host.
fn resources() -> Vec<String> {
    let shown = Host::all().iter().map(|host| host.output(&["rdma", "resource", "show"]));
    shown.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

mod one_guest {
    use super::*;

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn nothing_is_left_of_a_crowd_and_nobody_notices_those_that_are_killed() {
        let crowd = Crowd {
            clients: clients(4),
            killed: clients(4).div_ceil(4),
            devices: &["rxe0"],
            lasts: seconds(8),
            patience: Duration::from_secs(120),
            seed: 7,
        };
        let before = resources();
        let mut server = Server::start_far(&[]);
        assert_eq!(server.run("ping", &["-n", "1"]).code, Some(0));
        server.wait_for_no_agent();
        let descriptors = server.descriptors();
        let outcome = crowd.run(&server);
        server.wait_for_no_agent();
        // The kernel takes its time to destroy what killed processes had.
        let deadline = Instant::now() + Duration::from_secs(20);
        while resources() != before && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(200));
        }
        eprintln!("crowd: {outcome:?}, {} to their end; {before:?} → {:?}", outcome.finished(), resources());
        assert!(
            outcome.finished() >= crowd.clients && outcome.killed == crowd.killed,
            "it was no crowd: {outcome:?}"
        );
        assert_eq!(before, resources(), "{:#?}", server.log());
        assert_eq!(descriptors, server.descriptors());
        assert_eq!(server.run("ping", &["-n", "1"]).code, Some(0), "the server goes on");
    }
}
