//! What a client says when its server cannot do what it asks for, goes away in the middle, or spoils a byte.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use farreach::{Engine, Settings};

use crate::support::client::{Client, TOLD_WITHIN, assert_failed, assert_fails, assert_fails_as_json};
use crate::support::run::FARREACH;
use crate::support::server::{Server, sooner_or_later};

/// Every kind of test, for longer than anybody waits here.
const LONG: [(&str, &[&str]); 6] = [
    ("ping", &["-D", "300"]),
    ("ping", &["-D", "300", "--op", "send"]),
    ("ping", &["-D", "300", "--op", "read"]),
    ("blast", &["-D", "300", "-s", "64K"]),
    ("blast", &["-D", "300", "-s", "64K", "-r"]),
    ("blast", &["-D", "300", "-s", "64K", "-b"]),
];

/// One client of each kind, in the middle of its test.
fn clients(server: &mut Server) -> Vec<Client> {
    let before = server.count_log(" from ");
    let clients = LONG.map(|(command, words)| server.start_client(command, words));
    server.wait_for_logs(" from ", before + LONG.len());
    clients.into_iter().chain([server.start_fill_that_is_prepared(&[])]).collect()
}

fn serve(words: &[&str]) -> Command {
    let mut serve = Command::new(FARREACH);
    serve.args(["serve", "-p", "0", "-l", "127.0.0.1"]).args(words);
    serve
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn an_agent_that_is_killed_ends_its_test_at_once() {
    let mut server = Server::start(&[]);
    let clients = clients(&mut server);
    server.signal_agents("KILL");
    for client in clients {
        assert_failed(client.end_within(TOLD_WITHIN), 4, &["error: the peer is lost\n", "cause: "]);
    }
    server.wait_for_logs("the agent was killed by signal 9", LONG.len() + 1);
    assert_eq!(server.run("ping", &["-n", "10"]).code, Some(0), "the server goes on");
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn an_agent_that_is_stopped_ends_its_test_in_seconds() {
    let mut server = Server::start(&[]);
    let clients = clients(&mut server);
    server.signal_agents("STOP");
    for client in clients {
        let words = ["error: the peer is lost\n", "nothing was received for"];
        assert_failed(client.end_within(TOLD_WITHIN), 4, &words);
    }
    server.signal_agents("KILL");
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn a_server_that_is_told_to_end_says_so_to_its_clients() {
    for signal in ["TERM", "INT"] {
        let mut server = Server::start(&[]);
        let clients = clients(&mut server);
        assert_eq!(server.end(signal, Duration::from_secs(5)), Some(0), "{:#?}", server.log());
        for client in clients {
            assert_failed(client.end_within(TOLD_WITHIN), 4, &["error: the server was stopped\n"]);
        }
    }
}

/// Minutes of measuring are not thrown away with the server.
#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn a_blast_prints_what_it_has_measured_when_its_server_ends() {
    for (way, told) in [(&[][..], "to server "), (&["-r"], "to client "), (&["-b"], "to server ")] {
        let mut server = Server::start(&[]);
        let words = [&["-D", "300", "-s", "64K"], way].concat();
        let mut client = server.start_client("blast", &words);
        client.wait_for("b/s", TOLD_WITHIN);
        assert_eq!(server.end("TERM", Duration::from_secs(5)), Some(0), "{:#?}", server.log());
        let ended = assert_failed(client.end_within(TOLD_WITHIN), 4, &["error: the server was stopped\n"]);
        let line = ended.stdout.lines().find(|line| line.starts_with(told));
        assert!(line.is_some_and(|line| !line.contains(" in 0 messages")), "{ended:#?}");
        for line in ["verified   no: the test did not finish", "ended      early: the server was stopped"] {
            assert!(ended.stdout.lines().any(|it| it == line), "{line}: {ended:#?}");
        }
    }
    let mut server = Server::start(&[]);
    let kill_after = |pause| {
        let client = server.start_served("blast", &["-D", "300", "-s", "64K", "--json"]);
        std::thread::sleep(pause);
        server.signal_agents("KILL");
        assert_failed(client.end_within(TOLD_WITHIN), 4, &["error: the peer is lost\n"])
    };
    let ended = sooner_or_later(kill_after, |ended| ended.json()["command"] == "blast");
    let report = ended.json();
    crate::support::schema::assert_valid("blast", &report);
    assert!(report["to_server"]["messages"].as_u64() > Some(0), "{report:#}");
    assert_eq!(
        (&report["is_verified"], &report["error"]["error"]),
        (&false.into(), &"the peer is lost".into())
    );
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn a_byte_that_the_server_alters_is_found() {
    let server = Server::start(&[]);
    for (command, words) in [
        ("ping", &["-n", "10"][..]),
        ("ping", &["-n", "10", "--op", "send", "-s", "1"]),
        ("ping", &["-n", "10", "--op", "read", "-s", "64K"]),
        ("blast", &["-n", "40", "-s", "64K"]),
        ("blast", &["-n", "40", "-s", "64K", "-r"]),
        ("blast", &["-n", "40", "-s", "64K", "-b"]),
        ("blast", &["-n", "40", "-s", "64K", "--op", "read"]),
        ("blast", &["-n", "40", "-s", "64K", "--op", "read", "-r"]),
        ("blast", &["-n", "40", "-s", "64K", "--op", "send"]),
        ("blast", &["-n", "40", "-s", "64K", "--op", "send", "-r"]),
        ("fill", &["--pages", "8"]),
    ] {
        let mut client = server.client(command, words);
        client.arg("--alter-byte");
        // It tells a person the same beside what it tells a program.
        let words = ["1 of", "bytes differ", "do not use this path for data"];
        assert_fails_as_json(&mut client, 5, &words);
    }
}

/// Whether this kernel speaks RDMA: a developer's may, and its cells with it.
fn has_rdma() -> bool {
    Path::new("/sys/class/infiniband").is_dir()
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn a_rail_that_is_not_here_is_told_with_what_is() {
    let server = Server::start(&[]);
    for (name, fix) in [
        ("nonsense", "fix: choose one of these rails"),
        ("rxe77", ""),
        // Another kernel would not help who mistyped it.
        ("tpc", "fix: did you mean tcp?"),
    ] {
        let words = [&format!("error: this host has no rail {name}"), "the rails of this host are tcp", fix];
        assert_fails(server.client("ping", &[]).args(["-d", name]), 3, &words);
        assert_fails_as_json(server.client("ping", &[]).args(["-d", name]), 3, &words);
        assert_fails(&mut serve(&["-d", name]), 3, &words);
    }
    let efa =
        ["error: this host has no rail efa", "libfabric does not offer it", "the rails of this host are tcp"];
    assert_fails(&mut serve(&["-d", "efa"]), 3, &efa);
}

/// The names of rails are known without a server: here nothing listens.
#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn the_rail_that_was_meant_is_suggested_without_a_server() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("it listens");
    let mut ping = Command::new(FARREACH);
    ping.args(["ping", &free.to_string(), "-d", "tpc"]);
    assert_fails(&mut ping, 3, &["error: this host has no rail tpc", "fix: did you mean tcp?"]);
}

/// Which layer is missing.
#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn a_card_on_a_kernel_without_rdma_is_told_by_the_layer_that_is_missing() {
    if has_rdma() {
        return;
    }
    let server = Server::start(&[]);
    let layer = ["the kernel has no RDMA support", "CONFIG_INFINIBAND"];
    for words in [&["-d", "rxe0"][..], &["--require-rdma"], &["-x", "3"]] {
        assert_fails(server.client("ping", words).args(["-n", "1"]), 3, &layer);
        assert_fails_as_json(server.client("blast", words).args(["-n", "1"]), 3, &layer);
    }
    for words in [&["-d", "rxe0"][..], &["--require-rdma"]] {
        assert_fails(&mut serve(words), 3, &layer);
    }
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn a_rail_that_is_no_rdma_is_not_taken_for_it() {
    let server = Server::start(&[]);
    let words = ["error: tcp is not RDMA", "--require-rdma"];
    assert_fails(&mut server.client("fill", &["-d", "tcp", "--require-rdma"]), 3, &words);
    assert_fails(&mut serve(&["-d", "tcp", "--require-rdma"]), 3, &words);
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn both_sides_run_on_the_cpus_that_were_named() {
    let server = Server::start(&[]);
    assert_eq!(server.run("ping", &["-n", "10", "--cpu", "0,0"]).code, Some(0));
    let words = ["error: cannot run on CPU 1023\n", "this host has no such CPU"];
    assert_fails(&mut server.client("ping", &["--cpu", "1023"]), 3, &words);
    let words = ["error: the server reports: cannot run on CPU 1023\n", "this host has no such CPU"];
    assert_fails(&mut server.client("bench", &["--cpu", ",1023"]), 3, &words);
}

/// Packets that would go unmarked are not sent.
#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn packets_cannot_be_marked_over_tcp() {
    let server = Server::start(&[]);
    for (flag, command) in [("--tclass", "ping"), ("--sl", "bench"), ("--tclass", "blast"), ("--sl", "fill")]
    {
        let words = [&*format!("error: {flag} cannot be set over tcp"), "cause: only RDMA devices"];
        assert_fails(&mut server.client(command, &[flag, "3"]), 3, &words);
    }
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn a_server_that_has_another_rail_says_which() {
    let server = Server::start(&["-d", "tcp"]);
    let words =
        ["error: the server has no rail for net", "cause: the server offers tcp", "farreach serve -d net"];
    assert_fails(&mut server.client("ping", &["-d", "net"]), 3, &words);
    assert_fails_as_json(&mut server.client("ping", &["-d", "net"]), 3, &words);
    // Nothing is named: what both have is taken.
    let ended = server.run("ping", &["-n", "10"]);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(ended.stdout.contains(" over tcp 127.0.0.1 (no RDMA): "), "{ended:#?}");
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn an_engine_of_the_library_is_no_server() {
    let engine = Engine::with(Settings::new().rails(["tcp"])).expect("tcp is here");
    let address = engine.listen("127.0.0.1:0").expect("a free port").to_string();
    for command in ["ping", "fill", "blast"] {
        let mut client = Command::new(FARREACH);
        let words = ["the program on this port uses the farreach library, not the command"];
        assert_fails(client.args([command, &address]), 4, &words);
    }
}

/// What the server says to a client of this version, to its end; it is not waited for.
fn greet_as(server: &Server, version: u16) -> Vec<u8> {
    let mut stream = TcpStream::connect(server.address()).expect("it listens");
    stream.set_read_timeout(Some(TOLD_WITHIN)).expect("a plain socket");
    stream.write_all(&[b"frcmd\n".as_slice(), &version.to_be_bytes()].concat()).expect("it reads");
    let (mut said, begun) = (Vec::new(), Instant::now());
    stream.read_to_end(&mut said).expect("it ends the conversation");
    assert!(begun.elapsed() < TOLD_WITHIN);
    said
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn a_client_of_another_version_is_told_and_logged() {
    let mut server = Server::start(&[]);
    for (version, older) in [(3, "client"), (5, "server")] {
        let said = greet_as(&server, version);
        assert_eq!(said, b"frcmd\n\x00\x04", "its own version, by which the client knows");
        let line = server.wait_for_log(&format!("upgrade the {older}"));
        let cause = format!("the client has protocol version {version}, this server has version 4");
        assert!(line.contains(&cause), "{line}");
    }
    assert_eq!(server.run("ping", &["-n", "10"]).code, Some(0), "the server goes on");
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn callers_that_are_no_clients_are_logged_and_keep_nobody_from_being_served() {
    let mut server = Server::start(&[]);
    let mut silent = TcpStream::connect(server.address()).expect("it listens");
    let mut web = TcpStream::connect(server.address()).expect("it listens");
    web.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("it reads");
    assert_eq!(server.run("ping", &["-n", "10"]).code, Some(0), "others are served meanwhile");
    server.wait_for_log("the program that connected does not use the farreach protocol");
    // The silent one is given up.
    silent.set_read_timeout(Some(TOLD_WITHIN)).expect("a plain socket");
    let mut said = Vec::new();
    silent.read_to_end(&mut said).expect("it ends the conversation");
    assert!(server.wait_for_log("sends nothing").contains("the other side is connected"));
}

/// More than this host has.
#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn memory_that_is_not_there_is_told() {
    // The server would refuse it otherwise.
    let server = Server::start(&["--memory-max", "4T"]);
    let words = ["for a region", "use fewer or smaller pages"];
    assert_fails(&mut server.client("fill", &["--page-size", "1G", "--pages", "500"]), 1, &words);
}
