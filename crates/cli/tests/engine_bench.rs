//! `farreach bench` over libfabric's rails: every form of its result, floors, and an earlier run.

mod support {
    pub(crate) mod client;
    #[allow(dead_code, reason = "for guests")]
    pub(crate) mod host;
    pub(crate) mod run;
    pub(crate) mod schema;
    pub(crate) mod server;
}

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use support::run::Ended;
use support::schema;
use support::server::Server;

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
#[ignore = "needs the engines' libraries: cargo xtask test runs it"]
fn every_row_that_was_asked_for_is_measured_with_its_spread() {
    let server = Server::start(&[]);
    for (rail, operations) in
        [("shm", "send,write,write-imm,read,cas,faa"), ("tcp", "send,write,write-imm,read")]
    {
        let words = ["-d", rail, "--op", operations, "-s", "8,4K", "--depths", "1,8", "--json"];
        let ended = bench(&server, &words);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:#?}");
        let report = ended.json();
        schema::assert_valid("bench", &report);
        let mut expected = Vec::new();
        for operation in operations.split(',') {
            let sizes = if ["cas", "faa"].contains(&operation) { &[8][..] } else { &[8, 4096] };
            for depth in [1, 8] {
                expected.extend(sizes.iter().map(|size| (operation.to_owned(), *size, depth, 1)));
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
}

#[test]
#[ignore = "needs the engines' libraries: cargo xtask test runs it"]
fn several_connections_are_used_at_once() {
    let mut server = Server::start(&[]);
    let ended = bench(
        &server,
        &["-d", "tcp", "--op", "write", "-s", "64", "--depths", "4", "--queues", "1,3", "--json"],
    );
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let write = |queues| ("write".to_owned(), 64, 4, queues);
    assert_eq!(rows(&ended.json()), [write(1), write(3)]);
    server.wait_for_log("bench is done");
    let served = server.log().iter().filter(|line| line.contains("bench from")).count();
    assert_eq!(served, 4, "{:#?}", server.log());
}

#[test]
#[ignore = "needs the engines' libraries: cargo xtask test runs it"]
fn people_read_a_table_and_programs_csv_and_pictures() {
    let (server, folder) = (Server::start(&[]), TempDir::new().expect("a temporary folder"));
    let picture = folder.path().join("rates.svg");
    let words = ["-d", "shm", "--op", "read", "-s", "8,4K", "--depths", "1", "--svg"];
    let table = bench(&server, &[&words[..], &[picture.to_str().expect("a plain name")]].concat());
    assert_eq!((table.code, table.stderr.as_str()), (Some(0), ""), "{table:#?}");
    let first = table.stdout.lines().next().expect("it says what was measured");
    assert!(first.contains("over shm (no RDMA), depth 1, 1 queue, median of 2"), "{first}");
    for size in ["read    8 B", "read  4 KiB"] {
        assert!(table.stdout.lines().any(|line| line.starts_with(size)), "{size}:\n{}", table.stdout);
    }
    let picture = fs::read_to_string(picture).expect("the picture");
    assert!(picture.starts_with("<svg") && picture.contains("Throughput"), "{picture}");

    let csv = bench(&server, &["-d", "shm", "--op", "read", "-s", "8,4K", "--depths", "1", "--csv"]).stdout;
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 3, "{csv}");
    let columns: Vec<usize> = lines.iter().map(|line| line.split(',').count()).collect();
    assert!(columns[0] > 10 && columns.iter().all(|count| *count == columns[0]), "{csv}");
}

#[test]
#[ignore = "needs the engines' libraries: cargo xtask test runs it"]
fn a_floor_is_held_or_not_and_an_earlier_run_is_compared_with() {
    let (server, folder) = (Server::start(&[]), TempDir::new().expect("a temporary folder"));
    let words = ["-d", "shm", "--op", "read", "-s", "4K", "--depths", "1"];
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
    let fewer = ["-d", "shm", "--op", "read", "-s", "8", "--depths", "1", "--floor", &format!("1%of={base}")];
    assert_eq!(bench(&server, &fewer).code, Some(1));
    let unreadable = bench(&server, &[&words[..], &["--against", "/nowhere.json"]].concat());
    assert!(
        unreadable.code == Some(1) && unreadable.stderr.contains("cannot read /nowhere.json"),
        "{unreadable:#?}"
    );
}

#[test]
#[ignore = "needs the engines' libraries: cargo xtask test runs it"]
fn what_a_rail_lacks_is_told_and_the_rest_is_measured() {
    let server = Server::start(&[]);
    for (operation, why) in
        [("cas", "has atomic operations"), ("atomic-write", "verbs' own"), ("flush", "verbs' own")]
    {
        let ended =
            bench(&server, &["-d", "tcp", "--op", &format!("{operation},read"), "-s", "64", "--depths", "1"]);
        assert_eq!(ended.code, Some(3), "{operation}: {ended:#?}");
        let told = format!("error: {operation} was not measured");
        assert!(ended.stderr.contains(&told) && ended.stderr.contains("fix: "), "{ended:#?}");
        assert!(ended.stderr.contains(why), "{ended:#?}");
        assert!(ended.stdout.contains("op/s"), "{}", ended.stdout);
    }
}

#[test]
#[ignore = "needs the engines' libraries: cargo xtask test runs it"]
fn who_has_enough_is_told_what_was_measured() {
    let mut server = Server::start(&[]);
    let words =
        ["-d", "shm", "--op", "read", "-s", "8,64,512", "--depths", "1", "-D", "1", "-r", "1", "--json"];
    let ended = server.interrupt("bench", &words, std::time::Duration::from_millis(1700));
    assert_eq!(ended.code, Some(130), "{ended:#?}");
    let report = ended.json();
    assert_eq!(report["is_interrupted"], true);
    let measured = rows(&report).len();
    assert!((1..3).contains(&measured), "{measured} rows of 3: {report:#}");
}
