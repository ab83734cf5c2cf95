//! ping, fill and blast over libfabric's rails, as a user runs them.

use std::thread;
use std::time::{Duration, Instant};

use crate::support::client::TOLD_WITHIN;
use crate::support::run::{Ended, end_of};
use crate::support::schema;
use crate::support::server::Server;
use crate::support::trials::Rail;

/// The rails that need no card.
fn rails() -> [Rail; 2] {
    let rail = |device, name| Rail {
        server: Server::start(&["-l", "127.0.0.1"]),
        device,
        names: [name, name],
        is_rdma: false,
        trips: 200,
        pages: 64,
        messages: 100,
        is_slow: false,
    };
    // libfabric 1.17 calls it net.
    let library = farreach_fabric::Library::open().expect("libfabric is here");
    let tcp = if library.version().major < 2 { "net 127.0.0.1" } else { "tcp 127.0.0.1" };
    [rail("shm", "shm"), rail("tcp", tcp)]
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn ping_measures_every_operation() {
    rails().iter().for_each(Rail::pings);
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn ping_shows_a_histogram_waits_in_every_way_and_for_a_time() {
    for rail in rails() {
        rail.pings_show_a_histogram();
        rail.pings_wait_in_every_way();
        rail.pings_for_a_time();
    }
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn what_the_server_tells_is_of_its_own_time() {
    for rail in rails() {
        rail.pings_tell_both_sides_of_the_same_time();
        rail.blasts_reckon_with_the_time_of_who_wrote();
    }
}

/// A hundred round trips before the one that is asked for, where each takes so long, would keep a person waiting, and Ctrl-C too.
#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn the_warm_up_of_a_ping_is_short_whatever_the_size() {
    let server = Server::start(&[]);
    for operation in ["write", "read"] {
        let begun = Instant::now();
        let ended = server.run("ping", &["-d", "tcp", "-s", "64M", "-n", "3", "--op", operation, "--json"]);
        let took = begun.elapsed();
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        let row = &ended.json()["rows"][0];
        assert_eq!(row["round_trips"], 3);
        let trip = Duration::from_nanos(row["rtt"]["max_ns"].as_u64().expect("a time"));
        assert!(took < 100 * trip, "{operation}: {took:?}, where a round trip takes {trip:?}");
    }
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn fill_checks_every_byte() {
    for rail in rails() {
        rail.fills();
        rail.fills_show_where_pages_went();
    }
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn blast_goes_every_way() {
    for rail in rails() {
        rail.blasts();
        rail.blasts_for_a_time();
    }
}

/// Nothing is named: on one host it is shared memory, and why is told.
#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn the_best_rail_is_chosen_and_why_is_told() {
    let server = Server::start(&[]);
    let ended = server.run("ping", &["-n", "10", "-v"]);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(ended.stdout.contains(" over shm (no RDMA)\n"), "{ended:#?}");
    for words in ["server: ", "rail: shm (no RDMA), fi_shm://", "why: ", "and the server is on this host"] {
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
    const TESTS: [(&str, &[&str]); 6] = [
        ("ping", &["-D", LONG]),
        ("ping", &["-D", LONG, "--op", "send", "-s", "8,64"]),
        ("ping", &["-D", LONG, "--op", "read"]),
        ("blast", &["-D", LONG]),
        ("blast", &["-D", LONG, "-r"]),
        ("blast", &["-D", LONG, "-b"]),
    ];
    for device in ["shm", "tcp"] {
        let mut server = Server::start(&[]);
        let start = |format: &'static [&str]| {
            TESTS.map(|(command, words)| {
                server.start_client(command, &[&["-d", device], words, format].concat())
            })
        };
        let (texts, reports) = (start(&[]), start(&["--json"]));
        server.wait_for_logs(" from ", 2 * TESTS.len());
        thread::sleep(Duration::from_secs(3));
        texts.iter().chain(&reports).for_each(|client| client.signal("INT"));
        for ((command, words), (text, report)) in TESTS.iter().zip(texts.into_iter().zip(reports)) {
            let ended = text.end_within(TOLD_WITHIN);
            assert_eq!(ended.code, Some(130), "{command} {words:?}: {ended:#?}");
            let last = ended.stdout.lines().last();
            assert_eq!(last, Some("interrupted: this is what was measured until then"), "{ended:#?}");
            let ended = report.end_within(TOLD_WITHIN);
            assert_eq!(
                (ended.code, ended.stderr.as_str()),
                (Some(130), ""),
                "{command} {words:?}: {ended:#?}"
            );
            let report = ended.json();
            schema::assert_valid(command, &report);
            assert_eq!(report["is_interrupted"], true);
            let measured = match *command {
                "ping" => report["rows"][0]["round_trips"].as_u64(),
                _ => ["to_server", "from_server"]
                    .iter()
                    .filter_map(|way| report[way]["messages"].as_u64())
                    .max(),
            };
            assert!(measured > Some(0), "nothing was measured: {report:#}");
        }
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
    assert!(ended.stdout.contains("verified  nothing: it was interrupted\n"), "{ended:#?}");
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
