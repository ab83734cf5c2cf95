//! Tests of the example programs, as a user runs them: a server, a client, and their output.

use std::env;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use farreach_testkit::{Device, example, listen, wait_for};

/// A program that takes longer hangs. The programs' own waits end before.
const RUN_MAX: Duration = Duration::from_secs(60);

/// The number of attempts of a client while the server does not listen yet.
const ATTEMPTS: usize = 40;

/// A program that is killed on drop if it still runs.
struct Running {
    name: String,
    child: Child,
    told: Option<[JoinHandle<String>; 2]>,
}

impl Running {
    fn start(host: Option<&str>, name: &str, arguments: &[&str]) -> Self {
        let program = example(name);
        let mut command = match host {
            Some(host) => {
                let mut command = Command::new("host");
                command.arg(host).arg(&program);
                command
            }
            None => Command::new(&program),
        };
        let command =
            command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let told = [listen(child.stdout.take()), listen(child.stderr.take())];
        Self { name: format!("{name} {}", arguments.join(" ")), child, told: Some(told) }
    }

    /// Waits for its end.
    fn finish(mut self) -> Ended {
        let deadline = Instant::now() + RUN_MAX;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                break status;
            }
            if Instant::now() >= deadline {
                self.end();
                let [stdout, stderr] = self.said();
                panic!("{} hangs, having said:\n{stdout}{stderr}", self.name);
            }
            thread::sleep(Duration::from_millis(20));
        };
        let [stdout, stderr] = self.said();
        Ended { name: self.name.clone(), code: status.code(), stdout, stderr }
    }

    fn said(&mut self) -> [String; 2] {
        self.told
            .take()
            .expect("the output is taken once")
            .map(|told| told.join().expect("a reader does not panic"))
    }

    fn end(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// The result of a program.
#[derive(Debug)]
struct Ended {
    name: String,
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ended {
    #[track_caller]
    fn went_well(self) -> String {
        assert!(self.code == Some(0), "{}: {:?}\n{}{}", self.name, self.code, self.stdout, self.stderr);
        assert_eq!(self.stderr, "", "{}", self.name);
        self.stdout
    }

    /// Checks that it failed, and printed the three lines of a failure.
    #[track_caller]
    fn failed(self, code: i32) -> String {
        let lines = ["error: ", "cause: ", "fix: "];
        let said =
            lines.iter().zip(self.stderr.lines()).filter(|(start, line)| line.starts_with(*start)).count();
        assert!(self.code == Some(code) && said == lines.len(), "{self:?}");
        self.stderr
    }
}

/// Returns the hosts of the server and the client, and the server's address. There are two hosts if
/// this guest has two network namespaces.
fn places() -> (Option<&'static str>, Option<&'static str>, String) {
    match env::var("FARREACH_TOPOLOGY").as_deref() {
        Ok("two") => (Some("b"), Some("a"), "192.0.2.2".to_owned()),
        _ => (None, None, Device::find().address.to_string()),
    }
}

/// Starts a server, on a host whose hardware address the clients do not know.
fn start_server(name: &str, arguments: &[&str]) -> Running {
    if env::var("FARREACH_TOPOLOGY").is_ok_and(|topology| topology == "two") {
        let flushed = Command::new("host").args(["a", "ip", "neighbour", "flush", "dev", "va"]).status();
        assert!(flushed.expect("the guest has ip").success(), "host a does not forget its neighbours");
    }
    Running::start(places().0, name, &[&["serve"], arguments].concat())
}

/// Runs a client, again while the server does not listen yet.
fn visit(name: &str, arguments: &[&str]) -> Ended {
    let (_, here, address) = places();
    let mut attempts = 0;
    wait_for("server that listens", || {
        let ended = Running::start(here, name, &[&[address.as_str()], arguments].concat()).finish();
        let is_early = ended.stderr.contains("refused") || ended.stderr.contains("nothing listens");
        attempts += 1;
        (!is_early || attempts == ATTEMPTS).then_some(ended)
    })
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn by_hand_reads_and_writes_the_servers_memory() {
    let server = start_server("by_hand", &[]);
    let client = visit("by_hand", &[]).went_well();
    let server = server.finish().went_well();
    assert!(client.contains("read 4096 bytes\nwritten 4096 bytes\n"), "{client}");
    assert!(server.contains("the client has written 4096 bytes"), "{server}");
    assert!(server.contains("on-chip"), "Soft-RoCE has none: {server}");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn ping_pong_waits_in_nine_ways() {
    let server = start_server("ping_pong", &["--count-clients", "9"]);
    for wait in ["busy", "channel", "poll"] {
        for events in ["blocking", "thread", "nonblocking"] {
            let arguments = ["--count", "20", "--size", "3000", "--wait", wait, "--events", events];
            let client = visit("ping_pong", &arguments).went_well();
            assert_eq!(client, "20 round trips of 3000 bytes\n", "{wait}, {events}");
        }
    }
    let server = server.finish().went_well();
    assert_eq!(server, "served 20 messages of 3000 bytes\n".repeat(9));
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn ping_pong_serves_several_clients_at_once() {
    let server = start_server("ping_pong", &["--count-clients", "4"]);
    let clients = [(); 4].map(|()| thread::spawn(|| visit("ping_pong", &["--count", "50"])));
    for client in clients {
        client.join().expect("a client ends").went_well();
    }
    server.finish().went_well();
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn ops_shows_every_operation() {
    let said = Running::start(places().1, "ops", &[]).finish().went_well();
    // Debian 12's kernel has neither ATOMIC WRITE nor FLUSH.
    let is_old = env::var("FARREACH_KERNEL").is_ok_and(|version| version.starts_with("6.1."));
    let ok = if is_old { 10 } else { 12 };
    assert_eq!(said.lines().filter(|line| line.ends_with(" ok")).count(), ok, "{said}");
    assert_eq!(said.lines().filter(|line| line.contains(" unsupported: ")).count(), 12 - ok, "{said}");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn batch_does_the_same_at_once_and_one_by_one() {
    let said = Running::start(places().1, "batch", &["--repetitions", "5"]).finish().went_well();
    let lines: Vec<&str> = said.lines().collect();
    let [one_by_one, at_once, ratio] = lines[..] else { panic!("{said}") };
    assert_eq!(one_by_one, "64 posts of one write: all 64 writes landed, 5 times");
    assert_eq!(at_once, "1 post of 64 writes: all 64 writes landed, 5 times");
    // The ratio depends on the machine.
    assert!(
        ratio.starts_with("64 posts took ") && ratio.contains("the median of 5 repetitions, from "),
        "{ratio}"
    );
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn many_queues_lose_nothing() {
    let here = places().1;
    let said =
        Running::start(here, "many_queues", &["--queues", "6", "--messages", "50"]).finish().went_well();
    let queues: String = (0..6).map(|number| format!("queue {number}: 50 sent, 50 received\n")).collect();
    assert_eq!(said, queues + "6 queues, 50 messages each way, none missing\n");
    Running::start(here, "many_queues", &["--queues", "3"]).finish().failed(2);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn failures_say_error_cause_and_fix() {
    let (_, here, address) = places();
    let nobody = Running::start(here, "ping_pong", &[&address, "--port", "18539"]).finish();
    nobody.failed(1);
    let wrong = Running::start(here, "ping_pong", &["serve", "--wait"]).finish();
    wrong.failed(2);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn blast_loses_nothing() {
    let server = start_server("blast", &[]);
    let client = visit("blast", &["--count", "500", "--size", "5000"]).went_well();
    assert!(client.starts_with("sent 500 messages of 5000 bytes: "), "{client}");
    assert_eq!(server.finish().went_well(), "received 500 messages of 5000 bytes\n");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn perf_measures_writes_messages_and_round_trips() {
    // Each side checks the bytes that it was sent.
    for (op, wait, figure) in
        [("write", "event", "mib_per_s"), ("send", "busy", "per_s"), ("ping", "event", "half_rtt_us")]
    {
        let server = start_server("perf", &[]);
        let client = visit("perf", &["--op", op, "--wait", wait, "--count", "40"]).went_well();
        assert!(client.contains(&format!("\"{figure}\":")), "{client}");
        assert_eq!(server.finish().went_well(), "listening on port 18533\n", "{op}");
    }
}
