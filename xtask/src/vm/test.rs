//! Device tests: the test programs named `device`, run on real RDMA in guests.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::kernel::KernelChoice;
use super::spec::{GuestSpec, Topology};
use crate::attempts::{self, Program};
use crate::binaries::{Tier, build_dist_example, test_binaries};
use crate::paths;
use crate::side_by_side::{self, AfterFailure, Job};

/// The guests for device tests, as arguments of `cargo xtask vm run`: both kernels, both
/// topologies, both user spaces. Every test runs in each guest, except for those in [`APART`].
///
/// They start in this order, the longest first.
const GUESTS: [&[&str]; 4] = [
    &["--kernel", "newest", "--topology", "one"],
    &["--kernel", "newest", "--topology", "two"],
    &["--kernel", "debian12", "--topology", "one"],
    &["--kernel", "debian12", "--two-guests"],
];

/// The number of guests that run at the same time. One would leave half of a small machine idle;
/// more than two would be too slow for the timeouts of the tests.
const GUESTS_AT_ONCE: usize = 2;

/// The additional arguments of every guest: memory of all kinds, enough time for a busy machine,
/// and a second guest if a kernel fault ends the first.
const EVERY_GUEST: [&str; 7] =
    ["--numa", "2", "--hugepages", "64", "--limit", "3600", "--retry-on-kernel-fault"];

/// Tests that only some guests run. For the others, the number of skipped tests and the reason are
/// printed.
struct Apart {
    tests: Tests,
    is_run_in: fn(&GuestSpec) -> bool,
    when: When,
    reason: &'static str,
}

/// The condition of a rule of [`APART`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Always,
    /// With `--short`.
    Short,
}

enum Tests {
    /// All tests in a module of this name.
    In(&'static str),
    /// All tests whose crate and name begin with one of these: `cli bench::`, or `memory ` for a
    /// whole crate.
    Of(&'static [&'static str]),
}

const APART: &[Apart] = &[
    Apart {
        tests: Tests::In("two_hosts::"),
        is_run_in: has_two_hosts,
        when: When::Always,
        reason: "need two hosts",
    },
    Apart {
        tests: Tests::In("two_devices::"),
        is_run_in: |spec| spec.topology == Topology::Two && !spec.two_guests,
        when: When::Always,
        reason: "need two devices in one process: the guest of the newest kernel with two hosts has them",
    },
    Apart {
        tests: Tests::In("verbs_under_rxm::"),
        is_run_in: |spec| !has_two_hosts(spec),
        when: When::Always,
        reason: "stay on one host: one-host guests of both kernels run them",
    },
    Apart {
        tests: Tests::In("one_guest::"),
        is_run_in: |spec| spec.kernel == KernelChoice::Newest && !has_two_hosts(spec),
        when: When::Always,
        reason: "do not depend on the guest: the newest kernel with one host runs them",
    },
    Apart {
        tests: Tests::Of(&[
            "cli bench::",
            "cli chip::",
            "cli crowd::",
            "cli doctor::",
            "cli doctor_pair::",
            "cli doctor_reads::",
            "cli doctor_way::",
            "cli failures::",
        ]),
        is_run_in: |spec| spec.kernel == KernelChoice::Newest,
        when: When::Always,
        reason: "test the command, which does not depend on the kernel: `cli commands` runs on each",
    },
    Apart {
        tests: Tests::Of(&[
            "cli doctor_reads::",
            "fabric cache::",
            "memory ",
            "verbs alloc::",
            "verbs cm::",
            "verbs datagram::",
            "verbs objects::",
            "verbs post::",
            "verbs scale::",
            "verbs-sys ",
        ]),
        is_run_in: |spec| !has_two_hosts(spec),
        when: When::Always,
        reason: "use one process and no network: one-host guests of both kernels run them",
    },
    Apart {
        tests: Tests::Of(&["cli devices::", "engine rails_verbs::", "verbs examples::"]),
        // In a namespace, a device has other addresses than elsewhere. Each of two machines is one
        // host.
        is_run_in: |spec| !spec.two_guests,
        when: When::Always,
        reason: "do not use the second machine: the guest of this kernel with one host runs them",
    },
    Apart {
        tests: Tests::Of(&[
            // Unit tests of the command cover what each fault means, as a function of data.
            "cli doctor_pair::two_hosts::dropped_packets_are_told_by_their_direction",
            "cli doctor_pair::two_hosts::full_packets_that_are_lost_are_told_with_the_size_that_works",
            "cli doctor_pair::two_hosts::ports_of_unlike_mtu_are_a_warning",
            "cli doctor_way::two_hosts::",
            "cli doctor::one_guest::a_card_without_an_ipv4_gid_is_told",
            "cli doctor::one_guest::a_control_group_that_has_no_queue_pair_left_is_told",
            "cli doctor::one_guest::a_net_device_with_small_packets_is_told",
            "cli doctor::one_guest::memory_that_may_not_be_locked_is_told_in_bytes",
            "cli doctor::one_guest::without_huge_pages_some_are_reserved",
            // The library tests contain the same over tcp and shared memory.
            "cli chip::one_guest::",
            "cli crowd::one_guest::",
            "cli faults::one_guest::agents_that_are_killed_end_their_tests",
            "cli faults::one_guest::agents_that_are_stopped_end_their_tests",
            "fabric programs::one_guest::soft_roce::a_",
            "fabric programs::one_guest::soft_roce::nonsense_is_refused_with_a_reason",
            "fabric programs::one_guest::soft_roce::sixteen_clients_are_served_at_once",
            "fabric programs::one_guest::soft_roce::small_and_middle_pages_are_verified",
            "engine over_soft_roce::one_guest::verbs_under_rxm::",
            "engine real_faults::one_guest::a_peer_that_does_not_answer_and_goes_on_changes_nothing",
            "engine real_faults::one_guest::a_peer_that_has_promised_to_stop_and_goes_on_changes_nothing",
            "engine real_faults::one_guest::a_receiver_that_is_stopped_is_lost",
            "engine real_faults::one_guest::a_sender_that_is_stopped_is_lost_and_nothing_of_it_lands_when_it_goes_on",
            // No other test covers these.
            "cli failures::two_hosts::packets_that_a_firewall_drops_are_told_from_a_peer_that_is_gone",
        ]),
        is_run_in: |_| false,
        when: When::Short,
        reason: "take long: `cargo xtask vm test` without --short runs them",
    },
    Apart {
        tests: Tests::Of(&[
            "cli bench::",
            "cli chip::",
            "cli devices::",
            "engine rails_verbs::closing::",
            "engine rails_verbs::costs::",
            "engine rails_verbs::faults::",
            "engine rails_verbs::links::",
            "engine rails_verbs::messages::",
            "engine rails_verbs::naming::",
            "engine rails_verbs::requests::",
            "engine rails_verbs::sleeping::",
            "verbs examples::",
        ]),
        is_run_in: |spec| !has_two_hosts(spec),
        when: When::Short,
        reason: "do the same on one host: `cargo xtask vm test` without --short runs them on two as well",
    },
];

fn has_two_hosts(spec: &GuestSpec) -> bool {
    spec.two_guests || spec.topology == Topology::Two
}

/// `cargo xtask vm test`
#[derive(Debug, Default, clap::Args)]
pub(crate) struct TestArgs {
    /// Run only the guests whose description contains this, such as `debian12` or `two`.
    #[arg(long, value_name = "WORD")]
    guest: Option<String>,

    /// Test the guest itself instead: booting, streams, exit codes, limits.
    #[arg(long, conflicts_with_all = ["guest", "filter"])]
    itself: bool,

    /// Skip the long tests, and on two hosts those that also run on one.
    #[arg(long)]
    short: bool,

    /// Print the durations of the slowest tests.
    #[arg(long)]
    times: bool,

    /// Run the tests this many times instead of once.
    #[arg(skip)]
    runs: Option<u32>,

    /// Run only the tests whose names contain this.
    filter: Option<String>,
}

/// Runs every device test in each guest, or the selected ones. Fails if a test fails or none ran.
pub(crate) fn run(args: &TestArgs) -> Result<()> {
    if args.itself {
        return side_by_side::run(vec![itself()], 1, AfterFailure::GoOn);
    }
    let lists = paths::target().join("vm");
    std::fs::create_dir_all(&lists)?;
    // Below the target folder, which is visible in guests.
    let lists = tempfile::tempdir_in(lists).context("cannot create a folder for lists of tests")?;
    let mut jobs = jobs(args, lists.path())?;
    if args.guest.is_none() && args.filter.is_none() {
        jobs.push(itself());
    }
    side_by_side::run(jobs, GUESTS_AT_ONCE, AfterFailure::GoOn)
}

/// Runs device tests whose names contain `filter` repeatedly, in each guest whose description
/// contains `guest`.
pub(crate) fn repeat(guest: &str, filter: &str, runs: u32) -> Result<()> {
    let args = TestArgs {
        guest: Some(guest.to_owned()),
        filter: Some(filter.to_owned()),
        runs: Some(runs),
        ..TestArgs::default()
    };
    run(&args)
}

impl TestArgs {
    fn has_asked_for(&self, test: &str) -> bool {
        self.filter.as_ref().is_none_or(|filter| test.contains(filter.as_str()))
    }
}

/// Returns the job with the tests of the guest itself.
fn itself() -> Job {
    let words = ["test", "--package", "xtask", "--", "--ignored", "--test-threads=1"];
    Job::new("the guest itself", "cargo", words)
}

/// Returns one job for each guest: `cargo xtask vm run`, with its arguments.
fn jobs(args: &TestArgs, lists: &Path) -> Result<Vec<Job>> {
    let programs: Vec<Program> =
        test_binaries(Tier::Device)?.into_iter().map(Program::ignored_of).collect::<Result<_>>()?;
    every_rule_has_tests(&programs)?;
    build_dist_example("farreach-verbs", "cost")?;
    let mut jobs = Vec::new();
    for guest in GUESTS {
        let name = guest.join(" ");
        if args.guest.as_ref().is_some_and(|wanted| !name.contains(wanted.as_str())) {
            continue;
        }
        let words = [guest, &EVERY_GUEST].concat();
        let spec = GuestSpec::from_words(&words);
        // The newest kernel may be an older one if the archive does not have the newest suite.
        if let Some(reason) = super::lacking(&spec, &spec.kernel.get()?) {
            println!("── {name}: skipped: {reason}");
            continue;
        }
        let choice = choose(&spec, &programs, args);
        if choice.programs.is_empty() {
            println!("── {name}: skipped: no selected test runs there");
            continue;
        }
        for (count, reason) in &choice.left_out {
            println!("── {name}: {count} tests skipped: they {reason}");
        }
        for (part, programs) in parts(&spec, choice.programs) {
            let list = lists.join(format!("{}.json", jobs.len()));
            attempts::write_list(&list, &programs)?;
            jobs.push(Job::task(format!("{name}{part}"), attempt(&words, &list, args)));
        }
    }
    ensure!(!jobs.is_empty(), "no guest matches this description, or none runs a test with this name");
    Ok(jobs)
}

/// Checks that the rules of [`APART`] match existing tests: a rule for tests that were removed or
/// renamed has no effect.
fn every_rule_has_tests(programs: &[Program]) -> Result<()> {
    let is_there = |beginning: &str| {
        programs.iter().any(|Program { binary, tests }| {
            tests.iter().any(|test| full_name(&binary.krate, test).starts_with(beginning))
        })
    };
    let names = APART.iter().flat_map(|apart| match apart.tests {
        Tests::Of(beginnings) => beginnings,
        Tests::In(_) => &[],
    });
    let gone: Vec<_> = names.filter(|name| !is_there(name)).collect();
    ensure!(gone.is_empty(), "xtask/src/vm/test.rs names tests that do not exist: {gone:?}");
    Ok(())
}

/// The crates whose tests take long enough for a guest of their own, the longest first. Those of the other
/// crates share one.
const LONG: [&str; 2] = ["cli", "engine"];

/// Splits the tests of a guest among several guests of the same kind, each with a name: a guest
/// with one host has the most tests, and would leave half of the machine idle.
fn parts(spec: &GuestSpec, mut programs: Vec<Program>) -> Vec<(String, Vec<Program>)> {
    if has_two_hosts(spec) {
        return vec![(String::new(), programs)];
    }
    let is_of = |name| move |program: &mut Program| program.binary.krate == name;
    let long = LONG.map(|name| programs.extract_if(.., is_of(name)).collect());
    let named = |programs: Vec<Program>| {
        let crates: Vec<_> = programs.iter().map(|program| program.binary.krate.as_str()).collect();
        (format!(", {}", crates.join(" and ")), programs)
    };
    long.into_iter().chain([programs]).filter(|part| !part.is_empty()).map(named).collect()
}

/// Returns `cargo xtask vm run GUEST -- xtask attempt …`: this program also counts the results in
/// the guest.
fn attempt(guest: &[&str], list: &Path, args: &TestArgs) -> Vec<String> {
    let this = paths::target().join("debug/xtask").display().to_string();
    let mut task = vec!["vm".to_owned(), "run".to_owned()];
    task.extend(guest.iter().map(|word| (*word).to_owned()));
    task.extend(["--".to_owned(), this, "attempt".to_owned()]);
    task.extend(args.runs.map(|runs| format!("--runs={runs}")));
    task.extend(args.times.then(|| "--times".to_owned()));
    task.push(list.display().to_string());
    task
}

/// The tests that a guest runs, and those that it skips.
struct Choice {
    /// The programs, each with at least one test.
    programs: Vec<Program>,
    /// The numbers of skipped tests, with the reasons.
    left_out: Vec<(usize, &'static str)>,
}

fn choose(spec: &GuestSpec, programs: &[Program], args: &TestArgs) -> Choice {
    let holds = |apart: &&Apart| apart.when == When::Always || args.short;
    let apart: Vec<&Apart> = APART.iter().filter(holds).filter(|apart| !(apart.is_run_in)(spec)).collect();
    let mut left_out: Vec<_> = apart.iter().map(|apart| (0, apart.reason)).collect();
    let mut chosen = Vec::new();
    for Program { binary, tests } in programs {
        let mut run = Vec::new();
        // A part of the name is enough, as for libtest.
        for test in tests.iter().filter(|test| args.has_asked_for(test)) {
            match apart.iter().position(|apart| apart.tests.hold(&binary.krate, test)) {
                Some(index) => left_out[index].0 += 1,
                None => run.push(test.clone()),
            }
        }
        if !run.is_empty() {
            chosen.push(Program { binary: binary.clone(), tests: run });
        }
    }
    left_out.retain(|(count, _)| *count > 0);
    Choice { programs: chosen, left_out }
}

impl Tests {
    fn hold(&self, krate: &str, test: &str) -> bool {
        match self {
            Self::In(module) => test.contains(module),
            Self::Of(beginnings) => {
                let name = full_name(krate, test);
                beginnings.iter().any(|beginning| name.starts_with(beginning))
            }
        }
    }
}

fn full_name(krate: &str, test: &str) -> String {
    format!("{krate} {test}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binaries::TestBinary;

    /// Tests as names of their crates and their own.
    fn programs(tests: &[(&str, &[&str])]) -> Vec<Program> {
        let program = |(krate, tests): &(&str, &[&str])| Program {
            binary: TestBinary {
                krate: (*krate).to_owned(),
                target: "device".to_owned(),
                tier: Tier::Device,
                executable: format!("/build/{krate}").into(),
                directory: "/".into(),
            },
            tests: tests.iter().map(|test| (*test).to_owned()).collect(),
        };
        tests.iter().map(program).collect()
    }

    fn in_each_guest<T>(look: impl Fn(&GuestSpec) -> T) -> [T; 4] {
        GUESTS.map(|words| look(&GuestSpec::from_words(words)))
    }

    fn count(choice: &Choice) -> usize {
        choice.programs.iter().map(|program| program.tests.len()).sum()
    }

    #[test]
    fn what_a_guest_leaves_out_is_what_it_cannot_show_or_another_shows_as_well() {
        let programs = programs(&[
            ("verbs", &["faults::killed", "faults::two_hosts::cut", "post::send", "post::one_guest::long"]),
            ("engine", &["rails_verbs::closing", "rails_verbs::two_devices::link"]),
            ("fabric", &["over_soft_roce::verbs_under_rxm::write"]),
        ]);
        let counts = in_each_guest(|spec| {
            let choice = choose(spec, &programs, &TestArgs::default());
            let left_out: usize = choice.left_out.iter().map(|(count, _)| count).sum();
            assert_eq!(count(&choice) + left_out, 7);
            count(&choice)
        });
        assert_eq!(counts, [5, 4, 4, 2]);
    }

    #[test]
    fn only_what_the_filter_lets_through_is_run_and_counted() {
        let programs =
            programs(&[("cli", &["two_hosts::cut", "two_hosts::removed", "cut"]), ("verbs", &["class"])]);
        let cut = TestArgs { filter: Some("cut".to_owned()), ..TestArgs::default() };
        let counts = in_each_guest(|spec| count(&choose(spec, &programs, &cut)));
        assert_eq!(counts, [1, 2, 1, 2]);
        let choice = choose(&GuestSpec::from_words(GUESTS[0]), &programs, &cut);
        assert_eq!(choice.left_out, [(1, "need two hosts")]);
        assert_eq!(choice.programs.len(), 1, "no program is started that has nothing to run");
    }

    #[test]
    fn a_guest_with_one_host_is_three() {
        let programs = programs(&[("cli", &["a"]), ("engine", &["b"]), ("fabric", &["c"])]);
        let names = |words: &[&str]| -> Vec<String> {
            parts(&GuestSpec::from_words(words), programs.clone()).into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(names(GUESTS[0]), [", cli", ", engine", ", fabric"]);
        assert_eq!(names(GUESTS[1]), [""]);
    }

    #[test]
    fn what_takes_long_can_be_left_out_and_is_counted() {
        let programs = programs(&[
            ("cli", &["doctor_way::two_hosts::x", "doctor_pair::two_hosts::y", "bench::z"]),
            ("fabric", &["programs::one_guest::soft_roce::a_z"]),
        ]);
        let short = TestArgs { short: true, ..TestArgs::default() };
        let run = |args: &TestArgs| in_each_guest(|spec| count(&choose(spec, &programs, args)));
        assert_eq!(run(&TestArgs::default()), [2, 3, 0, 0]);
        assert_eq!(run(&short), [1, 1, 0, 0]);
        let choice = choose(&GuestSpec::from_words(GUESTS[1]), &programs, &short);
        assert_eq!(choice.left_out.iter().map(|(count, _)| count).sum::<usize>(), 3);
    }

    #[test]
    fn a_rule_for_tests_that_are_not_there_is_an_error() {
        let error = every_rule_has_tests(&programs(&[("cli", &["bench::z"])])).unwrap_err().to_string();
        assert!(error.contains("\"cli chip::\"") && !error.contains("cli bench::"), "{error}");
    }
}
