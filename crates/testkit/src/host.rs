//! Tests that must run on one of the guest's hosts.

use std::env;
use std::io::{self, Write};
use std::process::Command;

/// Set in a process that was started on a host, so that it does not start another.
const ON_HOST: &str = "FARREACH_ON_HOST";

/// Runs the body of a test where the first host's device is usable.
///
/// In the guest with two hosts (`FARREACH_TOPOLOGY=two`), a test begins in a network namespace
/// without a device, and the whole test program is started again on host a, for this one test.
/// Elsewhere the body just runs.
///
/// `body` is a closure written in the test itself, or in a function that tests share: the name of
/// the test is that of its thread, or is contained in the closure's type.
#[track_caller]
pub fn on_host_a<F: FnOnce()>(body: F) {
    let is_two = env::var("FARREACH_TOPOLOGY").is_ok_and(|topology| topology == "two");
    if is_two && env::var_os(ON_HOST).is_none() {
        // A body that several tests share is not written in them, but their threads have their names.
        let thread = std::thread::current();
        let name = thread.name().filter(|name| name.contains("::"));
        run_again(Command::new("host").arg("a"), name.unwrap_or_else(|| test_name::<F>()));
    } else {
        body();
    }
}

/// Runs the body of a test in a network namespace of its own, without any link but those that it
/// creates: the whole test program is started again there, for this one test. It needs root.
///
/// `body` is a closure written in the test itself: its type contains the test's name.
#[track_caller]
pub fn in_own_network<F: FnOnce()>(body: F) {
    if env::var_os(ON_HOST).is_none() {
        run_again(Command::new("unshare").arg("--net"), test_name::<F>());
    } else {
        body();
    }
}

/// Set in a process that was started for one test.
const OWN_PROCESS: &str = "FARREACH_OWN_PROCESS";

/// Runs the body of a test in a process of its own, with these variables in its environment: for
/// settings that a C library reads once.
///
/// `body` is a closure written in the test itself: its type contains the test's name.
#[track_caller]
pub fn in_own_process<F: FnOnce()>(variables: &[(&str, &str)], body: F) {
    if env::var_os(OWN_PROCESS).is_none() {
        let mut launcher = Command::new("env");
        launcher.arg(format!("{OWN_PROCESS}=1"));
        launcher.args(variables.iter().map(|(name, value)| format!("{name}={value}")));
        run_again(&mut launcher, test_name::<F>());
    } else {
        body();
    }
}

/// Runs one test of this program with `launcher`, which takes a command as its arguments.
#[track_caller]
fn run_again(launcher: &mut Command, test: &str) {
    let program = env::current_exe().expect("Linux provides the path of a program");
    let output = launcher
        .arg(program)
        .args(["--include-ignored", "--exact", test, "--nocapture"])
        .env(ON_HOST, "a")
        .output()
        .unwrap_or_else(|error| panic!("cannot run {launcher:?}: {error}"));
    let told =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // A name that matches no test would pass.
    let ran = output.status.success() && told.contains("test result: ok. 1 passed");
    assert!(ran, "{test} on the other host: {}\n{told}", output.status);
    // The output of a test that passes is printed here, too.
    let _ = io::stderr().write_all(&output.stderr);
}

/// Returns the path of the function that a closure is written in, without the crate.
fn test_name<F>() -> &'static str {
    let path = std::any::type_name::<F>();
    let function = path.trim_end_matches("::{{closure}}");
    assert_ne!(function, path, "a closure written in the test itself");
    function.split_once("::").expect("a crate comes first").1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of<F: FnOnce()>(_: F) -> &'static str {
        test_name::<F>()
    }

    #[test]
    fn a_closure_tells_its_test() {
        assert_eq!(name_of(|| ()), "host::tests::a_closure_tells_its_test");
        let within = || name_of(|| ());
        assert_eq!(within(), "host::tests::a_closure_tells_its_test");
    }

    #[test]
    fn a_process_of_a_tests_own_has_its_variables() {
        in_own_process(&[("FARREACH_TEST_VARIABLE", "7")], || {
            assert_eq!(env::var("FARREACH_TEST_VARIABLE").as_deref(), Ok("7"));
        });
        assert_eq!(env::var_os("FARREACH_TEST_VARIABLE").is_some(), env::var_os(OWN_PROCESS).is_some());
    }

    #[test]
    fn a_test_runs_again_elsewhere() {
        if env::var_os(ON_HOST).is_none() {
            run_again(&mut Command::new("env"), name_of(|| ()));
        }
    }

    #[test]
    #[should_panic(expected = "0 passed")]
    fn a_name_that_matches_no_test_fails() {
        run_again(&mut Command::new("env"), "host::tests::no_such_test");
    }

    #[test]
    #[should_panic(expected = "1 failed")]
    fn what_fails_elsewhere_fails_here() {
        assert!(env::var_os(ON_HOST).is_none(), "elsewhere");
        run_again(&mut Command::new("env"), name_of(|| ()));
    }
}
