//! Device tests: the test programs named `device_…`, run on real RDMA in guests.

use anyhow::{Result, ensure};

use super::kernel::KernelChoice;
use super::spec::{GuestSpec, Topology};
use crate::attempts::AttemptArgs;
use crate::binaries::{TestBinary, build_release_example, test_binaries};
use crate::paths;
use crate::side_by_side::{self, AfterFailure, Job};

/// The guests that device tests run in, as words for `cargo xtask vm run`: both kernels, both topologies, both user spaces. Every
/// test runs in each, but for those [`APART`].
///
/// They begin in this order, and what takes longest stands first.
const GUESTS: [&[&str]; 4] = [
    &["--kernel", "newest", "--topology", "one"],
    &["--kernel", "newest", "--topology", "two"],
    &["--kernel", "debian12", "--topology", "one"],
    &["--kernel", "debian12", "--two-guests"],
];

/// One at a time leaves half of a small machine idle; more than two would be too slow for what the tests wait for.
const GUESTS_AT_ONCE: usize = 2;

/// What every one of them has beside: memory of all kinds, and time for a machine that is busy.
const EVERY_GUEST: [&str; 6] = ["--numa", "2", "--hugepages", "64", "--limit", "2400"];

/// Tests that only some guests run. Of the others it is told how many they leave out, and why.
struct Apart {
    tests: Tests,
    is_run_in: fn(&GuestSpec) -> bool,
    reason: &'static str,
}

enum Tests {
    /// All in a module of this name.
    In(&'static str),
    /// All of these programs.
    Of(&'static [&'static str]),
}

const APART: [Apart; 7] = [
    Apart { tests: Tests::In("two_hosts::"), is_run_in: has_two_hosts, reason: "need two hosts" },
    Apart {
        tests: Tests::In("two_devices::"),
        is_run_in: |spec| spec.topology == Topology::Two && !spec.two_guests,
        reason: "need two devices in one process: the guest of the newest kernel with two hosts has them",
    },
    Apart {
        tests: Tests::In("verbs_under_rxm::"),
        is_run_in: |spec| !has_two_hosts(spec),
        reason: "stay on one host: one-host guests of both kernels run them",
    },
    Apart {
        tests: Tests::In("one_guest::"),
        is_run_in: |spec| spec.kernel == KernelChoice::Newest && !has_two_hosts(spec),
        reason: "are the same everywhere: the newest kernel with one host runs them",
    },
    Apart {
        tests: Tests::Of(&[
            "device_bench",
            "device_chip",
            "device_crowd",
            "device_doctor",
            "device_doctor_pair",
            "device_doctor_reads",
            "device_doctor_way",
            "device_failures",
        ]),
        is_run_in: |spec| spec.kernel == KernelChoice::Newest,
        reason: "are of the command, which is the same on every kernel: device_commands runs on each",
    },
    Apart {
        tests: Tests::Of(&[
            "device_alloc",
            "device_cache",
            "device_cm",
            "device_datagram",
            "device_doctor_reads",
            "device_loopback",
            "device_objects",
            "device_pages",
            "device_post",
            "device_scale",
        ]),
        is_run_in: |spec| !has_two_hosts(spec),
        reason: "are of one process with itself, whatever its network is: one-host guests of both kernels run them",
    },
    Apart {
        tests: Tests::Of(&["device_devices", "device_examples", "device_provider_verbs"]),
        // In a namespace, a device has other addresses than elsewhere. Each of two machines is one host.
        is_run_in: |spec| !spec.two_guests,
        reason: "do not know of the second machine: the guest of this kernel with one host runs them",
    },
];

fn has_two_hosts(spec: &GuestSpec) -> bool {
    spec.two_guests || spec.topology == Topology::Two
}

/// One test program may take so long before it counts as hung.
const PROGRAM_LIMIT_S: u32 = 900;

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
    side_by_side::run(jobs(args)?, GUESTS_AT_ONCE, AfterFailure::GoOn).map(drop)
}

/// Tests the guest itself, beside the device tests.
pub(crate) fn run_everything() -> Result<()> {
    let mut jobs = jobs(&TestArgs::default())?;
    let words = ["test", "--package", "xtask", "--", "--ignored", "--test-threads=1"];
    jobs.push(Job::new("the guest itself", "cargo", words));
    side_by_side::run(jobs, GUESTS_AT_ONCE, AfterFailure::GoOn).map(drop)
}

/// One for each guest: `cargo xtask vm run`, with its words.
fn jobs(args: &TestArgs) -> Result<Vec<Job>> {
    let programs = programs()?;
    build_release_example("farreach-verbs", "cost")?;
    let mut jobs = Vec::new();
    for guest in GUESTS {
        let name = guest.join(" ");
        if args.guest.as_ref().is_some_and(|wanted| !name.contains(wanted.as_str())) {
            continue;
        }
        let words = [guest, &EVERY_GUEST].concat();
        let spec = GuestSpec::from_words(&words);
        // The newest kernel may be an older one where the archive does not give the newest suite.
        if let Some(reason) = super::lacking(&spec, &spec.kernel.get()?) {
            println!("── {name}: skipped: {reason}");
            continue;
        }
        let choice = choose(&spec, &programs, args.filter.as_deref());
        if choice.count == 0 {
            println!("── {name}: skipped: no test of that name runs there");
            continue;
        }
        for (count, reason) in &choice.left_out {
            println!("── {name}: {count} tests are not run there, which {reason}");
        }
        jobs.push(Job::task(name, choice.task(&words)?));
    }
    ensure!(!jobs.is_empty(), "no guest is called so, or none has a test that is");
    Ok(jobs)
}

/// A test program, and its tests that need a device.
struct Program {
    binary: TestBinary,
    tests: Vec<String>,
}

fn programs() -> Result<Vec<Program>> {
    let with_tests = |binary: TestBinary| Ok(Program { tests: binary.ignored()?, binary });
    test_binaries("device_")?.into_iter().map(with_tests).collect()
}

/// What a guest runs, and what it leaves out.
struct Choice<'a> {
    binaries: Vec<&'a TestBinary>,
    /// What libtest is told: which names, and which not.
    words: Vec<String>,
    /// How many tests are run.
    count: usize,
    /// How many are not, with the reason.
    left_out: Vec<(usize, &'static str)>,
}

fn choose<'a>(spec: &GuestSpec, programs: &'a [Program], filter: Option<&str>) -> Choice<'a> {
    let apart: Vec<&Apart> = APART.iter().filter(|apart| !(apart.is_run_in)(spec)).collect();
    let mut words: Vec<String> = filter.iter().map(|filter| (*filter).to_owned()).collect();
    words.extend(apart.iter().filter_map(|apart| match apart.tests {
        Tests::In(module) => Some(format!("--skip={module}")),
        Tests::Of(_) => None,
    }));
    let mut left_out: Vec<_> = apart.iter().map(|apart| (0, apart.reason)).collect();
    let (mut binaries, mut count) = (Vec::new(), 0);
    for Program { binary, tests } in programs {
        let before = count;
        // As libtest has it: a part of the name is enough.
        for test in tests.iter().filter(|test| filter.is_none_or(|filter| test.contains(filter))) {
            match apart.iter().position(|apart| apart.tests.hold(&binary.name, test)) {
                Some(index) => left_out[index].0 += 1,
                None => count += 1,
            }
        }
        if count > before {
            binaries.push(binary);
        }
    }
    left_out.retain(|(count, _)| *count > 0);
    Choice { binaries, words, count, left_out }
}

impl Choice<'_> {
    /// `cargo xtask vm run GUEST -- xtask attempt …`: this very program counts inside, too.
    fn task(&self, guest: &[&str]) -> Result<Vec<String>> {
        let attempt = AttemptArgs::words(&self.binaries, &self.words, self.count, PROGRAM_LIMIT_S)?;
        let this = paths::target().join("debug/xtask").display().to_string();
        let mut task = vec!["vm".to_owned(), "run".to_owned()];
        task.extend(guest.iter().map(|word| (*word).to_owned()));
        task.extend(["--".to_owned(), this, "attempt".to_owned()]);
        task.extend(attempt);
        Ok(task)
    }
}

impl Tests {
    fn hold(&self, program: &str, test: &str) -> bool {
        match self {
            Self::In(module) => test.contains(module),
            Self::Of(programs) => programs.contains(&program),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// Tests as names of their programs and their own.
    fn programs(tests: &[(&str, &[&str])]) -> Vec<Program> {
        let program = |(name, tests): &(&str, &[&str])| Program {
            binary: TestBinary {
                name: (*name).to_owned(),
                executable: format!("/build/{name}").into(),
                directory: "/".into(),
            },
            tests: tests.iter().map(|test| (*test).to_owned()).collect(),
        };
        tests.iter().map(program).collect()
    }

    fn in_each_guest<T>(look: impl Fn(&GuestSpec) -> T) -> [T; 4] {
        GUESTS.map(|words| look(&GuestSpec::from_words(words)))
    }

    #[test]
    fn what_a_guest_leaves_out_is_what_it_cannot_show_or_another_shows_as_well() {
        let programs = programs(&[
            ("device_faults", &["killed", "two_hosts::cut"]),
            ("device_provider_verbs", &["closing", "two_devices::link"]),
            ("device_post", &["send", "one_guest::long"]),
            ("device_suite", &["verbs_under_rxm::write"]),
        ]);
        let counts = in_each_guest(|spec| {
            let choice = choose(spec, &programs, None);
            let left_out: usize = choice.left_out.iter().map(|(count, _)| count).sum();
            assert_eq!(choice.count + left_out, 7);
            choice.count
        });
        assert_eq!(counts, [5, 4, 4, 2]);
    }

    #[test]
    fn only_what_the_filter_lets_through_is_run_and_counted() {
        let programs = programs(&[
            ("device_faults", &["two_hosts::cut", "two_hosts::removed", "cut"]),
            ("device_wire", &["class"]),
        ]);
        let counts = in_each_guest(|spec| choose(spec, &programs, Some("cut")).count);
        assert_eq!(counts, [1, 2, 1, 2]);
        let choice = choose(&GuestSpec::from_words(GUESTS[0]), &programs, Some("cut"));
        assert_eq!(choice.left_out, [(1, "need two hosts")]);
        assert_eq!(choice.binaries.len(), 1, "no program is started that has nothing to run");
    }

    #[test]
    fn every_program_that_is_named_is_there() {
        let crates = std::fs::read_dir(paths::repository().join("crates")).unwrap();
        let folders: Vec<_> = crates.map(|krate| krate.unwrap().path().join("tests")).collect();
        for apart in &APART {
            let Tests::Of(programs) = apart.tests else { continue };
            for program in programs {
                let is_there = |folder: &PathBuf| {
                    folder.join(format!("{program}.rs")).exists()
                        || folder.join(program).join("main.rs").exists()
                };
                assert!(folders.iter().any(is_there), "there is no {program}");
            }
        }
    }
}
