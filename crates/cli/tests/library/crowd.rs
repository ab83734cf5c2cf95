//! A server with a crowd of clients over libfabric's rails, some of which are killed: nobody else notices, and nothing is left of them.

use std::fs;
use std::time::Duration;

use farreach_testkit::with_own_shared_memory;

use crate::support::crowd::{Crowd, clients, seconds};
use crate::support::server::Server;

/// Files of shared memory: libfabric has one for each endpoint.
fn shared_files() -> usize {
    fs::read_dir("/dev/shm").expect("every Linux has it").count()
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn nothing_is_left_of_a_crowd_and_nobody_notices_those_that_are_killed() {
    with_own_shared_memory(|| {
        let crowd = Crowd {
            clients: clients(64),
            killed: clients(64) / 4,
            devices: &["shm", "tcp"],
            lasts: seconds(10),
            patience: Duration::from_secs(60),
            seed: 7,
        };
        let mut server = Server::start(&[]);
        // What the first client makes the server load does not count.
        assert_eq!(server.run("ping", &["-n", "1"]).code, Some(0));
        server.wait_for_no_agent();
        let (descriptors, memory, files) = (server.descriptors(), server.memory_kib(), shared_files());
        let outcome = crowd.run(&server);
        server.wait_for_no_agent();
        let (descriptors_after, memory_after, files_after) =
            (server.descriptors(), server.memory_kib(), shared_files());
        eprintln!(
            "crowd: {outcome:?}, {} to their end; descriptors {descriptors} → {descriptors_after}, memory {memory} → \
             {memory_after} KiB, files of shared memory {files} → {files_after}",
            outcome.finished()
        );
        assert!(outcome.finished() >= crowd.clients && outcome.killed > 0, "it was no crowd: {outcome:?}");
        assert_eq!(descriptors, descriptors_after, "{:#?}", server.log());
        assert!(memory_after < memory + 4096, "{memory} KiB became {memory_after}");
        // A killed process takes nothing away with it: libfabric leaves what the killed clients had, and nothing of their agents or anybody else.
        assert!(
            files_after <= files + outcome.killed,
            "{files} files became {files_after}, and {} were killed",
            outcome.killed
        );
        assert_eq!(server.run("ping", &["-n", "10"]).code, Some(0), "the server goes on");
    });
}
