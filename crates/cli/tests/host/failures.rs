//! What a client says where it finds no server, or something that is none: wherever it may run, with no library at all.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::without_libraries;
use crate::support::client::{Client, TOLD_WITHIN, assert_failed, assert_fails, assert_fails_as_json};
use crate::support::run::{FARREACH, end_of};

const CLIENTS: [&str; 4] = ["ping", "fill", "blast", "bench"];

fn client(command: &str, address: &str) -> Command {
    let mut client = Command::new(FARREACH);
    client.args([command, address]);
    client
}

/// Something that listens, and does this with whoever calls.
fn listener(channel: impl Fn(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it listens");
    // It ends with the test's process.
    thread::spawn(move || listener.incoming().flatten().for_each(channel));
    address
}

/// What a server of this version of the protocol begins with.
fn head(version: u16) -> Vec<u8> {
    [b"frcmd\n".as_slice(), &version.to_be_bytes()].concat()
}

#[test]
fn nothing_listens() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("it listens");
    let (cause, fix) =
        (format!("cause: nothing listens on {free}"), format!("farreach serve -p {}", free.port()));
    for command in CLIENTS {
        assert_fails(
            &mut client(command, &free.to_string()),
            4,
            &[&format!("error: cannot connect to {free}"), &cause, &fix],
        );
        assert_fails_as_json(&mut client(command, &free.to_string()), 4, &[&cause]);
    }
    // By its name, and by `-p`.
    let mut named = client("ping", "localhost");
    assert_fails(
        named.args(["-p", &free.port().to_string()]),
        4,
        &["connect to localhost:", "nothing listens on"],
    );
}

/// A rail that this host does not have is reported before any connection: here nothing listens.
#[test]
fn a_mistyped_rail_is_reported_without_a_server() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("it listens");
    for command in ["ping", "fill", "blast", "bench", "chip", "doctor"] {
        let mut client = client(command, &free.to_string());
        assert_fails(
            client.args(["-d", "tpc"]),
            3,
            &["error: this host has no rail tpc", "cause: ", "fix: "],
        );
    }
}

#[test]
fn a_name_is_not_known() {
    let words = [
        "connect to nobody.invalid:18520",
        "cause: cannot resolve the name nobody.invalid",
        "getent hosts nobody.invalid",
    ];
    assert_fails(&mut client("ping", "nobody.invalid"), 4, &words);
    assert_fails_as_json(&mut client("ping", "nobody.invalid"), 4, &words);
}

/// It is waited for, and not for long.
#[test]
fn a_listener_says_nothing() {
    let silent = listener(std::mem::forget).to_string();
    let clients = CLIENTS.map(|command| Client::start(&mut client(command, &silent)));
    for client in clients {
        let words = ["the other side is connected, but sends nothing", "check that it is `farreach serve`"];
        assert_failed(client.end_within(TOLD_WITHIN), 4, &words);
    }
}

/// Nobody has to wait until then.
#[test]
fn ctrl_c_ends_the_wait_for_a_silent_listener() {
    let (tell, told) = std::sync::mpsc::channel();
    let silent = listener(move |stream| tell.send(stream).expect("the test waits")).to_string();
    let client = Client::start(&mut client("ping", &silent));
    let _stream = told.recv_timeout(TOLD_WITHIN).expect("the client connects");
    let asked = Instant::now();
    client.signal("INT");
    let ended = client.end_within(TOLD_WITHIN);
    assert_eq!(ended.code, Some(130), "{ended:#?}");
    assert!(asked.elapsed() < Duration::from_secs(2), "after {:?}", asked.elapsed());
}

#[test]
fn a_listener_is_no_farreach() {
    let web = listener(|mut stream| {
        let _ = stream.read(&mut [0; 64]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
    });
    let ssh = listener(|mut stream| {
        let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n");
        std::mem::forget(stream);
    });
    for address in [web, ssh] {
        let words = [
            "error: the program on this port does not use the farreach protocol",
            "give the port that `farreach serve` printed",
        ];
        assert_fails(&mut client("ping", &address.to_string()), 4, &words);
        assert_fails_as_json(&mut client("fill", &address.to_string()), 4, &words[..1]);
    }
    let rude = listener(drop);
    let words = ["the other side closed the connection", "check the output and the log"];
    assert_fails(&mut client("blast", &rude.to_string()), 4, &words);
}

#[test]
fn a_listener_uses_the_library() {
    let engine = listener(|mut stream| {
        let _ = stream.write_all(b"farrch\x00\x01and more");
        std::mem::forget(stream);
    });
    let words = ["the program on this port uses the farreach library, not the command"];
    assert_fails(&mut client("ping", &engine.to_string()), 4, &words);
}

/// Which side is to be upgraded is told, and nothing more is said: the other one may not understand it.
#[test]
fn a_server_is_of_another_version() {
    for (version, told) in [(3, "upgrade the server"), (5, "upgrade the client")] {
        let server = listener(move |mut stream| {
            let _ = stream.write_all(&head(version));
            std::mem::forget(stream);
        });
        let cause = format!("the server has protocol version {version}, this client has version 4");
        for command in CLIENTS {
            assert_fails(
                &mut client(command, &server.to_string()),
                4,
                &[told, &cause, "install the same version of farreach"],
            );
        }
        assert_fails_as_json(&mut client("ping", &server.to_string()), 4, &[told]);
    }
}

/// A server with too many connections closes some of them: a client comes again, and not for ever.
#[test]
fn a_client_comes_again_when_its_connection_is_closed() {
    let refusal = br#"{"Err":{"error":"it is busy","cause":"7 clients are being served","fix":"wait","exit":"peer_lost"}}"#;
    let calls = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&calls);
    let server = listener(move |mut stream| {
        if count.fetch_add(1, Ordering::Relaxed) < 3 {
            return;
        }
        let refused = [&head(4), &(refusal.len() as u32).to_be_bytes()[..], refusal].concat();
        let _ = stream.write_all(&refused);
        std::mem::forget(stream);
    });
    let words = ["the server reports: it is busy", "7 clients are being served"];
    assert_fails(&mut client("ping", &server.to_string()), 4, &words);
    assert_eq!(calls.load(Ordering::Relaxed), 4);
    calls.store(u32::MAX / 2, Ordering::Relaxed);
    // A reason is final.
    assert_fails(&mut client("ping", &server.to_string()), 4, &words);
    assert_eq!(calls.load(Ordering::Relaxed), u32::MAX / 2 + 1);
}

/// What it says after its version is no welcome, or never ends.
#[test]
fn a_server_says_what_is_not_understood() {
    for said in [&b"\x00\x00\x00\x02{}"[..], b"\xff\xff\xff\xff", b"\x00\x00\x00\x04nonsense"] {
        let server = listener(move |mut stream| {
            let _ = stream.write_all(&[&head(4), said].concat());
            std::mem::forget(stream);
        });
        assert_fails(
            &mut client("ping", &server.to_string()),
            4,
            &["cannot parse a message from the other side", "install the same version of farreach"],
        );
    }
}

#[test]
fn wrong_usage_ends_with_2_and_says_what_would_do() {
    for (words, told) in [
        (&["ping", "here", "-s", "0"][..], "at least 1 byte"),
        (&["ping", "here", "-s", "2G"], "at most 1 GiB"),
        (&["ping", "here", "-s", "2M", "--op", "send"], "--op write"),
        (&["blast", "here", "-s", "2M", "--op", "send"], "at most 1 MiB"),
        (&["blast", "here", "--depth", "129", "--op", "send"], "1 to 128 messages"),
        (&["ping", "here", "-s", "8MB"], "8M"),
        (&["ping", "here", "-n", "0"], "1.."),
        (&["ping", "here", "-D", "0"], "not a number above 0"),
        (&["ping", "here", "-n", "1", "-D", "1"], "cannot be used with"),
        (&["ping", "here", "--op", "nonsense"], "possible values: send, write, read"),
        (&["ping", "here", "--wait", "nonsense"], "possible values: busy, event, adaptive"),
        (&["ping", "here", "--sl", "16"], "0..=15"),
        (&["ping", "here", "--tclass", "256"], "0..=255"),
        (&["ping"], "<PEER>"),
        (&["ping", "here:0"], "not a port"),
        (&["ping", "here", "-p", "0"], "1..=65535"),
        (&["blast", "here", "-n", "1", "-D", "1"], "cannot be used with"),
        (&["ping", "::1:2:3:x"], "brackets"),
        (&["fill", "here", "-s", "0"], "at least 1 byte"),
        (&["fill", "here", "-s", "1G", "-n", "1000000"], "the limit is 1.00 TiB"),
        (&["fill", "here", "--pages", "0"], "at least one page"),
        (&["fill", "here", "--pages", "4000000000"], "a region has at most"),
        (&["fill", "here", "--regions", "65"], "the number of regions is 1 to 64"),
        (&["blast", "here", "-s", "0"], "at least 1 byte"),
        (&["blast", "here", "-s", "4G"], "the limit is 4.00 GiB"),
        (&["blast", "here", "--depth", "0"], "1 to 4096"),
        (&["blast", "here", "-n", "0"], "1.."),
        (&["blast", "here", "-D", "soon"], "not a time"),
        (&["blast", "here", "-b", "-r"], "cannot be used with"),
        (&["serve", "-p", "70000"], "65535"),
        (&["serve", "-l", "nonsense"], "invalid IP address"),
    ] {
        let ended = end_of(Command::new(FARREACH).args(words));
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{words:?}: {ended:#?}");
        assert!(ended.stderr.contains(told), "{told:?} is not told of {words:?}: {ended:#?}");
    }
}

#[test]
fn a_server_without_any_library_says_what_to_install() {
    let mut serve = Command::new(FARREACH);
    serve
        .args(["serve", "-p", "0", "-l", "127.0.0.1", "-d", "tcp"])
        .env("LD_LIBRARY_PATH", without_libraries());
    assert_fails(&mut serve, 3, &["this host has no rail tcp", "libfabric.so.1", "libfabric1"]);
}

/// A reader who has gone is no error, and makes none good: `| true` has seen nothing of it.
#[test]
fn a_failure_stays_one_where_nobody_reads() {
    for words in [&["devices", "-d", "nonsense"][..], &["devices", "-d", "nonsense", "--json"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut devices = Command::new(FARREACH);
        devices.args(words).env("LD_LIBRARY_PATH", without_libraries());
        let status = devices.stdout(writer).status().expect("it starts");
        assert_eq!(status.code(), Some(3), "{words:?}");
    }
}

#[test]
fn a_port_is_in_use() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("it listens");
    let listening = TcpListener::bind(taken).expect("it was free just now");
    let port = taken.port().to_string();
    let mut serve = Command::new(FARREACH);
    serve.args(["serve", "-l", "127.0.0.1", "-p", &port]).env("LD_LIBRARY_PATH", without_libraries());
    // A port is looked at before the rails are, which take their time.
    assert_fails(
        &mut serve,
        1,
        &[&format!("listen on 127.0.0.1:{port}"), &format!("ss -tlnp sport = :{port}"), "-p"],
    );
    drop(listening);
}
