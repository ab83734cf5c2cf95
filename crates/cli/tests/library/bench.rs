//! `farreach bench` over libfabric's rails: every form of its result, floors, and an earlier run.

use std::fs;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::run::Ended;
use crate::support::schema;
use crate::support::server::Server;

/// Short, and more than once.
const SHORT: [&str; 6] = ["-D", "0.05", "-r", "2", "--warm-up", "0.01"];

fn bench(server: &Server, words: &[&str]) -> Ended {
    server.run("bench", &[&SHORT, words].concat())
}

fn rows(report: &Value) -> Vec<(String, u64, u64, u64)> {
    let number = |row: &Value, name: &str| row[name].as_u64().unwrap_or_else(|| panic!("{name}: {row:#}"));
    let rows = report["rows"].as_array().expect("rows are a list").iter();
    rows.map(|row| {
        let operation = row["operation"].as_str().expect("its name").to_owned();
        (operation, number(row, "size_bytes"), number(row, "depth"), number(row, "queues"))
    })
    .collect()
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn every_row_that_was_asked_for_is_measured_with_its_spread() {
    let server = Server::start(&[]);
    let operations = "send,write,write-imm,read";
    let ended = bench(&server, &["--op", operations, "-s", "8,4K", "--depths", "1,8", "--json"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:#?}");
    let report = ended.json();
    schema::assert_valid("bench", &report);
    let mut expected = Vec::new();
    for operation in operations.split(',') {
        for depth in [1, 8] {
            expected.extend([8, 4096].map(|size| (operation.to_owned(), size, depth, 1)));
        }
    }
    assert_eq!(rows(&report), expected);
    for row in report["rows"].as_array().expect("rows are a list") {
        assert_eq!(row["repetitions"].as_array().map(Vec::len), Some(2), "{row:#}");
        let figure = |of: &str| row[of]["operations_per_second"].as_f64().expect("a rate");
        let spread = |of: &str| row["spread"][of]["operations_per_second"].as_f64().expect("a rate");
        assert!(
            spread("min") > 0.0 && spread("min") <= figure("median") && figure("median") <= spread("max"),
            "{row:#}"
        );
        assert!(row["median"]["cpu_peer_ns_per_operation"].as_f64() >= Some(0.0), "{row:#}");
        assert!(row["median"]["latency_p50_ns"].as_u64() > Some(0), "{row:#}");
    }
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn several_connections_are_used_at_once() {
    let mut server = Server::start(&[]);
    let ended = bench(
        &server,
        &["-d", "tcp", "--op", "write", "-s", "64", "--depths", "4", "--queues", "1,3", "--json"],
    );
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let write = |queues| ("write".to_owned(), 64, 4, queues);
    assert_eq!(rows(&ended.json()), [write(1), write(3)]);
    server.wait_for_log("bench finished");
    let served = server.log().iter().filter(|line| line.contains("bench from")).count();
    assert_eq!(served, 4, "{:#?}", server.log());
}

/// As many operations are under way as were asked for: the rate times the mean time of each is how many there are (Little's law). The report
/// has the median, which is far below the mean where the host is busy with something else: eight under way were seen as 3.7 of them,
/// as the best of five, with thirty processes on two cores. So the best of several counts, and half is enough; one after the other was seen as
/// 1.08 at most. The unit test of the client counts exactly.
#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn every_connection_has_its_depth_under_way() {
    const QUEUES: u32 = 8;
    let (server, queues) = (Server::start(&[]), QUEUES.to_string());
    let words = ["--op", "write", "-s", "8", "--depths", "1", "--queues", &queues];
    let ended = server.run("bench", &[&words[..], &["-D", "0.2", "-r", "15", "--json"]].concat());
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let report = ended.json();
    let repetitions = report["rows"][0]["repetitions"].as_array().expect("repetitions are a list");
    let under_way = |repetition: &Value| {
        let figure = |name: &str| repetition[name].as_f64().unwrap_or_else(|| panic!("{name}: {report:#}"));
        figure("operations_per_second") * figure("latency_p50_ns") / 1e9
    };
    let most = repetitions.iter().map(under_way).fold(0.0, f64::max);
    assert!(most >= f64::from(QUEUES) / 2.0, "{most} of {QUEUES} are under way: {report:#}");
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn people_read_a_table_and_programs_csv_and_pictures() {
    let (server, folder) = (Server::start(&[]), TempDir::new().expect("a temporary folder"));
    let picture = folder.path().join("rates.svg");
    let words = ["-d", "tcp", "--op", "read", "-s", "8,4K", "--depths", "1", "--svg"];
    let table = bench(&server, &[&words[..], &[picture.to_str().expect("a plain name")]].concat());
    assert_eq!((table.code, table.stderr.as_str()), (Some(0), ""), "{table:#?}");
    let first = table.stdout.lines().next().expect("it says what was measured");
    assert!(first.contains("(no RDMA): read, depth 1, 1 queue, median of 2"), "{first}");
    for size in ["read    8 B", "read  4 KiB"] {
        assert!(table.stdout.lines().any(|line| line.starts_with(size)), "{size}:\n{}", table.stdout);
    }
    let picture = fs::read_to_string(picture).expect("the picture");
    assert!(picture.starts_with("<svg") && picture.contains("Throughput"), "{picture}");

    let csv = bench(&server, &["-d", "tcp", "--op", "read", "-s", "8,4K", "--depths", "1", "--csv"]).stdout;
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 3, "{csv}");
    let columns: Vec<usize> = lines.iter().map(|line| line.split(',').count()).collect();
    assert!(columns[0] > 10 && columns.iter().all(|count| *count == columns[0]), "{csv}");
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn a_floor_is_held_or_not_and_an_earlier_run_is_compared_with() {
    let (server, folder) = (Server::start(&[]), TempDir::new().expect("a temporary folder"));
    let words = ["-d", "tcp", "--op", "read", "-s", "4K", "--depths", "1"];
    let base = folder.path().join("base.json");
    let base = base.to_str().expect("a plain name");
    fs::write(base, bench(&server, &[&words[..], &["--json"]].concat()).stdout).expect("a file of our own");

    let held =
        bench(&server, &[&words[..], &["--floor", &format!("1%of={base}"), "--against", base]].concat());
    assert_eq!(held.code, Some(0), "{held:#?}");
    assert!(held.stdout.contains("×old") && held.stdout.contains("passed  floor 1 %"), "{}", held.stdout);

    for floor in ["900Tb/s", "1ns"] {
        let failed = bench(&server, &[&words[..], &["--floor", floor]].concat());
        assert_eq!(failed.code, Some(1), "{floor}: {failed:#?}");
        assert!(failed.stdout.contains("FAILED"), "{}", failed.stdout);
    }
    let json = bench(&server, &[&words[..], &["--floor", "900Tb/s", "--json"]].concat());
    assert_eq!(json.code, Some(1), "JSON makes no failure a success: {json:#?}");
    assert_eq!(json.json()["verdicts"][0]["outcome"], "failed");

    // One that was not measured this time is as bad as a slow one.
    let fewer = ["-d", "tcp", "--op", "read", "-s", "8", "--depths", "1", "--floor", &format!("1%of={base}")];
    assert_eq!(bench(&server, &fewer).code, Some(1));
    let unreadable = bench(&server, &[&words[..], &["--against", "/nowhere.json"]].concat());
    assert!(
        unreadable.code == Some(1) && unreadable.stderr.contains("cannot read /nowhere.json"),
        "{unreadable:#?}"
    );
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn what_a_rail_lacks_is_told_and_the_rest_is_measured() {
    const NEEDS: &str = "it needs an RDMA device";
    let server = Server::start(&[]);
    for (operation, why) in [
        ("cas", "has atomic operations"),
        ("atomic-write", NEEDS),
        ("flush", NEEDS),
        ("raw-write", NEEDS),
        ("raw-read", NEEDS),
        ("raw-send", NEEDS),
    ] {
        let ended =
            bench(&server, &["-d", "tcp", "--op", &format!("{operation},read"), "-s", "64", "--depths", "1"]);
        assert_eq!(ended.code, Some(3), "{operation}: {ended:#?}");
        let told = format!("error: {operation} was not measured");
        assert!(ended.stderr.contains(&told) && ended.stderr.contains("fix: "), "{ended:#?}");
        assert!(ended.stderr.contains(why), "{ended:#?}");
        assert!(ended.stdout.contains("op/s"), "{}", ended.stdout);
    }
}

/// Twelve rows of a second each, and a time that is among them, however slow the machine is.
const SIZES: &str = "8,16,24,32,40,48,56,64,72,80,88,96";
const AMONG_THEM: Duration = Duration::from_secs(4);

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn who_has_enough_is_told_what_was_measured() {
    let mut server = Server::start(&[]);
    let words = ["-d", "tcp", "--op", "read", "-s", SIZES, "--depths", "1", "-D", "1", "-r", "1", "--json"];
    let ended = server.interrupt("bench", &words, AMONG_THEM);
    assert_eq!(ended.code, Some(130), "{ended:#?}");
    let report = ended.json();
    assert_eq!(report["is_interrupted"], true);
    let measured = rows(&report).len();
    assert!((1..12).contains(&measured), "{measured} rows of 12: {report:#}");
}

/// The next session is not opened any more, and what the first one has measured is told.
#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn who_has_enough_in_the_first_of_two_sessions_is_told_what_was_measured() {
    let mut server = Server::start(&[]);
    let words = ["-d", "tcp", "--op", "read", "-s", SIZES, "--depths", "1", "--queues", "1,2"];
    let words = [&words[..], &["-D", "1", "-r", "1"]].concat();
    let ended = server.interrupt("bench", &[&words[..], &["--json"]].concat(), AMONG_THEM);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(130), ""), "{ended:#?}");
    let report = ended.json();
    schema::assert_valid("bench", &report);
    assert_eq!(report["is_interrupted"], true);
    let measured = rows(&report).len();
    assert!((1..12).contains(&measured), "{measured} rows of 24: {report:#}");

    let ended = server.interrupt("bench", &[&words[..], &["--csv"]].concat(), AMONG_THEM);
    assert_eq!(ended.code, Some(130), "{ended:#?}");
    assert!(ended.stdout.lines().count() > 1, "{ended:#?}");
    assert!(ended.stderr.contains("Interrupted: "), "{ended:#?}");
}

/// A session that cannot be opened takes nothing away from the one before.
#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn a_later_session_that_fails_leaves_what_was_measured() {
    let server = || Server::start(&["--clients-max", "2"]);
    let words = ["-d", "tcp", "--op", "read", "-s", "8", "--depths", "1", "--queues", "1,3"];
    let ended = bench(&server(), &[&words[..], &["--json"]].concat());
    assert_eq!(ended.code, Some(4), "{ended:#?}");
    let report = ended.json();
    schema::assert_valid("bench", &report);
    assert_eq!(rows(&report), [("read".to_owned(), 8, 1, 1)]);
    let error = report["error"]["error"].as_str().expect("an error is told");
    assert!(ended.stderr.contains(&format!("error: {error}\n")), "{ended:#?}");
    let ended = bench(&server(), &words);
    assert_eq!(ended.code, Some(4), "{ended:#?}");
    assert!(ended.stdout.contains("op/s") && ended.stderr.contains(error), "{ended:#?}");
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn what_cannot_be_is_told_before_anything_is_measured() {
    let server = Server::start(&[]);
    let folder = TempDir::new().expect("a temporary folder");
    let file = |name: &str| folder.path().join(name).to_str().expect("a plain name").to_owned();
    for (code, words, told) in [
        (1, vec!["--svg", "/nowhere/x.svg"], "cannot write /nowhere/x.svg"),
        (2, vec!["--op", "write,flush", "-s", "4..64"], "FLUSH to global visibility of 4 bytes"),
    ] {
        let ended = bench(&server, &[&["-d", "tcp"], &words[..]].concat());
        let ended = crate::support::client::assert_failed(ended, code, &[told]);
        assert_eq!((ended.stdout.as_str(), server.count_log("bench from")), ("", 0), "{ended:#?}");
    }
    // An earlier picture outlives a measurement that fails, and none is left where there was none.
    let (old, new) = (file("old.svg"), file("new.svg"));
    fs::write(&old, "a picture").expect("a file of our own");
    for picture in [&old, &new] {
        assert_eq!(bench(&server, &["-d", "nothing", "--svg", picture]).code, Some(3));
    }
    assert_eq!(fs::read_to_string(&old).expect("a file of our own"), "a picture");
    assert!(!fs::exists(&new).expect("a folder of our own"));
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn csv_leaves_the_verdict_and_the_comparison_to_stderr() {
    let (server, folder) = (Server::start(&[]), TempDir::new().expect("a temporary folder"));
    let words = ["-d", "tcp", "--op", "read", "-s", "4K", "--depths", "1"];
    let base = folder.path().join("base.json");
    let base = base.to_str().expect("a plain name");
    fs::write(base, bench(&server, &[&words[..], &["--json"]].concat()).stdout).expect("a file of our own");
    let ended = bench(&server, &[&words[..], &["--csv", "--against", base, "--floor", "900Tb/s"]].concat());
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    assert_eq!(ended.stdout.lines().count(), 2, "{}", ended.stdout);
    for told in ["FAILED  floor 900", "times the operations per second of", "read 4 KiB, depth 1, "] {
        assert!(ended.stderr.contains(told), "{told:?}: {ended:#?}");
    }
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn what_was_asked_for_twice_is_measured_once_and_what_was_not_measured_is_told() {
    let server = Server::start(&[]);
    let words = ["-s", "8", "--depths", "1", "--json"];
    let ended = bench(&server, &[&words[..], &["-d", "tcp,tcp", "--op", "cas,write,write,cas"]].concat());
    assert_eq!(ended.code, Some(3), "{ended:#?}");
    let report = ended.json();
    schema::assert_valid("bench", &report);
    assert_eq!(rows(&report), [("write".to_owned(), 8, 1, 1)]);
    assert_eq!(report["parameters"]["operations"], serde_json::json!(["cas", "write"]));
    assert_eq!(report["rails"].as_array().map(Vec::len), Some(1), "{report:#}");
    let lacking = report["not_measured"].as_array().expect("it is a list");
    assert_eq!((lacking.len(), &lacking[0]["operation"]), (1, &"cas".into()), "{report:#}");
    for part in ["error", "cause", "fix"] {
        let told = lacking[0][part].as_str().unwrap_or_else(|| panic!("{part}: {report:#}"));
        assert!(ended.stderr.contains(told), "{told}: {ended:#?}");
    }

    // One who asks for more rails than there are gets no second row of the same.
    let ended = bench(&server, &[&words[..], &["--op", "write", "-d", "tcp", "--rails", "2,1"]].concat());
    assert_eq!(ended.code, Some(3), "{ended:#?}");
    let report = ended.json();
    schema::assert_valid("bench", &report);
    assert_eq!(rows(&report).len(), 1, "{report:#}");
    assert_eq!(report["not_measured"][0]["operation"], Value::Null, "{report:#}");
    assert!(ended.stderr.contains("error: 2 rails were not measured"), "{ended:#?}");
}
