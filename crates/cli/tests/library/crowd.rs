//! A server with a crowd of clients over tcp, some of which are killed: nobody else notices, and nothing is left of them.

use std::time::Duration;

use crate::support::crowd::{Crowd, clients, seconds};
use crate::support::server::Server;

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn nothing_is_left_of_a_crowd_and_nobody_notices_those_that_are_killed() {
    let crowd = Crowd {
        clients: clients(64),
        killed: clients(64) / 4,
        devices: &["tcp"],
        lasts: seconds(10),
        patience: Duration::from_secs(60),
        seed: 7,
    };
    let mut server = Server::start(&[]);
    // What the first client makes the server load does not count.
    assert_eq!(server.run("ping", &["-n", "1"]).code, Some(0));
    server.wait_for_no_agent();
    let (descriptors, memory) = (server.descriptors(), server.memory_kib());
    let outcome = crowd.run(&server);
    server.wait_for_no_agent();
    let (descriptors_after, memory_after) = (server.descriptors(), server.memory_kib());
    eprintln!(
        "crowd: {outcome:?}, {} to their end; descriptors {descriptors} → {descriptors_after}, memory {memory} → \
             {memory_after} KiB",
        outcome.finished()
    );
    assert!(outcome.finished() >= crowd.clients && outcome.killed > 0, "it was no crowd: {outcome:?}");
    assert_eq!(descriptors, descriptors_after, "{:#?}", server.log());
    assert!(memory_after < memory + 4096, "{memory} KiB became {memory_after}");
    assert_eq!(server.run("ping", &["-n", "10"]).code, Some(0), "the server goes on");
}
