//! `farreach doctor` reads any host, and says why where it cannot: with libraries of our own making, so that none need be installed.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::run::{FARREACH, end_of};

const SONAMES: [&str; 2] = ["libibverbs.so.1", "libfabric.so.1"];

/// A folder that the dynamic linker searches first, with files under the names of the libraries.
fn libraries(make: impl Fn(&Path)) -> TempDir {
    let folder = TempDir::new().expect("a temporary folder");
    for soname in SONAMES {
        make(&folder.path().join(soname));
    }
    folder
}

/// Libraries that do this when they are loaded.
fn compiled(body: &str) -> TempDir {
    libraries(|path| {
        let code = format!(
            "#include <stdlib.h>\n#include <unistd.h>\n__attribute__((constructor)) static void begin(void) {{ {body} }}\n"
        );
        // Whoever builds Rust has a C compiler: rustc links with it.
        let mut compiler = Command::new("cc")
            .args(["-shared", "-fPIC", "-x", "c", "-", "-o"])
            .arg(path)
            .stdin(Stdio::piped())
            .spawn()
            .expect("a C compiler");
        compiler.stdin.take().expect("stdin was piped").write_all(code.as_bytes()).expect("cc reads");
        assert!(compiler.wait().expect("cc ends").success(), "cc refuses {code}");
    })
}

fn garbage() -> TempDir {
    libraries(|path| fs::write(path, "no library\n".repeat(100)).expect("a file of our own"))
}

/// What was read with these libraries, and how long it took.
fn pack(libraries: &TempDir, words: &[&str]) -> (Value, Duration) {
    let file = libraries.path().join("pack.json");
    let began = Instant::now();
    let mut command = Command::new(FARREACH);
    command.arg("doctor").arg("--dump").arg(&file).args(words).env("LD_LIBRARY_PATH", libraries.path());
    let ended = end_of(&mut command);
    let took = began.elapsed();
    if !has_rdma() {
        assert_eq!(ended.code, Some(3), "{ended:#?}");
    }
    let text = fs::read_to_string(file).expect("it was dumped");
    (serde_json::from_str(&text).expect("it is JSON"), took)
}

fn has_rdma() -> bool {
    fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some())
}

/// Why nothing was read.
fn reason<'a>(pack: &'a Value, probe: &str) -> &'a str {
    pack["probes"][probe]["unread"].as_str().unwrap_or_else(|| panic!("{probe}: {:#}", pack["probes"][probe]))
}

#[test]
fn every_probe_is_read_or_says_why_not() {
    let (pack, _) = pack(&garbage(), &["--no-transfers"]);
    let probes = pack["probes"].as_object().expect("an object");
    assert_eq!(probes.len(), 13, "{probes:#?}");
    for (name, probe) in probes {
        if let Some(reason) = probe["unread"].as_str() {
            assert!(!reason.is_empty() && !reason.contains("older farreach"), "{name}: {reason}");
        } else {
            assert!(probe.get("read").or(probe.get("left_out")).is_some(), "{name}: {probe}");
        }
    }
    for (probe, soname) in ["verbs", "fabric"].into_iter().zip(SONAMES) {
        let reason = reason(&pack, probe);
        assert!(reason.contains(soname) && reason.contains("invalid ELF header"), "{reason}");
    }
    assert_eq!(pack["probes"]["transfers"]["left_out"], "skipped by --no-transfers");
    let interfaces = pack["probes"]["interfaces"]["read"].as_array().expect("there are some");
    assert!(interfaces.iter().any(|it| it["name"] == "lo"), "{interfaces:?}");
    if !has_rdma() {
        for probe in ["nodes", "counters_growth", "dcb", "acs"] {
            assert_eq!(pack["probes"][probe]["read"], json!({}), "{probe}");
        }
    }
}

#[test]
fn it_is_quick_without_transfers() {
    let folder = garbage();
    // The machine that builds may be busy with other things: one run of three will do.
    let took: Vec<Duration> = (0..3).map(|_| pack(&folder, &["--no-transfers"]).1).collect();
    assert!(took.iter().any(|took| *took < Duration::from_secs(3)), "{took:?}");
}

#[test]
fn a_library_that_crashes_takes_nobody_along() {
    let (pack, _) = pack(&compiled("abort();"), &[]);
    for probe in ["verbs", "fabric", "transfers"] {
        let reason = reason(&pack, probe);
        assert!(reason.contains("its process failed: signal: 6"), "{reason}");
    }
}

#[test]
fn a_library_that_hangs_is_left() {
    let (pack, took) = pack(&compiled("for (;;) pause();"), &["--no-transfers"]);
    for probe in ["verbs", "fabric"] {
        let reason = reason(&pack, probe);
        assert!(reason.contains("no answer within 20 s; its process had used "), "{reason}");
        assert!(reason.ends_with("s of CPU time and was blocked (state S)"), "{reason}");
    }
    assert!(took < Duration::from_secs(40), "{took:?}");
}

#[test]
fn nothing_of_the_command_line_is_dumped() {
    let (pack, _) = pack(&garbage(), &["--no-transfers"]);
    let (dump, line) = (pack.to_string(), fs::read_to_string("/proc/cmdline").expect("Linux has one"));
    // A short word may stand anywhere.
    for word in line.split_whitespace().filter(|word| word.contains('=') && !word.contains("iommu")) {
        assert!(!dump.contains(word), "{word}");
    }
}
