//! Device tests: the test programs named `device_…`, run on real RDMA in guests.

use anyhow::{Result, bail};

use super::kernel::KernelChoice;
use super::spec::{GuestSpec, Task, Topology};
use crate::binaries::{TestBinary, build_release_example, test_binaries};

/// The guests that device tests run in, as words for `cargo xtask vm run`: both kernels, both topologies, both user spaces. Every
/// test runs in each, but for those [`APART`].
const GUESTS: [&[&str]; 4] = [
    &["--kernel", "newest", "--topology", "one"],
    &["--kernel", "newest", "--topology", "two"],
    &["--kernel", "debian12", "--topology", "one"],
    &["--kernel", "debian12", "--two-guests"],
];

/// What every one of them has beside: memory of all kinds.
const EVERY_GUEST: [&str; 4] = ["--numa", "2", "--hugepages", "64"];

/// Tests that only some guests run, by the module that they are in. The others count them as skipped, with the reason.
struct Apart {
    module: &'static str,
    is_run_in: fn(&GuestSpec) -> bool,
    reason: &'static str,
}

const APART: [Apart; 4] = [
    Apart { module: "two_hosts::", is_run_in: has_two_hosts, reason: "need two hosts" },
    Apart {
        module: "two_devices::",
        is_run_in: |spec| spec.topology == Topology::Two && !spec.two_guests,
        reason: "need two devices in one process: the guest of the newest kernel with two hosts has them",
    },
    Apart {
        module: "verbs_under_rxm::",
        is_run_in: |spec| !has_two_hosts(spec),
        reason: "stay on one host: one-host guests of both kernels run them",
    },
    Apart {
        module: "one_guest::",
        is_run_in: |spec| spec.kernel == KernelChoice::Newest && !has_two_hosts(spec),
        reason: "are the same everywhere: the newest kernel with one host runs them",
    },
];

fn has_two_hosts(spec: &GuestSpec) -> bool {
    spec.two_guests || spec.topology == Topology::Two
}

/// One test program may take so long before it counts as hung.
const PROGRAM_LIMIT_S: u32 = 480;

/// `cargo xtask vm test`
#[derive(Debug, Default, clap::Args)]
pub(crate) struct TestArgs {
    /// Run only the guests whose words contain this, such as `debian12` or `two`.
    #[arg(long, value_name = "WORD")]
    guest: Option<String>,

    /// Run only the tests whose names contain this.
    filter: Option<String>,
}

impl TestArgs {
    /// Whether nothing is left out.
    pub(crate) fn is_everything(&self) -> bool {
        self.guest.is_none() && self.filter.is_none()
    }
}

/// Runs every device test in each guest; an error if one failed or none ran.
pub(crate) fn run(args: &TestArgs) -> Result<()> {
    let binaries = test_binaries("device_")?;
    build_release_example("farreach-verbs", "cost")?;
    let mut failed = Vec::new();
    let mut guests = 0;
    for words in GUESTS {
        let words = [words, &EVERY_GUEST].concat();
        let name = words.join(" ");
        if args.guest.as_ref().is_some_and(|wanted| !name.contains(wanted.as_str())) {
            continue;
        }
        guests += 1;
        println!("── device tests in a guest: {name}");
        let spec = GuestSpec::from_words(&words);
        // The newest kernel may be an older one where the archive does not give the newest suite.
        if let Some(reason) = super::lacking(&spec, &spec.kernel.get()?) {
            println!("skipped: {reason}");
            continue;
        }
        let script = script(&spec, &binaries, args.filter.as_deref())?;
        let task = Task::Command(vec!["sh".into(), "-c".into(), script]);
        if super::guest(&spec, task)? != 0 {
            failed.push(name);
        }
    }
    if guests == 0 {
        bail!("no guest is called {:?}", args.guest);
    }
    if !failed.is_empty() {
        bail!("device tests failed in: {}", failed.join("; "));
    }
    Ok(())
}

/// Runs each program where cargo would and counts. No test having run is a failure, never a pass.
fn script(spec: &GuestSpec, binaries: &[TestBinary], filter: Option<&str>) -> Result<String> {
    let left_out: Vec<&Apart> = APART.iter().filter(|apart| !(apart.is_run_in)(spec)).collect();
    let mut words: Vec<String> = filter.iter().map(|filter| format!("'{filter}'")).collect();
    words.extend(left_out.iter().map(|apart| format!("--skip '{}'", apart.module)));
    let words = words.join(" ");
    let mut script = String::from("failed=0\n");
    for binary in binaries {
        script.push_str(&format!(
            "cd '{}' && timeout {PROGRAM_LIMIT_S} '{}' {words} --ignored --test-threads=1 > /tmp/out 2>&1 || failed=1\n\
             echo '{}'; cat /tmp/out; cat /tmp/out >> /tmp/all\n",
            binary.directory.display(),
            binary.path()?,
            binary.name,
        ));
    }
    script.push_str(COUNT);
    for apart in left_out {
        let mut count = 0;
        for binary in binaries {
            count += count_in(apart.module, &binary.ignored()?, filter);
        }
        if count > 0 {
            script.push_str(&format!("echo 'device: {count} skipped, which {}'\n", apart.reason));
        }
    }
    script.push_str("exit $failed\n");
    Ok(script)
}

/// How many of the tests are in the module, and would be run. As libtest has it: a part of the name is enough.
fn count_in(module: &str, tests: &[String], filter: Option<&str>) -> usize {
    let is_wanted =
        |test: &&String| test.contains(module) && filter.is_none_or(|filter| test.contains(filter));
    tests.iter().filter(is_wanted).count()
}

/// Adds up libtest's closing lines.
const COUNT: &str = r#"
awk '/^test result:/ { passed += $4; failed += $6 } END {
    printf "device: %d passed, %d failed\n", passed, failed
    exit passed == 0
}' /tmp/all || { echo "no device test ran" >&2; failed=1; }
[ $failed = 0 ] || { echo "kernel log:" >&2; dmesg | tail -n 30 >&2; }
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_can_stand_between_quotes() {
        assert!(APART.iter().all(|apart| !apart.reason.contains('\'')), "the shell would go on reading");
    }

    #[test]
    fn what_a_guest_leaves_out_is_what_it_cannot_show() {
        let left_out = |words: &[&str]| {
            let spec = GuestSpec::from_words(words);
            APART
                .iter()
                .filter(|apart| !(apart.is_run_in)(&spec))
                .map(|apart| apart.module)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            GUESTS.map(left_out),
            [
                vec!["two_hosts::", "two_devices::"],
                vec!["verbs_under_rxm::", "one_guest::"],
                vec!["two_hosts::", "two_devices::", "one_guest::"],
                vec!["two_devices::", "verbs_under_rxm::", "one_guest::"],
            ]
        );
    }

    #[test]
    fn only_what_the_filter_lets_through_is_counted() {
        let tests = ["two_hosts::cut", "two_hosts::removed", "cut"].map(str::to_owned);
        assert_eq!(count_in("two_hosts::", &tests, None), 2);
        assert_eq!(count_in("two_hosts::", &tests, Some("cut")), 1);
    }
}
