//! ping, fill and blast over libfabric's rails, as a user runs them.

use std::time::Duration;

use serde_json::Value;

use crate::support::client::TOLD_WITHIN;
use crate::support::run::{Ended, end_of};
use crate::support::schema;
use crate::support::server::Server;
use crate::support::trials::Rail;

/// The rail that needs no card, as reports name it. libfabric 1.17 calls its provider `net`; the user asked for `tcp`.
const TCP: &str = "tcp 127.0.0.1";

/// The rail that needs no card.
fn rail() -> Rail {
    Rail {
        server: Server::start(&["-l", "127.0.0.1"]),
        device: "tcp",
        names: [TCP; 2],
        is_rdma: false,
        trips: 50,
        pages: 64,
        messages: 100,
        is_slow: false,
    }
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn ping_measures_every_operation() {
    rail().pings();
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn ping_shows_a_histogram_waits_in_every_way_and_for_a_time() {
    let rail = rail();
    rail.pings_show_a_histogram();
    rail.pings_wait_in_every_way();
    rail.pings_for_a_time();
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn what_the_server_tells_is_of_its_own_time() {
    let rail = rail();
    rail.pings_tell_both_sides_of_the_same_time();
    rail.blasts_reckon_with_the_time_of_who_wrote();
}

/// Where a hundred round trips of a warm-up would keep a person waiting, there are fewer: of both sides, the one that counts skips as many.
#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn a_ping_of_large_messages_has_as_many_round_trips_as_were_asked_for() {
    let server = Server::start(&[]);
    for operation in ["write", "read"] {
        let ended = server.run("ping", &["-d", "tcp", "-s", "64M", "-n", "3", "--op", operation, "--json"]);
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        assert_eq!(ended.json()["rows"][0]["round_trips"], 3);
    }
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn fill_checks_every_byte() {
    let rail = rail();
    rail.fills();
    rail.fills_show_where_pages_went();
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn blast_goes_every_way() {
    let rail = rail();
    rail.blasts();
    rail.blasts_read_and_send();
    rail.blasts_for_a_time();
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn a_program_reads_a_line_of_json_for_each_interval_and_the_report() {
    let server = Server::start(&[]);
    let ended = server.run("blast", &["-d", "tcp", "-D", "1", "-s", "64K", "--json", "-i", "0.2"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:#?}");
    let mut lines: Vec<Value> =
        ended.stdout.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    schema::assert_valid("blast", &lines.pop().expect("the report is the last line"));
    assert!(lines.len() >= 2, "{ended:#?}");
    for (line, next) in lines.iter().zip(lines.iter().skip(1)) {
        schema::assert_valid("blast-interval", line);
        assert_eq!(line["end_ns"], next["start_ns"], "{ended:#?}");
    }
}

/// Nothing is named: without a card it is tcp, and why is told.
#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn the_best_rail_is_chosen_and_why_is_told() {
    let server = Server::start(&[]);
    let ended = server.run("ping", &["-n", "10", "-v"]);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(ended.stdout.contains(&format!(" over {TCP} (no RDMA): write round trips\n")), "{ended:#?}");
    let rail = format!("rail: {TCP} (no RDMA)");
    for words in ["server: ", &rail, "why: no active RDMA card on either side"] {
        assert!(ended.stderr.contains(words), "{words:?}: {ended:#?}");
    }
}

/// A reader who has had enough, as `| head -1` has.
#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn a_reader_who_has_gone_is_no_error() {
    let server = Server::start(&[]);
    for (command, words, code) in [
        ("ping", &["-n", "10"][..], 0),
        ("fill", &["--pages", "4"], 0),
        ("blast", &["-n", "4"], 0),
        ("ping", &["-n", "10", "--json"], 0),
        // What has failed has done so though nobody reads it.
        (
            "bench",
            &[
                "-d",
                "tcp",
                "--op",
                "write",
                "-s",
                "8",
                "--depths",
                "1",
                "-r",
                "1",
                "-D",
                "0.1",
                "--floor",
                "100000Gb/s",
                "--json",
            ],
            1,
        ),
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut client = server.client(command, words);
        let child = client.stdout(writer).stderr(std::process::Stdio::piped()).spawn().expect("it starts");
        drop(client);
        let ended = Ended::of(child.wait_with_output().expect("a child can be waited for"));
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(code), ""), "{command} {words:?}");
    }
    let line = format!("{} ping {} -n 10 | head -1", crate::support::run::FARREACH, server.address());
    let ended = end_of(std::process::Command::new("sh").args(["-c", &line]));
    assert_eq!(
        (ended.code, ended.stdout.lines().count(), ended.stderr.as_str()),
        (Some(0), 1, ""),
        "{ended:#?}"
    );
}

/// What `-D` would have taken.
const LONG: &str = "60";

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn ctrl_c_tells_what_was_measured_until_then() {
    let mut server = Server::start(&[]);
    for (command, words) in [("ping", &["-d", "tcp", "-D", LONG][..]), ("blast", &["-d", "tcp", "-D", LONG])]
    {
        let told = "interrupted: the figures cover the time until then";
        let ended = server.interrupt_once(command, words, |ended| ended.stdout.contains(told));
        assert_eq!(ended.code, Some(130), "{command} {words:?}: {ended:#?}");
        assert_eq!(ended.stdout.lines().last(), Some(told), "{ended:#?}");
    }
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn ctrl_c_reports_what_was_measured_until_then() {
    const TESTS: [(&str, &[&str]); 6] = [
        ("ping", &["-d", "tcp", "-D", LONG]),
        ("ping", &["-d", "tcp", "-D", LONG, "--op", "send", "-s", "8,64"]),
        ("ping", &["-d", "tcp", "-D", LONG, "--op", "read"]),
        ("blast", &["-d", "tcp", "-D", LONG]),
        ("blast", &["-d", "tcp", "-D", LONG, "-r"]),
        ("blast", &["-d", "tcp", "-D", LONG, "-b"]),
    ];
    let measured = |command: &str, report: &Value| match command {
        "ping" => report["rows"][0]["round_trips"].as_u64(),
        _ => ["to_server", "from_server"].iter().filter_map(|way| report[way]["messages"].as_u64()).max(),
    };
    let mut server = Server::start(&[]);
    for (command, words) in TESTS {
        let words = [words, &["--json"]].concat();
        let ended =
            server.interrupt_once(command, &words, |ended| measured(command, &ended.json()) > Some(0));
        let told = (ended.code, ended.stderr.as_str());
        assert_eq!(told, (Some(130), ""), "{command} {words:?}: {ended:#?}");
        let report = ended.json();
        schema::assert_valid(command, &report);
        assert_eq!(report["is_interrupted"], true);
        assert!(measured(command, &report) > Some(0), "nothing was measured: {report:#}");
    }
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn ctrl_c_in_a_fill_tells_that_nothing_is_verified() {
    let server = Server::start(&[]);
    let client = server.start_fill(&["-d", "tcp"]);
    client.signal("INT");
    let ended = client.end_within(TOLD_WITHIN);
    assert_eq!(ended.code, Some(130), "{ended:#?}");
    assert!(ended.stdout.contains("verified  no: the test was interrupted\n"), "{ended:#?}");
}

/// Before there is anything to tell, too: while the server makes its pages.
#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn ctrl_c_before_anything_was_measured_ends_it_too() {
    let mut server = Server::start(&[]);
    for json in [&[][..], &["--json"]] {
        let words = [&["--page-size", "1M", "--pages", "800", "--regions", "1"], json].concat();
        let ended = server.interrupt("fill", &words, Duration::from_millis(300));
        assert_eq!(ended.code, Some(130), "{ended:#?}");
        assert_eq!(ended.stderr, "error: interrupted before anything was measured\n");
        if !json.is_empty() {
            assert_eq!(ended.json()["exit_code"], 130);
        }
    }
}
