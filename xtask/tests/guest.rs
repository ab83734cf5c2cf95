//! Tests of the guest itself: it boots, runs its command, reports the exit code, and ends.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Runs `cargo xtask vm run WORDS`.
fn vm_run(words: &[&str]) -> Output {
    vm().args(words).output().expect("xtask starts")
}

fn vm() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["vm", "run"]);
    command
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("text")
}

#[test]
#[ignore = "boots a guest: cargo xtask vm test runs it"]
fn a_command_has_its_streams_and_its_exit_code() {
    let output = vm_run(&["--", "sh", "-c", "echo out; echo err >&2; pwd; exit 7"]);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("out\n{}\n", repository.display()));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.lines().any(|line| line == "err"), "{stderr}");

    // "guest: Linux 7.2.13, Debian unstable (…), up in 9.8 s"
    let seconds = stderr.split("up in ").nth(1).and_then(|rest| rest.split(' ').next());
    let seconds: f32 = seconds.and_then(|number| number.parse().ok()).expect("the boot time is told");
    // About 10 s without other load; longer beside another guest.
    assert!(seconds < 45.0, "booting took {seconds} s");
}

#[test]
#[ignore = "boots a guest: cargo xtask vm test runs it"]
fn a_guest_that_hangs_is_ended_at_its_limit() {
    let started = Instant::now();
    let output = vm_run(&["--limit", "3", "--", "sleep", "1000"]);
    assert_eq!(output.status.code(), Some(124), "{output:?}");
    assert!(started.elapsed() < Duration::from_secs(120));
    let stderr = String::from_utf8_lossy(&output.stderr);
    let log = stderr.split("kernel log is ").nth(1).and_then(|rest| rest.split(',').next());
    assert!(Path::new(log.expect("the log is named")).is_file(), "{stderr}");
}

#[test]
#[ignore = "boots a guest: cargo xtask vm test runs it"]
fn what_fails_after_a_fault_of_the_kernel_runs_once_more() {
    let runs_of = |script: &str| {
        let output = vm_run(&["--retry-on-kernel-fault", "--", "sh", "-c", script]);
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stdout).matches("it runs").count()
    };
    assert_eq!(runs_of("echo it runs; echo BUG: of a test > /dev/kmsg; exit 3"), 2);
    assert_eq!(runs_of("echo it runs; sleep 1; echo c > /proc/sysrq-trigger; sleep 100"), 2);
    assert_eq!(runs_of("echo it runs; exit 3"), 1);
}

#[test]
#[ignore = "boots a guest: cargo xtask vm test runs it"]
fn a_guest_does_not_outlive_its_task() {
    let mut task =
        vm().args(["--", "sleep", "1000"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let children = PathBuf::from(format!("/proc/{0}/task/{0}/children", task.id()));
    let is_qemu = |child: &u32| {
        let name = std::fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
        name.starts_with("qemu")
    };
    let qemu = within(Duration::from_secs(60), || {
        let listed = std::fs::read_to_string(&children).unwrap_or_default();
        listed.split_whitespace().filter_map(|id| id.parse().ok()).find(is_qemu)
    });
    task.kill().unwrap();
    task.wait().unwrap();
    // Gone, or another process by now.
    within(Duration::from_secs(10), || (!is_qemu(&qemu)).then_some(()));
}

#[test]
#[ignore = "boots a guest: cargo xtask vm test runs it"]
fn perftest_runs_between_two_hosts() {
    // The client starts when the server listens on its port 18515, which /proc writes as 4853. Each
    // side has its own file, because they write at the same time.
    let script = "host b ib_send_bw -d rxeb -n 200 > /tmp/b &
        host b sh -c 'until cat /proc/net/tcp /proc/net/tcp6 | grep -q \":4853 .* 0A \"; do sleep 0.1; done'
        host a ib_send_bw -d rxea -n 200 192.0.2.2 > /tmp/a; wait $!; cat /tmp/a; echo; cat /tmp/b";
    let words = ["--limit", "120", "--", "sh", "-c", script];
    let mut output = vm_run(&[&["--topology", "two"], words.as_slice()].concat());
    // An older kernel, if the archive does not have the newest; then two guests are the way to have
    // two hosts.
    if String::from_utf8_lossy(&output.stderr).contains("fix: use --two-guests") {
        output = vm_run(&[&["--two-guests"], words.as_slice()].concat());
    }
    let text = stdout(&output);
    // "65536  200  BW-peak  BW-average  MsgRate", once from each side.
    let figures = text.lines().filter(|line| {
        let columns: Vec<_> = line.split_whitespace().collect();
        columns.len() == 5 && columns[0] == "65536" && columns[3].parse().is_ok_and(|rate: f64| rate > 0.0)
    });
    assert_eq!(figures.count(), 2, "{text}");
}

#[test]
#[ignore = "boots a guest: cargo xtask vm test runs it"]
fn memory_is_as_asked_for() {
    let script = "ls -d /sys/devices/system/node/node*; grep HugePages_Total /proc/meminfo";
    let text = stdout(&vm_run(&[
        "--numa",
        "2",
        "--hugepages",
        "16",
        "--topology",
        "none",
        "--",
        "sh",
        "-c",
        script,
    ]));
    let words: Vec<_> = text.split_whitespace().collect();
    let nodes = ["/sys/devices/system/node/node0", "/sys/devices/system/node/node1"];
    assert_eq!(words, [nodes[0], nodes[1], "HugePages_Total:", "16"]);
}

#[test]
#[ignore = "boots a guest: cargo xtask vm test runs it"]
fn counted_time_is_the_same_for_the_same_work() {
    let script = "for round in 1 2 3 4; do
        before=$(date +%s%N); i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done
        echo $(($(date +%s%N) - before)); done";
    let text = stdout(&vm_run(&["--icount", "--topology", "none", "--", "sh", "-c", script]));
    // The first round loads the programs.
    let rounds: Vec<u64> = text.lines().skip(1).map(|line| line.parse().expect("nanoseconds")).collect();
    let (least, most) = (rounds.iter().min().unwrap(), rounds.iter().max().unwrap());
    assert!(most - least < least / 20, "{rounds:?}");
}

#[test]
#[ignore = "boots two guests: cargo xtask vm test runs it"]
fn the_second_of_two_guests_can_be_reached() {
    let script = "host a rdma link; host b rdma link; host b sh -c 'echo \"it is $1\"; exit 3' - \"b's turn\"; echo $?";
    let text = stdout(&vm_run(&["--kernel", "debian12", "--two-guests", "--", "sh", "-c", script]));
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    assert!(lines[0].starts_with("link rxea/1 state ACTIVE"), "{text}");
    assert!(lines[1].starts_with("link rxeb/1 state ACTIVE"), "{text}");
    assert_eq!(lines[2..], ["it is b's turn", "3"]);
}

#[test]
#[ignore = "looks into the cache of kernels: cargo xtask vm test runs it"]
fn what_a_kernel_cannot_do_is_said_before_it_boots() {
    let output = vm_run(&["--kernel", "debian12", "--topology", "two", "--", "true"]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("fix: use --two-guests"), "{stderr}");
}

/// Returns what `look` finds. Waits at most for `limit`.
fn within<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "nothing in {} s", limit.as_secs());
        std::thread::sleep(Duration::from_millis(50));
    }
}
