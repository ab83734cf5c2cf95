//! Device tests: the test programs named `device_…`, run on real RDMA in guests.

use anyhow::{Result, bail};

use super::spec::{GuestSpec, Task};
use crate::binaries::{TestBinary, test_binaries};

/// The guests that device tests run in, as words for `cargo xtask vm run`. Every test runs in each: both
/// kernels, both topologies, both user spaces.
const GUESTS: [&[&str]; 4] = [
    &["--kernel", "newest", "--topology", "one"],
    &["--kernel", "newest", "--topology", "two"],
    &["--kernel", "debian12", "--topology", "one"],
    &["--kernel", "debian12", "--two-guests"],
];

/// What every one of them has beside: memory of all kinds.
const EVERY_GUEST: [&str; 4] = ["--numa", "2", "--hugepages", "64"];

/// One test program may take so long before it counts as hung.
const PROGRAM_LIMIT_S: u32 = 300;

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
    let script = script(&binaries, args.filter.as_deref())?;
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
        let task = Task::Command(vec!["sh".into(), "-c".into(), script.clone()]);
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
fn script(binaries: &[TestBinary], filter: Option<&str>) -> Result<String> {
    let mut script = String::from("failed=0\n");
    for binary in binaries {
        let filter = filter.map(|filter| format!("'{filter}' ")).unwrap_or_default();
        script.push_str(&format!(
            "cd '{}' && timeout {PROGRAM_LIMIT_S} '{}' {filter}--ignored --test-threads=1 > /tmp/out 2>&1 || failed=1\n\
             echo '{}'; cat /tmp/out; cat /tmp/out >> /tmp/all\n",
            binary.directory.display(),
            binary.path()?,
            binary.name,
        ));
    }
    script.push_str(COUNT);
    Ok(script)
}

/// Adds up libtest's closing lines.
const COUNT: &str = r#"
awk '/^test result:/ { passed += $4; failed += $6 } END {
    printf "device: %d passed, %d failed\n", passed, failed
    exit passed == 0
}' /tmp/all || { echo "no device test ran" >&2; failed=1; }
[ $failed = 0 ] || { echo "kernel log:" >&2; dmesg | tail -n 30 >&2; }
exit $failed
"#;
