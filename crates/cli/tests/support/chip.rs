//! What a report of `farreach chip` must say, whatever it went over.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::run::Ended;
use super::server::{PATIENCE, Server, sooner_or_later};

/// The bytes of the message, and of the memory unless another size is asked for.
pub(crate) const MESSAGE: u64 = 4096;
pub(crate) const MEMORY: u64 = 131_072;

/// Every step with its bytes, each of which took some time.
pub(crate) fn assert_steps(report: &Value, memory: u64) {
    let steps = report["steps"].as_array().expect("steps are a list");
    let told: Vec<_> = steps.iter().map(|step| (step["step"].as_str(), step["bytes"].as_u64())).collect();
    let expected = [("message", MESSAGE), ("read", memory), ("write", memory), ("read_back", memory)];
    assert_eq!(told, expected.map(|(step, bytes)| (Some(step), Some(bytes))), "{report:#}");
    assert!(steps.iter().all(|step| step["elapsed_ns"].as_u64() > Some(0)), "{report:#}");
}

/// A lock that so many clients have each taken so often.
pub(crate) fn assert_lock(report: &Value, clients: u64, rounds: u64) {
    let (lock, all) = (&report["lock"], clients * rounds);
    for (field, expected) in [
        ("clients", clients),
        ("rounds", rounds),
        ("acquisitions", all),
        ("counter", all),
        ("counter_at_server", all),
        ("intrusions", 0),
    ] {
        assert_eq!(lock[field], expected, "{field}: {report:#}");
    }
    assert_eq!(lock["excludes"], true);
    assert!(lock["acquisitions_per_second"].as_f64() > Some(0.0), "{lock:#}");
    let wait = |name: &str| lock["wait"][name].as_u64().expect("a time");
    assert!(0 < wait("min_ns") && wait("min_ns") <= wait("p50_ns") && wait("p50_ns") <= wait("max_ns"));
    let spread = &lock["acquisitions_when_first_was_done"];
    assert_eq!(spread["max"], rounds, "{lock:#}");
    let by_client = lock["by_client"].as_array().expect("clients are a list");
    assert_eq!(by_client.len() as u64, clients);
    let failed: u64 = by_client.iter().filter_map(|client| client["failed_attempts"].as_u64()).sum();
    assert_eq!(lock["failed_attempts"], failed);
    if clients > 1 {
        assert!(failed > 0, "nobody contended for it: {lock:#}");
    }
}

/// Interrupts a contest for a lock that would last for hours, once somebody has taken it: sooner or later, as fast as the machine is.
pub(crate) fn interrupt_contest(server: &mut Server, words: &[&str]) -> Ended {
    let words = [words, &["--rounds", "100000000"]].concat();
    // A report as JSON counts them; on a screen there is a line for them.
    server.interrupt_once("chip", &words, |ended| match words.contains(&"--json") {
        true => ended.json()["lock"]["acquisitions"].as_u64() > Some(0),
        false => ended.stdout.contains(": correct\n"),
    })
}

/// Kills the agent of a contest for a lock once every step before it is done: sooner or later, as fast as the machine is. How the client ended, and how
/// long that took.
pub(crate) fn kill_agent_of_contest(server: &mut Server, words: &[&str]) -> (Ended, Duration) {
    let words = [words, &["--host-memory", "--rounds", "100000000"]].concat();
    let attempt = |after: Duration| {
        let client = server.start_served("chip", &words);
        thread::sleep(after);
        let killed = Instant::now();
        server.kill_agents();
        let ended = client.end_within(PATIENCE);
        (ended, killed.elapsed())
    };
    sooner_or_later(attempt, |(ended, _)| ended.stdout.contains("read back"))
}

/// One who had enough was told what was measured, and the lock has excluded until then.
pub(crate) fn assert_interrupted(ended: &Ended) {
    assert_eq!(ended.code, Some(130), "{ended:#?}");
    let report = ended.json();
    assert_eq!((&report["is_interrupted"], &report["exit_code"]), (&true.into(), &130.into()));
    let lock = &report["lock"];
    assert!(lock["acquisitions"].as_u64() > Some(0), "it was interrupted too early: {report:#}");
    assert_eq!(lock["counter"], lock["acquisitions"], "{lock:#}");
    assert_eq!(lock["counter_at_server"], lock["acquisitions"], "{lock:#}");
    assert_eq!(report["error"], Value::Null);
}
