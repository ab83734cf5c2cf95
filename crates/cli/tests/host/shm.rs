//! The commands over the rail shm, between two processes of this host: no library is used, whatever is installed.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use farreach_testkit::shared_object;
use serde_json::{Value, json};

use super::without_libraries;
use crate::support::client::{Client, TOLD_WITHIN, assert_failed, assert_fails};
use crate::support::run::{Ended, FARREACH, end_of};
use crate::support::server::Server;

/// What both sides are told. Without libraries it may as well be nothing.
pub(super) const RAIL: [&str; 2] = ["-d", "shm"];

/// Every command, short enough for a busy machine.
const COMMANDS: [(&str, &[&str]); 4] = [
    ("fill", &["--pages", "64"]),
    ("ping", &["-n", "20"]),
    ("blast", &["-n", "50"]),
    ("bench", &["-D", "0.02", "-r", "1", "--warm-up", "0.01"]),
];

pub(super) fn server(words: &[&str]) -> Server {
    Server::start_within(&format!("export LD_LIBRARY_PATH={}", without_libraries().display()), words)
}

pub(super) fn client(server: &Server, command: &str, words: &[&str]) -> Command {
    let mut client = server.client(command, words);
    client.env("LD_LIBRARY_PATH", without_libraries());
    client
}

fn run(server: &Server, command: &str, words: &[&str]) -> Ended {
    end_of(&mut client(server, command, words))
}

/// What is in /dev/shm, where other libraries leave files.
fn shared_files() -> BTreeSet<String> {
    let files = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    files.map(|file| file.file_name().to_string_lossy().into_owned()).collect()
}

fn assert_no_file_of_ours(before: &BTreeSet<String>) {
    let left: Vec<String> = shared_files().difference(before).cloned().collect();
    // Other programs of this machine have their own.
    assert!(!left.iter().any(|file| file.contains("farreach")), "{left:?}");
}

#[test]
fn every_command_works_without_any_library() {
    let before = shared_files();
    for rail in [&RAIL[..], &[]] {
        let mut server = server(rail);
        let lines = server.startup_lines();
        assert!(lines.contains("\nshm   no    within this host, uid "), "{lines}");
        for (command, words) in COMMANDS {
            let ended = run(&server, command, &[words, rail].concat());
            assert_eq!(ended.code, Some(0), "{command}: {ended:#?}");
            assert!(ended.stdout.contains(" over shm (no RDMA)"), "{command}: {ended:#?}");
            let log = server.wait_for_log(&format!("{command} from"));
            assert!(log.ends_with(" over shm"), "{log}");
        }
        server.wait_for_no_agent();
    }
    assert_no_file_of_ours(&before);
}

#[test]
fn reports_name_the_rail_and_its_library() {
    let server = server(&RAIL);
    let report = run(&server, "ping", &[&["-n", "5", "--json"], &RAIL[..]].concat()).json();
    let rail = &report["rails"][0];
    assert_eq!((&rail["name"], &rail["library"]), (&json!("shm"), &json!("farreach-shm")));
    assert_eq!((&rail["is_rdma"], &report["rails_why"]), (&json!(false), &json!("named by -d")));
    let report = run(&server, "ping", &["-n", "5", "--json"]).json();
    let why = "no active RDMA card on either side, and no libfabric; both sides run on this host";
    assert_eq!(report["rails_why"], why);
}

/// Messages go through a ring. `bench` measures those that fit, and says which ones do not.
#[test]
fn messages_that_are_too_long_are_told() {
    let server = server(&RAIL);
    let long = run(&server, "ping", &["--op", "send", "-s", "64K", "-d", "shm"]);
    assert_failed(long, 3, &["messages of 64 KiB are not possible over shm", "at most 14312 bytes", "--op"]);
    let bench = |sizes: &str| {
        let words = ["--op", "send", "-s", sizes, "-D", "0.02", "-r", "1", "--warm-up", "0.01", "--json"];
        run(&server, "bench", &[&words[..], &RAIL].concat())
    };
    let some = bench("8,64K");
    assert_eq!(some.code, Some(0), "{some:#?}");
    assert!(
        some.stderr.contains("note: send of 64 KiB and more was not measured: a message over shm"),
        "{some:#?}"
    );
    let report = some.json();
    assert_eq!(report["not_measured"][0]["sizes_bytes"], json!([65_536]));
    // A row for each depth.
    assert_eq!(report["rows"].as_array().map(Vec::len), Some(2), "{report:#}");
    let none = bench("64K");
    assert_failed(none, 3, &["send of 64 KiB and more was not measured"]);
}

#[test]
fn rails_that_are_none_are_told() {
    let server = server(&RAIL);
    for (words, code, told) in [
        (&["-d", "shm@127.0.0.1"][..], 2, "shm has no address"),
        (&["-d", "shmm"], 3, "did you mean shm?"),
        (&["-d", "tcp"], 3, "the server offers shm"),
        (&["-d", "shm", "--require-rdma"], 3, "shm is not RDMA"),
        (&["-d", "shm", "--tclass", "3"], 3, "shm sends no packets"),
    ] {
        assert_fails(&mut client(&server, "ping", words), code, &[told]);
    }
}

/// A client that is killed leaves no agent behind, and the next one is served.
#[test]
fn a_killed_client_is_noticed() {
    let before = shared_files();
    let mut server = server(&RAIL);
    for (command, seconds) in [("blast", "60"), ("bench", "2")] {
        let mut victim = client(&server, command, &[&["-D", seconds], &RAIL[..]].concat());
        let victim = Client::start(&mut victim);
        server.wait_for_log(&format!("{command} from"));
        thread::sleep(Duration::from_millis(300));
        victim.kill();
        let killed = Instant::now();
        server.wait_for_no_agent();
        assert!(killed.elapsed() < TOLD_WITHIN, "{command}: {:?}", killed.elapsed());
        server.wait_for_log(&format!("{command} failed: the peer is lost"));
    }
    assert_eq!(run(&server, "ping", &[&["-n", "5"], &RAIL[..]].concat()).code, Some(0));
    assert_no_file_of_ours(&before);
}

/// A client that is stopped is given up, and says so when it runs again.
#[test]
fn a_stopped_client_is_given_up() {
    let mut server = server(&RAIL);
    let stopped = Client::start(&mut client(&server, "blast", &[&["-D", "60"], &RAIL[..]].concat()));
    server.wait_for_log("blast from");
    thread::sleep(Duration::from_millis(300));
    stopped.signal("STOP");
    let since = Instant::now();
    server.wait_for_no_agent();
    assert!(since.elapsed() < 2 * TOLD_WITHIN, "{:?}", since.elapsed());
    stopped.signal("CONT");
    assert_failed(stopped.end_within(TOLD_WITHIN), 4, &[]);
}

#[test]
fn an_agent_that_ends_or_stops_is_told_to_the_client() {
    let before = shared_files();
    let mut server = server(&RAIL);
    for (count, (signal, command, seconds)) in
        [("KILL", "blast", "60"), ("KILL", "bench", "2"), ("STOP", "blast", "60")].into_iter().enumerate()
    {
        let victim = Client::start(&mut client(&server, command, &[&["-D", seconds], &RAIL[..]].concat()));
        server.wait_for_logs(" from ", count + 1);
        thread::sleep(Duration::from_millis(300));
        server.signal_agents(signal);
        assert_failed(victim.end_within(2 * TOLD_WITHIN), 4, &["cause: "]);
        if signal == "STOP" {
            server.signal_agents("KILL");
        }
        server.wait_for_no_agent();
    }
    assert_no_file_of_ours(&before);
}

/// A server that is killed takes its agents along, and the client is told.
#[test]
fn a_killed_server_is_told_to_the_client() {
    let mut server = server(&RAIL);
    let victim = Client::start(&mut client(&server, "blast", &[&["-D", "60"], &RAIL[..]].concat()));
    server.wait_for_log("blast from");
    let agents = server.agent_ids();
    server.signal("KILL");
    assert_failed(victim.end_within(TOLD_WITHIN), 4, &["cause: "]);
    let is_gone = |id: &u32| !fs::exists(format!("/proc/{id}")).unwrap_or(false);
    let deadline = Instant::now() + TOLD_WITHIN;
    while !agents.iter().all(is_gone) {
        assert!(Instant::now() < deadline, "{agents:?} are still there");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A client that is another user. Only root can start one.
#[test]
fn another_user_is_told() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let server = server(&RAIL);
    // A copy that the other user may execute.
    let folder = tempfile::tempdir_in("/tmp").expect("a directory");
    let program = folder.path().join("farreach");
    fs::copy(FARREACH, &program).expect("a copy");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(folder.path(), open).expect("its mode");
    let other = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.args(words).current_dir("/").uid(65533).env("LD_LIBRARY_PATH", without_libraries());
        command
    };
    let address = server.address();
    for command in ["fill", "ping", "blast", "bench"] {
        let words = [
            "error: shm does not reach the server",
            "as user 65533",
            "run this command as the server's user",
        ];
        assert_fails(&mut other(&[command, &address, "-d", "shm"]), 3, &words);
    }
    let report = end_of(&mut other(&["doctor", &address, "--json"])).json();
    let left_out = report["pair"]["left_out"].as_array().expect("a list").clone();
    let shm = left_out.iter().find(|it| it["rail"] == "shm").unwrap_or_else(|| panic!("{left_out:?}"));
    assert!(shm["reason"].as_str().is_some_and(|why| why.contains("as user 65533")), "{shm}");
}

/// In a user namespace without a map, all users have the number of this one.
#[test]
fn a_user_without_a_number_is_told() {
    let server = server(&RAIL);
    let nobody = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--user", FARREACH]).args(words).env("LD_LIBRARY_PATH", without_libraries());
        command
    };
    let address = server.address();
    for command in ["fill", "ping", "blast", "bench"] {
        let words = ["this host has no rail shm", "cannot be told: user 65534", "and not as nobody"];
        assert_fails(&mut nobody(&[command, &address, "-d", "shm"]), 3, &words);
    }
    // Without a name there is no common rail.
    assert_fails(&mut nobody(&["ping", &address]), 3, &["no common rail with the server"]);
    let report = end_of(&mut nobody(&["doctor", &address, "--json"])).json();
    let told = finding(&report, "shm");
    assert_eq!((&told["verdict"], &told["subject"]), (&json!("fail"), &json!("geteuid")), "{told:#}");
}

/// The same user, with other numbers in a user namespace and a pid namespace.
#[test]
fn namespaces_of_one_user_are_connected() {
    let server = server(&RAIL);
    for namespaces in [&["--user", "--map-user=7"][..], &["--pid", "--kill-child"]] {
        let mut command = Command::new("unshare");
        command.args(namespaces).args([FARREACH, "ping", &server.address(), "-n", "5", "-d", "shm"]);
        let ended = end_of(command.env("LD_LIBRARY_PATH", without_libraries()));
        assert_eq!(ended.code, Some(0), "{namespaces:?}: {ended:#?}");
    }
}

/// Answers every client with this welcome.
fn greeter(offers: &Value) -> String {
    let welcome =
        json!({ "Ok": { "version": "0.1.0", "host": "h", "offers": offers, "connections_max": 1 } });
    let message = welcome.to_string();
    let len = (message.len() as u32).to_be_bytes();
    let bytes = [&b"frcmd\n\x00\x04"[..], &len, message.as_bytes()].concat();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it listens").to_string();
    // It ends with the test's process.
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(&bytes);
            std::mem::forget(stream);
        }
    });
    address
}

/// Returns what `farreach serve` tells a client that has said no more than which protocol it speaks.
fn welcome(server: &Server) -> String {
    let mut stream = std::net::TcpStream::connect(server.address()).expect("it listens");
    stream.write_all(b"frcmd\n\x00\x04").expect("it listens");
    let mut head = [0; 12];
    stream.read_exact(&mut head).expect("a welcome");
    let len = u32::from_be_bytes([head[8], head[9], head[10], head[11]]);
    let mut text = vec![0; len as usize];
    stream.read_exact(&mut text).expect("the whole welcome");
    String::from_utf8(text).expect("JSON")
}

/// Other hosts, users and namespaces, of which a server tells. What it tells is compared, and not
/// printed.
#[test]
fn a_server_elsewhere_is_told() {
    let told: Value = serde_json::from_str(&welcome(&server(&RAIL))).expect("JSON");
    let here = &told["Ok"]["offers"]["place"];
    for (change, told) in [
        ("host", "the server runs on another host"),
        ("place", "the server runs in another network namespace"),
        ("user", "and this command as user"),
    ] {
        let mut place = here.clone();
        assert!(place[change].is_string(), "{here}");
        place[change] = json!("\u{1b}[31melsewhere");
        let server = greeter(&json!({ "cards": false, "providers": ["shm"], "place": place }));
        let mut ping = Command::new(FARREACH);
        let ping = ping.args(["ping", &server, "-d", "shm"]).env("LD_LIBRARY_PATH", without_libraries());
        assert_fails(ping, 3, &["error: shm does not reach the server", told]);
    }
}

/// A stranger gets no boot id, user or namespace, and the digests are of them.
#[test]
fn a_stranger_learns_nothing_of_the_host() {
    let told = welcome(&server(&RAIL));
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("/proc is mounted");
    let namespace = std::os::unix::fs::MetadataExt::ino(&fs::metadata("/proc/self/ns/net").expect("/proc"));
    assert!(!told.contains(boot_id.trim()) && !told.contains(&namespace.to_string()), "{told}");
    let told: Value = serde_json::from_str(&told).expect("JSON");
    let place = told["Ok"]["offers"]["place"].as_object().expect("it offers shm");
    assert_eq!(place.len(), 3, "{told}");
    for digest in place.values() {
        let digest = digest.as_str().expect("a text");
        assert!(digest.len() == 32 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()), "{told}");
    }
}

/// Both sides are in one network namespace here, and meet in the directory all the same: engines in
/// two of them are tested with the engine.
#[test]
fn a_directory_connects_those_that_name_it() {
    let volumes = [tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory")];
    let [one, other] = volumes.each_ref().map(|volume| volume.path().to_str().expect("a text"));
    let within = server(&["--shm-dir", one]);
    // It is the rail of a command that names no other.
    let ended = run(&within, "ping", &["-n", "5", "--json", "--shm-dir", one]);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let report = ended.json();
    assert_eq!(
        (&report["rails"][0]["name"], &report["rails_why"]),
        (&json!("shm"), &json!("named by --shm-dir"))
    );
    let ended = run(&within, "fill", &["--pages", "64", "--shm-dir", one, "-d", "shm"]);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let reach = "error: shm does not reach the server";
    let fix = "with --shm-dir";
    let has_other = ["the server has another directory for shm", fix, reach];
    assert_fails(&mut client(&within, "ping", &["--shm-dir", other]), 3, &has_other);
    let has_one = ["the server has a directory for shm, and this command has none", fix, reach];
    assert_fails(&mut client(&within, "ping", &["-d", "shm"]), 3, &has_one);
    let without = server(&RAIL);
    let has_none = ["the server has no directory for shm", fix, reach];
    assert_fails(&mut client(&without, "ping", &["--shm-dir", one]), 3, &has_none);
}

#[test]
fn a_directory_that_cannot_be_used_is_told() {
    let volume = tempfile::tempdir().expect("a directory");
    let [missing, open] = ["missing", "open"].map(|name| volume.path().join(name));
    fs::create_dir(&open).expect("a directory");
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(&open, all).expect("its mode");
    let server = server(&RAIL);
    for (path, told) in [(&missing, "mkdir -m 700"), (&open, "other users can write to the directory")] {
        let path = path.to_str().expect("a text");
        assert_fails(&mut client(&server, "ping", &["--shm-dir", path]), 3, &[told, path]);
        // A server that would offer other rails fails, too.
        let mut serve = Command::new(FARREACH);
        serve.args(["serve", "--listen", "127.0.0.1:0", "--shm-dir", path]);
        assert_fails(serve.env("LD_LIBRARY_PATH", without_libraries()), 3, &[told, path]);
    }
    let unused = ["-d", "tcp", "--shm-dir", "/tmp"];
    assert_fails(&mut client(&server, "ping", &unused), 2, &["--shm-dir has no effect"]);
}

/// Forbids a process memfd_create when it starts, and its children too: a real filter of the kernel.
const WITHOUT_MEMFD: &str = r#"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
__attribute__((constructor)) static void forbid(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { sizeof filter / sizeof *filter, filter };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        _exit(99);
}
"#;

fn without_memfd(words: &[&str]) -> Command {
    static FILTER: OnceLock<std::path::PathBuf> = OnceLock::new();
    let filter =
        FILTER.get_or_init(|| shared_object(env!("CARGO_TARGET_TMPDIR"), "without_memfd", WITHOUT_MEMFD, ""));
    let mut command = Command::new(FARREACH);
    command.args(words).env("LD_PRELOAD", filter).env("LD_LIBRARY_PATH", without_libraries());
    command
}

fn within_descriptors(count: u32, words: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!(r#"ulimit -n {count}; exec "$@""#), "sh", FARREACH]).args(words);
    command.env("LD_LIBRARY_PATH", without_libraries());
    command
}

/// The finding of a check that is not passed.
fn finding(report: &Value, check: &str) -> Value {
    let checks = report["hosts"][0]["checks"].as_array();
    let checks = checks.unwrap_or_else(|| panic!("no checks in {report:#}"));
    let check = checks.iter().find(|it| it["check"] == check).unwrap_or_else(|| panic!("no {check}"));
    check["findings"][0].clone()
}

#[test]
fn a_seccomp_filter_is_told() {
    let devices = end_of(&mut without_memfd(&["devices"]));
    assert_eq!(devices.code, Some(3), "{devices:#?}");
    for told in ["shm: not available", "cause: memfd_create: Operation not permitted", "seccomp profile"] {
        assert!(devices.stdout.contains(told), "{told}: {}", devices.stdout);
    }
    assert_fails(&mut without_memfd(&["serve", "-p", "0", "-l", "127.0.0.1"]), 3, &["no rail to offer"]);
    let serve = without_memfd(&["serve", "-p", "0", "-l", "127.0.0.1", "-d", "shm"]);
    assert_fails(&mut { serve }, 3, &["this host has no rail shm", "memfd_create", "seccomp"]);
    let report = end_of(&mut without_memfd(&["doctor", "--no-transfers", "--json"])).json();
    let finding = finding(&report, "shm");
    assert_eq!((&finding["verdict"], &finding["subject"]), (&json!("fail"), &json!("memfd_create")));
    assert!(
        finding["found"].as_str().is_some_and(|it| it.contains("a seccomp filter is active")),
        "{finding:#}"
    );
}

#[test]
fn a_low_limit_of_descriptors_is_told() {
    let devices = end_of(&mut within_descriptors(20, &["devices"]));
    assert_eq!(devices.code, Some(3), "{devices:#?}");
    assert!(devices.stdout.contains("ulimit -n"), "{}", devices.stdout);
    let report = end_of(&mut within_descriptors(20, &["doctor", "--no-transfers", "--json"])).json();
    assert_eq!(finding(&report, "open files")["verdict"], "fail");
    assert_eq!(finding(&report, "shm")["verdict"], "fail");
    // With as many as the survey asks for, a client works.
    let server = server(&RAIL);
    let address = server.address();
    let ended = end_of(&mut within_descriptors(40, &["ping", &address, "-n", "5", "-d", "shm"]));
    assert_eq!(ended.code, Some(0), "{ended:#?}");
}

/// The report of `farreach doctor --shm-dir`, without transfers.
fn doctor_of(directory: &Path) -> Value {
    let mut command = Command::new(FARREACH);
    command.args(["doctor", "--no-transfers", "--json", "--shm-dir"]).arg(directory);
    end_of(command.env("LD_LIBRARY_PATH", without_libraries())).json()
}

#[test]
fn doctor_judges_a_directory() {
    let volume = tempfile::tempdir().expect("a directory");
    let path = volume.path().join("volume");
    let with_mode = |mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(&path, mode).expect("its mode");
        finding(&doctor_of(&path), "shm directory")
    };
    let missing = finding(&doctor_of(&path), "shm directory");
    assert_eq!((&missing["verdict"], &missing["subject"]), (&json!("fail"), &json!(path)));
    let fix = missing["fixes"][0]["commands"][0].as_str().expect("a command");
    // The first fix is a command that works.
    assert!(end_of(Command::new("sh").args(["-c", fix])).code == Some(0) && path.is_dir(), "{fix}");
    let good = with_mode(0o700);
    assert_eq!(good["verdict"], "pass", "{good:#}");
    assert!(good["found"].as_str().is_some_and(|it| it.contains("(mode 0700)")), "{good:#}");
    assert_eq!(fs::read_dir(&path).expect("a directory").count(), 0);
    let open = with_mode(0o777);
    assert_eq!(open["verdict"], "fail", "{open:#}");
    assert!(open["fixes"].to_string().contains("chmod go-w"), "{open:#}");
    // Without a directory there is nothing to judge.
    let none = Command::new(FARREACH)
        .args(["doctor", "--no-transfers", "--json"])
        .env("LD_LIBRARY_PATH", without_libraries())
        .output()
        .expect("it runs");
    assert!(String::from_utf8_lossy(&none.stdout).contains("no directory for shm was named"));
}

/// Of another user, without the right to write, and with a limit of descriptors.
#[test]
fn doctor_says_what_keeps_processes_from_a_directory() {
    let volume = tempfile::tempdir().expect("a directory");
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(volume.path(), readable).expect("its mode");
    let path = volume.path().to_str().expect("a text");
    let words = ["doctor", "--no-transfers", "--json", "--shm-dir", path];
    // In a user namespace without a map it is nobody, and so is the owner.
    let mut nobody = Command::new("unshare");
    nobody.args(["--user", FARREACH]).args(words).env("LD_LIBRARY_PATH", without_libraries());
    let told = finding(&end_of(&mut nobody).json(), "shm directory");
    assert_eq!(told["verdict"], "fail", "{told:#}");
    assert!(told["found"].as_str().is_some_and(|it| it.contains("user 65534")), "{told:#}");
    let told = finding(&end_of(&mut within_descriptors(20, &words)).json(), "shm directory");
    assert_eq!(told["verdict"], "unknown", "{told:#}");
    assert!(told["found"].as_str().is_some_and(|it| it.contains("not tried: ")), "{told:#}");
    let told = finding(&end_of(&mut without_memfd(&words)).json(), "shm directory");
    assert!(told["found"].as_str().is_some_and(|it| it.contains("memfd_create is refused")), "{told:#}");
    assert_eq!(fs::read_dir(path).expect("a directory").count(), 0);
}

#[test]
fn doctor_moves_bytes_through_a_directory() {
    let volumes = [tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory")];
    let [one, other] = volumes.each_ref().map(|volume| volume.path().to_str().expect("a text"));
    let mut alone = Command::new(FARREACH);
    alone.args(["doctor", "--json", "--shm-dir", one]).env("LD_LIBRARY_PATH", without_libraries());
    let report = end_of(&mut alone).json();
    let told = finding(&report, "transfer");
    assert_eq!((&told["verdict"], &told["subject"]), (&json!("pass"), &json!("shm")), "{told:#}");
    let within = server(&["--shm-dir", one]);
    let report = run(&within, "doctor", &["--json", "--shm-dir", one]).json();
    let matrix = report["pair"]["matrix"].as_array().expect("a list").clone();
    let shm = matrix.iter().find(|row| row["local"] == "shm").unwrap_or_else(|| panic!("{report:#}"));
    assert_eq!(shm["state"], "works", "{shm:#}");
    // Both hosts are judged, each with its directory.
    for host in 0..2 {
        let checks = report["hosts"][host]["checks"].as_array().expect("checks");
        let check = checks.iter().find(|it| it["check"] == "shm directory");
        assert_eq!(check.map(|it| &it["findings"][0]["subject"]), Some(&json!(one)), "{report:#}");
    }
    let report = run(&within, "doctor", &["--json", "--shm-dir", other]).json();
    let left_out = report["pair"]["left_out"].to_string();
    assert!(left_out.contains("the server has another directory for shm"), "{left_out}");
    // One that cannot be used is a finding, and no reason to give up.
    let missing = format!("{other}/missing");
    let report = run(&within, "doctor", &["--json", "--shm-dir", &missing]).json();
    assert_eq!(finding(&report, "shm directory")["verdict"], "fail");
}

#[test]
fn doctor_tries_shm_with_a_peer_on_this_host() {
    let server = server(&RAIL);
    let report = run(&server, "doctor", &["--json"]).json();
    let matrix = report["pair"]["matrix"].as_array().expect("a list").clone();
    let shm = matrix.iter().find(|row| row["local"] == "shm").unwrap_or_else(|| panic!("{report:#}"));
    assert_eq!(shm["state"], "works", "{shm:#}");
}
