//! What clients may use of a server: those that lie, that are slow, that are too many, or that stop.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};
use serde_json::{Value, json};

use crate::support::client::{TOLD_WITHIN, assert_failed, assert_fails};
use crate::support::crowd::clients;
use crate::support::raw::{Answer, HEAD, Raw, framed, order, order_with};
use crate::support::server::{PATIENCE, Server};

fn ping(server: &Server) {
    let ended = server.run("ping", &["-d", "tcp", "-n", "10"]);
    assert_eq!(ended.code, Some(0), "{ended:#?}, {:#?}", server.log());
}

fn refused(error: &str, exit: &str) -> Answer {
    Answer::Refused(error.to_owned(), exit.to_owned())
}

/// Waits until something is so.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// One such order took 1.3 GB, and another made the agent panic.
#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn an_order_beyond_a_bound_is_refused_before_an_agent_is_started() {
    let mut server = Server::start(&["-d", "tcp"]);
    let memory = server.memory_kib();
    for (place, number, told) in [
        ("/engine/message_bytes_max", (1 << 20) + 1, "message size in bytes"),
        ("/engine/message_bytes_max", 4 << 20, "message size in bytes"),
        ("/engine/message_bytes_max", 1 << 62, "message size in bytes"),
        ("/engine/message_bytes_max", u64::MAX, "message size in bytes"),
        ("/engine/messages", 257, "number of message slots"),
        ("/engine/messages", 4_000_000_000, "number of message slots"),
        ("/engine/depth", 4097, "depth"),
        ("/engine/depth", 1_000_000_000_000, "depth"),
        ("/engine/depth", 0, "depth"),
        ("/connections", 257, "number of connections"),
        ("/task/Ping/sizes/0", 1 << 62, "size in bytes"),
    ] {
        let answer = Raw::order(&server, &order_with(place, number)).answer();
        assert_eq!(answer, refused(&format!("the order has a {told} of {number}"), "usage"), "{place}");
    }
    for (what, order) in [
        ("numbers that are none", order_with("/engine/depth", -1)),
        ("an unknown command", order_with("/task", json!({ "Shell": "id" }))),
        ("nothing", Value::Null),
        ("a deep list", serde_json::from_str(&("[".repeat(100) + &"]".repeat(100))).expect("a list")),
    ] {
        let answer = Raw::order(&server, &order).answer();
        assert_eq!(answer, refused("cannot parse a message from the other side", "peer_lost"), "{what}");
    }
    let no_rail = json!({ "cards": true, "providers": ["efa"] });
    let answer = Raw::order(&server, &order_with("/rails", no_rail)).answer();
    assert_eq!(answer, refused("the order names no rail of the server", "unavailable"));
    assert_eq!((server.agents(), server.count_log(" over tcp")), (0, 0));
    assert!(server.memory_kib() < memory + 8192, "{memory} KiB became {}", server.memory_kib());
    // At the limit an agent has it, and is ready for the client's engine.
    for (place, number) in
        [("/engine/message_bytes_max", 1_u64 << 20), ("/engine/messages", 256), ("/engine/depth", 4096)]
    {
        let mut client = Raw::order(&server, &order_with(place, number));
        assert_eq!(client.answer(), Answer::Served, "{place}");
        assert_eq!(client.message(), Some(json!({ "Ok": null })), "{place}: {:#?}", server.log());
    }
    server.wait_for_no_agent();
    ping(&server);
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn an_order_longer_than_the_limit_is_not_read() {
    const ORDER_BYTES_MAX: usize = 16 * 1024;
    let server = Server::start(&["-d", "tcp"]);
    for announced in [ORDER_BYTES_MAX as u32 + 1, u32::MAX] {
        let mut client = Raw::connect(&server);
        client.send(&[HEAD, &announced.to_be_bytes()].concat()).expect("it reads");
        assert_eq!(client.answer(), refused("cannot parse a message from the other side", "peer_lost"));
    }
    // White space behind an order belongs to it.
    let mut longest = order().to_string().into_bytes();
    longest.resize(ORDER_BYTES_MAX, b' ');
    let mut client = Raw::connect(&server);
    client.send(&[HEAD, &(longest.len() as u32).to_be_bytes(), &longest].concat()).expect("it reads");
    assert_eq!(client.answer(), Answer::Served);
}

/// A client cannot write lines of its own into the server's log.
#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn a_name_of_a_client_stays_in_its_line_of_the_log() {
    let mut server = Server::start(&["-d", "tcp"]);
    let mut order = order_with("/host", "x\n2026-01-01T00:00:00.000Z forged\x1b[2J");
    order["task"] = json!({ "Doctor": "Look" });
    let mut client = Raw::order(&server, &order);
    assert_eq!(client.answer(), Answer::Served);
    let line = server.wait_for_log("doctor from x");
    assert!(line.contains("forged") && !line.contains('\x1b'), "{line:?}");
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn a_test_that_needs_too_much_memory_is_refused() {
    let server = Server::start(&["--memory-max", "256M"]);
    let fill = |pages: &str| server.client("fill", &["-d", "tcp", "-s", "1M", "--regions", "1", "-n", pages]);
    let words = [
        "error: the server reports: the order needs ",
        "of the server's memory\n",
        "cause: the server allows one client 192 MiB",
        "--memory-max",
    ];
    assert_fails(&mut fill("160"), 3, &words);
    assert_eq!(fill("100").status().expect("it runs").code(), Some(0), "{:#?}", server.log());
}

/// Memory is shared like the places: who needs more than is free waits.
#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn clients_wait_for_memory() {
    let server = Server::start(&["-d", "tcp", "--memory-max", "512M"]);
    // 5 × 40 MiB, and what an agent has anyway: one fits the share of an address, two do not.
    let large = order_with("/task/Ping/sizes/0", 40 << 20);
    let mut first = Raw::order(&server, &large);
    assert_eq!(first.answer(), Answer::Served);
    let mut second = Raw::order(&server, &large);
    assert!(second.welcome().is_some());
    assert_eq!(second.notice(), Answer::Waiting);
    // A small one is not kept waiting by a large one.
    ping(&server);
    drop(first);
    assert_eq!(second.after_waiting(), Answer::Served);
}

/// 300 such connections held every place of a server: each byte gave them more time.
#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn a_byte_at_a_time_does_not_extend_the_handshake() {
    let mut server = Server::start(&["--handshake-time", "2", "--clients-max", "2"]);
    let bytes = [HEAD, &framed(&order())].concat();
    let began = Instant::now();
    let mut slow: Vec<Raw> = (0..16).map(|_| Raw::connect(&server)).collect();
    let (mut sent, mut pinged) = (0, 0);
    while !slow.is_empty() {
        assert!(began.elapsed() < PATIENCE && sent < bytes.len(), "{} are open", slow.len());
        // One that is closed may not have noticed it yet.
        slow.retain_mut(|client| client.send(&bytes[sent..=sent]).is_ok() && !client.is_closed());
        sent += 1;
        if sent.is_multiple_of(8) && pinged < 3 {
            ping(&server);
            pinged += 1;
        }
        thread::sleep(Duration::from_millis(100));
    }
    assert!(pinged > 0 && began.elapsed() >= Duration::from_secs(2));
    server.wait_for_logs("no order came within 2 s", 16);
    assert_eq!(server.agents(), 0);
}

/// 2,000 of them kept a server from serving anybody.
#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn the_oldest_connections_without_an_order_are_closed_first() {
    let server = Server::start(&["--handshakes-max", "8", "--handshake-time", "600"]);
    // One address may have three quarters.
    let mut idle: Vec<Raw> = (0..6).map(|_| Raw::connect(&server)).collect();
    ping_look(&server);
    assert!(idle[1..].iter_mut().all(|client| !client.is_closed()), "the look is one of six");
    idle.push(Raw::connect(&server));
    idle.push(Raw::connect(&server));
    for (number, client) in idle.iter_mut().take(2).enumerate() {
        eventually(&format!("the oldest stays: {number}"), || client.is_closed());
    }
    assert!(idle[2..].iter_mut().all(|client| !client.is_closed()));
    // Many more, and clients among them. Those that are closed are told why.
    for _ in 0..10 {
        idle.extend((0..20).map(|_| Raw::connect(&server)));
        ping(&server);
    }
    let welcome = idle[10].welcome().expect("the reason is told");
    let error = welcome["Err"]["error"].as_str().unwrap_or_default();
    assert_eq!(error, "it has too many connections without an order");
    let open = idle.iter_mut().filter_map(|client| (!client.is_closed()).then_some(())).count();
    assert!(open <= 6, "{open} are open");
}

/// Connects, reads the welcome, and leaves, as clients do before they open their rails.
fn ping_look(server: &Server) {
    let mut look = Raw::connect(server);
    look.send(HEAD).expect("it reads");
    assert!(look.welcome().is_some_and(|welcome| welcome.get("Ok").is_some()));
    // It counts until the server has seen its end.
    look.shut_down();
    eventually("the server sees the end of a look", || look.is_closed());
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn a_client_waits_for_its_place_and_says_so() {
    let mut server = Server::start(&["--clients-max", "1"]);
    let first = server.start_served("ping", &["-D", "300"]);
    let mut second = server.start_client("ping", &["-d", "tcp", "-n", "10"]);
    second.wait_for("waiting: the server is busy: 1 client is being served, 0 clients are ahead", PATIENCE);
    let third = server.start_client("fill", &["-d", "tcp", "--pages", "8"]);
    assert_eq!(server.agents(), 1);
    first.signal("INT");
    assert_eq!(first.end_within(TOLD_WITHIN).code, Some(130));
    for client in [second, third] {
        let ended = client.end_within(PATIENCE);
        assert_eq!(ended.code, Some(0), "{ended:#?}, {:#?}", server.log());
    }
    assert_eq!(server.count_log("refused"), 0);
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn a_full_queue_and_a_long_wait_are_told() {
    let mut server = Server::start(&["--clients-max", "1", "--queue-max", "2", "--queue-time", "4"]);
    let served = server.start_served("ping", &["-D", "300"]);
    let began = Instant::now();
    let mut waiting: Vec<Raw> = (0..2).map(|_| Raw::order(&server, &order())).collect();
    for client in &mut waiting {
        assert!(client.welcome().is_some());
        assert_eq!(client.notice(), Answer::Waiting, "at the limit");
    }
    let words = [
        "error: the server reports: it is busy\n",
        "cause: 1 client is being served, 2 wait; the limit is 2 in the queue",
        "--queue-max",
    ];
    assert_fails(&mut server.client("ping", &["-d", "tcp"]), 4, &words);
    // The places in the queue are free after a while.
    for mut client in waiting {
        assert_eq!(client.after_waiting(), refused("it is busy", "peer_lost"));
    }
    assert!(began.elapsed() >= Duration::from_secs(4));
    let late = server.start_client("ping", &["-d", "tcp"]);
    let words = ["the server reports: it is busy", "no place became free within 4 s", "--queue-time"];
    assert_failed(late.end_within(PATIENCE), 4, &words);
    // One that leaves the queue makes room, too.
    for _ in 0..4 {
        let mut leaves = Raw::order(&server, &order());
        assert!(leaves.welcome().is_some());
        assert_eq!(leaves.notice(), Answer::Waiting);
        drop(leaves);
    }
    server.wait_for_logs("the client left the queue", 4);
    // One that sends something while it waits is no client.
    let mut talks = Raw::order(&server, &order());
    assert!(talks.welcome().is_some());
    assert_eq!(talks.notice(), Answer::Waiting);
    talks.send(&[0; 4096]).expect("it is connected");
    eventually("it stays in the queue", || talks.is_closed());
    let mut next = Raw::order(&server, &order());
    assert!(next.welcome().is_some());
    assert_eq!(next.notice(), Answer::Waiting);
    served.signal("INT");
    assert_eq!(next.after_waiting(), Answer::Served);
}

/// Each would wait for the other if they began with half of their connections.
#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn tests_of_several_connections_do_not_wait_for_each_other() {
    let server = Server::start(&["--clients-max", "2", "--queue-time", "120"]);
    let words = ["-d", "tcp", "--op", "read", "-s", "8", "--depths", "1", "-D", "0.05", "--queues", "2"];
    let benches: Vec<_> = (0..6).map(|_| server.start_client("bench", &words)).collect();
    for bench in benches {
        let ended = bench.end_within(PATIENCE);
        assert_eq!(ended.code, Some(0), "{ended:#?}, {:#?}", server.log());
    }
    // One whose second connection never comes is told so, and blocks nobody.
    let server = Server::start(&["--clients-max", "2", "--handshake-time", "2"]);
    let mut alone = Raw::order(&server, &order_with("/connections", 2));
    ping(&server);
    assert_eq!(alone.answer(), refused("the test is incomplete", "peer_lost"));
}

/// 200 at once were 162 served and 38 not.
#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn clients_that_come_at_once_are_all_served() {
    let server = Server::start(&[]);
    let began = Instant::now();
    let all: Vec<_> =
        (0..clients(32)).map(|_| server.start_client("ping", &["-d", "tcp", "-n", "100"])).collect();
    let mut last = Duration::ZERO;
    for client in all {
        let ended = client.end_within(PATIENCE);
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        last = began.elapsed();
    }
    eprintln!("{} clients at once: all were served within {last:.1?}", clients(32));
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn an_agent_is_limited_by_its_order() {
    let mut server = Server::start(&[]);
    let client = server.start_served("ping", &["-d", "tcp", "-D", "300"]);
    let agent = server.agent_ids()[0];
    let limits = fs::read_to_string(format!("/proc/{agent}/limits")).expect("the agent runs");
    let limit = |name: &str| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name)).expect(name);
        let hard = line.split_whitespace().nth(1).expect("a hard limit").to_owned();
        hard.parse::<u64>().unwrap_or_else(|_| panic!("{name} is {hard}"))
    };
    let data = limit("Max data size");
    assert!((1 << 30..(1 << 30) + (128 << 20)).contains(&data), "{data}, which is twice its order and 1 GiB");
    assert_eq!((limit("Max core file size"), limit("Max open files")), (0, 2048));
    let adjusted = fs::read_to_string(format!("/proc/{agent}/oom_score_adj")).expect("the agent runs");
    assert_eq!(adjusted.trim(), "500");
    let stat = fs::read_to_string(format!("/proc/{agent}/stat")).expect("the agent runs");
    let session =
        stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(3).map(str::to_owned));
    assert_eq!(session, Some(agent.to_string()), "a session of its own: {stat}");
    client.kill();
    server.wait_for_no_agent();
}

/// Nobody else would end it: it cannot notice that its client is gone.
#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn a_stopped_agent_is_ended_when_its_client_is_gone() {
    let mut server = Server::start(&[]);
    let client = server.start_served("ping", &["-d", "tcp", "-D", "300"]);
    server.signal_agents("STOP");
    assert_failed(client.end_within(TOLD_WITHIN), 4, &["error: the peer is lost\n"]);
    let line = server.wait_for_log("the agent was killed");
    assert!(line.ends_with("its client was gone for 13 s, and it did not end"), "{line}");
    server.wait_for_no_agent();
    ping(&server);
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn no_agent_and_no_file_stays_behind_a_server() {
    for (signal, is_stopped) in [("TERM", false), ("TERM", true), ("KILL", false), ("KILL", true)] {
        let mut server = Server::start(&[]);
        let clients: Vec<_> =
            (0..3).map(|_| server.start_served("ping", &["-d", "tcp", "-D", "300"])).collect();
        let mut waiting = Raw::order(&server, &order_with("/connections", 2));
        let agents = server.agent_ids();
        assert_eq!(agents.len(), 3);
        if is_stopped {
            server.signal_agents("STOP");
        }
        server.end(signal, Duration::from_secs(15));
        for agent in agents {
            let is_gone = || fs::read_to_string(format!("/proc/{agent}/stat")).is_err();
            eventually(&format!("{signal}, stopped {is_stopped}: agent {agent} stays"), is_gone);
        }
        drop(clients);
        let told = waiting.answer();
        match signal {
            "TERM" => assert_eq!(told, refused("the server was stopped", "peer_lost")),
            _ => assert_eq!(told, Answer::Closed),
        }
    }
    let files: Vec<_> = fs::read_dir("/dev/shm").expect("every host has it").flatten().collect();
    assert!(files.is_empty(), "{files:?}");
}

/// Lets this process open so many connections.
fn raise_descriptors(count: u64) {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < count) {
        let raised = Rlimit { current: Some(count), maximum: limit.maximum };
        setrlimit(Resource::Nofile, raised).expect("the hard limit is higher");
    }
}

/// Newcomers got no answer at all.
#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn a_server_without_descriptors_says_so() {
    raise_descriptors(4096);
    let server = Server::start_within("ulimit -n 1024", &["--clients-max", "4", "--handshake-time", "600"]);
    let idle: Vec<Raw> = (0..1100).map(|_| Raw::connect(&server)).collect();
    ping(&server);
    assert!(server.descriptors() < 1024 - 16, "{} descriptors", server.descriptors());
    drop(idle);
    // Clients with an order take the rest: four are served, others wait, and the last are refused.
    let mut clients: Vec<Raw> = (0..1100).map(|_| Raw::order(&server, &order())).collect();
    let mut answers = Vec::new();
    for client in &mut clients {
        assert!(
            client.welcome().is_some_and(|welcome| welcome.get("Ok").is_some()),
            "every client is welcome"
        );
        answers.push(match client.notice() {
            Answer::Waiting => "waiting".to_owned(),
            Answer::Refused(error, _) => error,
            other => panic!("{other:?}"),
        });
    }
    let count = |words: &str| answers.iter().filter(|answer| *answer == words).count();
    let (waiting, refused) = (count("waiting"), count("this server has no free descriptors"));
    assert_eq!(waiting + refused, 1100, "{answers:?}");
    assert!(waiting > 300 && refused > 100, "{waiting} wait, {refused} are refused");
    assert!(server.descriptors() < 1024 - 16, "{} descriptors", server.descriptors());
    drop(clients);
    eventually("the queue stays", || server.run("ping", &["-d", "tcp", "-n", "10"]).code == Some(0));
    // Another limit than that it began with, or of the whole host, takes it by surprise.
    let limit = |count| Rlimit { current: Some(count), maximum: Some(1024) };
    let id = Pid::from_raw(server.id() as i32);
    // The limit is one of numbers, and the lowest free one is used next. Descriptors of the last client
    // are closed first.
    let free = || (0..).find(|number| !server.has_descriptor(*number)).unwrap_or_default();
    let mut lowest = free();
    eventually("descriptors are closed", || {
        thread::sleep(Duration::from_millis(100));
        lowest == std::mem::replace(&mut lowest, free())
    });
    let few = prlimit(id, Resource::Nofile, limit(lowest)).expect("our own process");
    let mut refused = Raw::connect(&server);
    let told = refused.welcome().expect("an answer");
    assert_eq!(told["Err"]["error"], "this server has no free descriptors", "{told:#}");
    prlimit(id, Resource::Nofile, few).expect("our own process");
    ping(&server);
}
