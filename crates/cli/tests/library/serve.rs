//! `farreach serve`: how it begins, whom it lets in, and how it ends.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use crate::support::client::{TOLD_WITHIN, assert_failed, assert_fails};
use crate::support::server::Server;

/// It ends within so long, also with clients.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn it_says_where_it_listens_and_what_it_offers() {
    let server = Server::start(&["-l", "127.0.0.1"]);
    let startup_lines = server.startup_lines();
    let lines: Vec<Vec<&str>> = startup_lines.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0].join(" "), format!("listening on {}", server.address()));
    assert_eq!(lines[1], ["RAIL", "RDMA", "VIA"]);
    let rails: Vec<&[&str]> = lines[2..].iter().map(|line| &line[..2]).collect();
    assert!(rails.contains(&&["tcp", "no"][..]), "{startup_lines}");
    assert_eq!(server.log(), [""; 0], "the log is for clients");
}

/// What a client did is logged in two lines: who and over what, and how it ended.
#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn it_logs_each_client() {
    let mut server = Server::start(&[]);
    assert_eq!(server.run("ping", &["-d", "tcp", "-n", "10"]).code, Some(0));
    let done = server.wait_for_log("ping finished");
    let (time, rest) = done.split_once(' ').expect("when it was");
    assert!(is_utc(time), "{done}");
    let (client, _) = rest.split_once(": ").expect("whose it is");
    assert!(client.parse::<std::net::SocketAddr>().is_ok_and(|it| it.ip().is_loopback()), "{done}");
    let begun = server.wait_for_log("ping from ");
    assert!(begun.contains(&format!(" {client}: ")) && begun.ends_with(" 127.0.0.1"), "{begun}");
    assert!(
        server.log().iter().all(|line| line.split(' ').next().is_some_and(is_utc)),
        "{:#?}",
        server.log()
    );
}

/// `2026-11-17T16:08:00.123Z`
fn is_utc(word: &str) -> bool {
    let shape: String = word.chars().map(|it| if it.is_ascii_digit() { '0' } else { it }).collect();
    shape == "0000-00-00T00:00:00.000Z"
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn once_ends_as_its_test_did() {
    for (words, client, server_ends) in
        [(&["-n", "10"][..], 0, 0), (&["-n", "10", "-d", "tcp", "--alter-byte"], 5, 1)]
    {
        let mut server = Server::start(&["--once"]);
        assert_eq!(server.run("ping", words).code, Some(client));
        assert_eq!(server.end_by_itself(ENDS_WITHIN), Some(server_ends), "{:#?}", server.log());
    }
    let mut server = Server::start(&["--once"]);
    let first = server.start_client("ping", &["-D", "60"]);
    server.wait_for_log("ping from");
    assert_fails(
        &mut server.client("ping", &[]),
        4,
        &["the server reports: it is busy", "cause: 1 client is being served"],
    );
    first.signal("INT");
    assert_eq!(first.end_within(TOLD_WITHIN).code, Some(130));
    assert_eq!(server.end_by_itself(ENDS_WITHIN), Some(0), "{:#?}", server.log());
}

/// Who looks whether a port is open, and calls then, as scripts do, is served.
#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn once_is_not_for_one_who_only_looks_at_the_port() {
    let mut server = Server::start(&["--once"]);
    for _ in 0..3 {
        drop(TcpStream::connect(server.address()).expect("it listens"));
    }
    // One that leaves by a reset is gone before anybody looks at it.
    let mut rude = TcpStream::connect(server.address()).expect("it listens");
    rude.write_all(b"HTTP/1.1").expect("it is connected");
    drop(rude);
    let ended = server.run("ping", &["-n", "10"]);
    assert_eq!(ended.code, Some(0), "{ended:#?}, {:#?}", server.log());
    assert_eq!(server.end_by_itself(ENDS_WITHIN), Some(0), "{:#?}", server.log());
}

/// What to do about it is not to come later: it is its own first connection that is served.
#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn once_is_for_one_connection_and_says_so_to_a_test_of_several() {
    let mut server = Server::start(&["--once"]);
    let mut bench = server.client("bench", &["-d", "tcp", "--queues", "2"]);
    let words = ["the server cannot serve 2 queues at once", "fix: start the server without --once"];
    assert_fails(&mut bench, 4, &words);
    // It has ordered nothing.
    server.wait_for_no_agent();
    assert_eq!(server.run("ping", &["-n", "10"]).code, Some(0), "{:#?}", server.log());
    assert_eq!(server.end_by_itself(ENDS_WITHIN), Some(0), "{:#?}", server.log());
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn who_comes_beyond_the_limit_is_refused_in_words() {
    let mut server = Server::start(&["--clients-max", "3", "--queue-max", "0"]);
    let served: Vec<_> =
        (0..3).map(|_| server.start_client("ping", &["-D", "60", "--wait", "event"])).collect();
    server.wait_for_logs("ping from", 3);
    let words =
        ["error: the server reports: it is busy", "cause: 3 clients are being served", "--clients-max"];
    let refused: Vec<_> = (0..8).map(|_| server.start_client("fill", &[])).collect();
    for client in refused {
        assert_failed(client.end_within(TOLD_WITHIN), 4, &words);
    }
    server.wait_for_logs("refused, 3 clients are being served", 8);
    assert_eq!(server.agents(), 3);
    // Those that are served go on, and one that leaves makes room.
    for client in served {
        client.signal("INT");
        assert_eq!(client.end_within(TOLD_WITHIN).code, Some(130));
        server.wait_for_no_agent_but(2);
        assert_eq!(server.run("ping", &["-n", "10"]).code, Some(0));
    }
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn a_signal_ends_it_in_good_order_with_clients_and_without() {
    for signal in ["TERM", "INT"] {
        let mut idle = Server::start(&[]);
        assert_eq!(idle.end(signal, ENDS_WITHIN), Some(0), "{:#?}", idle.log());
        let mut busy = Server::start(&[]);
        let clients: Vec<_> = (0..2).map(|_| busy.start_client("ping", &["-D", "60"])).collect();
        busy.wait_for_logs("ping from", 2);
        assert_eq!(busy.end(signal, ENDS_WITHIN), Some(0), "{:#?}", busy.log());
        for client in clients {
            assert_failed(
                client.end_within(TOLD_WITHIN),
                4,
                &["error: the server was stopped\n", "start the server again"],
            );
        }
    }
}

/// It has looked for rails, and yet no library is in it: those keep open what they have seen, and may crash.
#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn it_holds_no_library_and_no_rail_itself() {
    let server = Server::start(&[]);
    let maps = server.maps();
    assert!(maps.contains("/farreach"), "{maps}");
    assert!(!maps.contains("libfabric") && !maps.contains("libibverbs"), "{maps}");
}

/// One that is killed leaves no agent behind: nobody would end it.
#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn its_agents_end_with_it_also_when_it_is_killed() {
    let mut server = Server::start(&[]);
    let client = server.start_client("ping", &["-D", "60"]);
    server.wait_for_log("ping from");
    server.end("KILL", ENDS_WITHIN);
    assert_failed(client.end_within(TOLD_WITHIN), 4, &[]);
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn it_survives_an_agent_that_crashes() {
    let mut server = Server::start(&[]);
    let client = server.start_client("ping", &["-D", "60"]);
    server.wait_for_log("ping from");
    // Once is not enough: Rust's handler lets the instruction run again, to crash for good, and nothing is wrong with the instruction.
    server.signal_agents_until_they_end("SEGV");
    assert_failed(client.end_within(TOLD_WITHIN), 4, &["error: the peer is lost\n"]);
    // PSM3 of libfabric 1.17 has a handler that says so itself, and ends the process by a code.
    server.wait_for_log("signal 11");
    server.wait_for_no_agent();
    assert_eq!(server.run("ping", &["-n", "10"]).code, Some(0), "{:#?}", server.log());
}
