//! Checks the answers of the two libraries: devices, providers, the resources left on a card, and
//! whether transfers work.

use std::collections::BTreeSet;

use super::cards::{NO_DEVICE, efa_devices, has_efa, hidden, no_device};
use super::stack::opens;
use super::wire::is_anothers;
use crate::figures;
use crate::finding::{Answer, CommandLine, Finding, Fix};
use crate::pack::Pack;
use crate::probes::{NO_ANSWER, Reading, Trial, Verbs, VerbsDevice};
use crate::survey::driver;

/// Adds the commands that install libibverbs and its provider libraries.
fn verbs_package(finding: Finding) -> Finding {
    package(
        finding,
        "libibverbs and its providers",
        "apt-get install libibverbs1 ibverbs-providers",
        "dnf install libibverbs",
    )
}

/// Adds the commands that install libfabric.
fn fabric_package(finding: Finding) -> Finding {
    package(finding, "libfabric", "apt-get install libfabric1", "dnf install libfabric")
}

fn package(finding: Finding, what: &str, debian: &'static str, fedora: &'static str) -> Finding {
    let install = |place: &str, command: &'static str| {
        Fix::new(format!("install or update {what}")).at(place).run(command)
    };
    finding.fix(install("Debian, Ubuntu", debian)).fix(install("Fedora, RHEL", fedora))
}

/// Adds the commands that install a libfabric with the provider efa.
fn efa_installer(finding: Finding) -> Finding {
    finding.fix(
        Fix::new("install Amazon's libfabric, or another one that is built with the provider efa")
            .run("curl -O https://efa-installer.amazonaws.com/aws-efa-installer-latest.tar.gz")
            .run("tar -xf aws-efa-installer-latest.tar.gz")
            .run("cd aws-efa-installer && ./efa_installer.sh -y"),
    )
}

fn unset_provider() -> Fix {
    Fix::new("remove the variable FI_PROVIDER from the environment: it excludes providers")
        .run("unset FI_PROVIDER")
}

/// Makes the finding for a library that gave no answer. If it took too long, the host may only be
/// slow.
fn no_answer(reason: &str) -> Finding {
    let finding = Finding::unknown(reason);
    if !reason.contains(NO_ANSWER) {
        return finding;
    }
    finding
        .fix(Fix::new("if this host is slow or busy, run the check again when it is less busy").run("uptime"))
        .fix(Fix::new("if the process was blocked, read the kernel log").run("dmesg | tail -n 30"))
}

/// Returns whether the reason is that the library is not installed, by the message of the loader.
/// Any other reason means that the answer is unknown.
fn is_missing(reason: &str, soname: &str) -> bool {
    reason.contains(&format!("cannot open {soname}"))
}

/// Checks whether libibverbs lists every device of the kernel.
pub(super) fn provider(pack: &Pack) -> Answer {
    const SOURCE: &str = "ibv_get_device_list";
    let devices = pack.devices();
    if devices.is_empty() {
        return no_device(pack);
    }
    match pack.probes().verbs.get() {
        Ok(verbs) => Answer::of_each(devices, NO_DEVICE, |device| {
            listed(pack, verbs, device).of(device).read(SOURCE).read(verbs.library.as_str())
        }),
        Err(reason) if is_missing(reason, "libibverbs") => {
            verbs_package(Finding::fail(reason).read(SOURCE)).into()
        }
        Err(reason) => no_answer(reason).read(SOURCE).into(),
    }
}

fn listed(pack: &Pack, verbs: &Verbs, device: &str) -> Finding {
    let known = driver(pack, device);
    let driver = known.as_deref().unwrap_or("its driver");
    match verbs.devices.get(device) {
        Some(VerbsDevice { error: None, .. }) => Finding::pass("libibverbs lists and opens the device"),
        // The check of nodes reports a node that cannot be opened.
        _ if opens(pack, device) == Some(false) => {
            Finding::unknown("the device's node cannot be opened: see the check nodes")
        }
        Some(VerbsDevice { error: Some(error), .. }) => verbs_package(
            Finding::fail(format!("libibverbs lists the device, but cannot open it: {error}")).fix(
                Fix::new("read the driver's messages in the kernel log").run(
                    CommandLine::new("dmesg | grep -e")
                        .arg(known.as_deref().unwrap_or("uverbs"))
                        .shell("-e")
                        .arg(device),
                ),
            ),
        ),
        None => unlisted(pack, device, driver),
    }
}

/// Makes the finding for a device whose provider library is missing or rejects it.
fn unlisted(pack: &Pack, device: &str, driver: &str) -> Finding {
    let name = provider_name(driver);
    let file = format!("/etc/libibverbs.d/{name}.driver");
    let abi = pack.names("/sys/class/infiniband_verbs").into_iter().find_map(|node| {
        let folder = format!("/sys/class/infiniband_verbs/{node}");
        let is_its = pack.text(&format!("{folder}/ibdev")) == Ok(device);
        is_its.then(|| pack.text(&format!("{folder}/abi_version")).ok()).flatten()
    });
    let abi = abi.map(|abi| format!(" (kernel ABI {abi})")).unwrap_or_default();
    if pack.text(&file).is_ok() {
        let found = format!(
            "libibverbs does not list the device, although {file} names its provider: the library lib{name} is \
             missing, or does not support the kernel's interface{abi}"
        );
        let finding = Finding::fail(found)
            .fix(Fix::new("see the warnings of libibverbs").run("IBV_SHOW_WARNINGS=1 farreach devices"));
        return verbs_package(finding).fix(VENDOR);
    }
    verbs_package(Finding::fail(format!("libibverbs has no provider library for {driver}{abi}")))
        .fix(VENDOR)
        .fix(
            Fix::new("install the library inside the container: that of the host is not visible there")
                .at("container"),
        )
}

const VENDOR: &str = "if the driver comes from the card's vendor, install the vendor's libibverbs";

/// Returns rdma-core's name of the provider for a driver's devices.
fn provider_name(driver: &str) -> &str {
    match driver {
        "mlx4_core" => "mlx4",
        "mlx5_core" => "mlx5",
        "rdma_rxe" => "rxe",
        "bnxt_en" => "bnxt_re",
        "ice" | "i40e" | "idpf" => "irdma",
        other => other,
    }
}

/// Makes one finding for each device. `look` judges those that libibverbs opened.
fn of_each_opened(pack: &Pack, source: &str, mut look: impl FnMut(&str, &VerbsDevice) -> Finding) -> Answer {
    match pack.probes().verbs.get() {
        _ if pack.devices().is_empty() => no_device(pack),
        Err(reason) => Finding::unknown(reason).read(source).into(),
        Ok(verbs) => Answer::of_each(pack.devices(), NO_DEVICE, |name| {
            let finding = match verbs.devices.get(name) {
                Some(device) if device.error.is_none() => look(name, device),
                Some(_) => Finding::unknown("libibverbs cannot open the device"),
                None => Finding::unknown("libibverbs does not list the device"),
            };
            finding.of(name).read(source)
        }),
    }
}

/// Checks whether a process may fork while its memory is registered.
pub(super) fn fork(pack: &Pack) -> Answer {
    const SOURCE: &str = "netlink RDMA_NLDEV_CMD_SYS_GET, copy on fork";
    if pack.devices().is_empty() {
        return no_device(pack);
    }
    let finding = match pack.probes().verbs.get().map(|verbs| verbs.is_fork_safe) {
        Ok(Some(true)) => Finding::pass("a process may fork while its memory is registered"),
        Ok(Some(false)) => Finding::warn(
            "a process that forks while its memory is registered may lose what a card writes: this kernel or this \
             libibverbs does not copy registered pages on fork",
        )
        .fix("use Linux 5.12 or newer with rdma-core 35 or newer")
        .fix(
            Fix::new("until then, set these variables for the program: registration gets slower")
                .run("export RDMAV_FORK_SAFE=1")
                .run("export RDMAV_HUGEPAGES_SAFE=1"),
        ),
        Ok(None) => Finding::unknown("the kernel does not report whether it copies registered pages on fork"),
        Err(reason) => Finding::unknown(reason),
    };
    finding.read(SOURCE).into()
}

/// Checks how many queue pairs are left on each device.
pub(super) fn queue_pairs(pack: &Pack) -> Answer {
    of_each_opened(pack, "netlink RDMA_NLDEV_CMD_RES_GET, ibv_query_device", |name, device| {
        let max = device.queue_pairs_max;
        let used =
            pack.probes().resources.get().map(|all| all.get(name).and_then(|it| it.get("qp").copied()));
        let who = || {
            Fix::new("end the processes that no longer need their queue pairs; this lists the owners")
                .run("rdma resource show qp")
        };
        match (&device.trial_queue_pair, used) {
            (Some(error), Ok(Some(used))) => {
                Finding::fail(format!("no queue pair can be created: {error}; {used} of {max} are in use"))
                    .fix(who())
            }
            (Some(error), _) => Finding::fail(format!("no queue pair can be created: {error}")).fix(who()),
            (None, Err(reason)) => Finding::unknown(reason),
            (None, Ok(None)) => Finding::unknown("the kernel does not report how many are in use"),
            (None, Ok(Some(used))) if used >= max => {
                Finding::fail(format!("all {max} queue pairs are in use")).fix(who())
            }
            (None, Ok(Some(used))) if used.saturating_mul(5) > max.saturating_mul(4) => {
                Finding::warn(format!("{used} of {max} queue pairs are in use, more than 80 %")).fix(who())
            }
            (None, Ok(Some(used))) => Finding::pass(format!("{used} of {max} queue pairs are in use")),
        }
    })
}

/// Reports how much on-chip memory each card has.
pub(super) fn on_chip_memory(pack: &Pack) -> Answer {
    of_each_opened(pack, "ibv_query_device_ex", |_, device| match device.on_chip_memory_bytes {
        0 => Finding::pass("none, as on most cards; it is optional"),
        bytes => Finding::pass(figures::amount(bytes)),
    })
}

/// Checks whether libfabric is installed, and which providers it has.
pub(super) fn libfabric(pack: &Pack) -> Answer {
    const SOURCE: &str = "fi_getinfo";
    let finding = match pack.probes().fabric.get() {
        Ok(fabric) if fabric.providers.is_empty() => {
            let found = format!("libfabric {} has no usable provider, not even tcp", fabric.version);
            fabric_package(Finding::warn(found).fix(unset_provider())).read(fabric.library.as_str())
        }
        Ok(fabric) => {
            let names: Vec<&str> = fabric.providers.keys().map(String::as_str).collect();
            Finding::pass(format!("libfabric {} with the providers {}", fabric.version, names.join(", ")))
                .read(fabric.library.as_str())
        }
        Err(reason) if is_missing(reason, "libfabric") && has_efa(pack) => {
            efa_installer(Finding::fail(format!("{reason}; an EFA can be used only through libfabric")))
        }
        Err(reason) if is_missing(reason, "libfabric") => fabric_package(Finding::warn(format!(
            "{reason}; the rail tcp, which needs no RDMA card, needs libfabric"
        ))),
        Err(reason) => no_answer(reason),
    };
    finding.read(SOURCE).into()
}

/// Checks whether libfabric lists every Elastic Fabric Adapter.
pub(super) fn efa(pack: &Pack) -> Answer {
    const SOURCE: &str = "fi_getinfo of the provider efa";
    /// Nothing on the host itself shows the rules of its security group.
    const SECURITY_GROUP: &str = "the rules of the security group cannot be read on a host: farreach doctor PEER \
                                  tests them";
    if !has_efa(pack) {
        return Answer::DoesNotApply("no Elastic Fabric Adapter".to_owned());
    }
    let why_none = "the Elastic Fabric Adapter has no RDMA device";
    match pack.probes().fabric.get() {
        Err(reason) => Finding::unknown(reason).read(SOURCE).into(),
        Ok(_) if hidden(pack).is_some() => no_device(pack),
        Ok(fabric) => Answer::of_each(efa_devices(pack), why_none, |device| {
            let finding = match fabric.providers.get("efa") {
                Some(domains) if domains.iter().any(|domain| domain.starts_with(device)) => {
                    Finding::pass(format!("libfabric {} lists it; {SECURITY_GROUP}", fabric.version))
                }
                Some(domains) => {
                    let domains = domains.join(", ");
                    Finding::fail(format!("libfabric's provider efa lists {domains}, but not this device"))
                        .fix(
                            Fix::new("see the warnings of libfabric").run("FI_LOG_LEVEL=warn fi_info -p efa"),
                        )
                }
                None => efa_installer(Finding::fail(format!(
                    "libfabric {} ({}) has no provider efa",
                    fabric.version, fabric.library
                )))
                .fix(unset_provider()),
            };
            finding.of(device).read(SOURCE)
        }),
    }
}

/// Checks whether transfers work over each rail from this host to itself.
pub(super) fn transfer(pack: &Pack) -> Answer {
    const SOURCE: &str = "a transfer from this host to itself";
    const WHY_NONE: &str = "no rail: no RDMA card, and no libfabric";
    if let Reading::LeftOut(reason) = &pack.probes().transfers {
        return Answer::DoesNotApply(reason.clone());
    }
    let trials = match pack.probes().transfers.get() {
        Ok(trials) => trials,
        Err(reason) => return no_answer(reason).read(SOURCE).into(),
    };
    // An EFA is a rail of libfabric under another name. A device of another namespace need not work
    // here.
    let efa = efa_devices(pack);
    let anothers = pack.ports().into_iter().filter(|port| is_anothers(pack, port));
    let anothers: Vec<&str> = anothers.map(|port| port.device).collect();
    let is_asked = |device: &str| !efa.contains(&device) && !anothers.contains(&device);
    // `mlx5_0/2` is a rail of mlx5_0.
    let device_of = |rail: &'_ str| rail.split('/').next().unwrap_or(rail).to_owned();
    let tried: Vec<String> = trials.keys().map(|rail| device_of(rail)).collect();
    let mut findings: Vec<Finding> = trials
        .iter()
        .filter(|(rail, _)| is_asked(&device_of(rail)))
        .map(|(rail, trial)| trial_finding(rail, trial).of(rail.as_str()))
        .collect();
    let cards = all_devices(pack).into_iter().filter(|device| is_asked(device));
    let untried = cards.filter(|device| !tried.iter().any(|it| it == device));
    findings.extend(untried.map(|device| Finding::unknown("no transfer was tried").of(device)));
    findings.extend(hidden(pack));
    if trials.is_empty() && findings.is_empty() && !efa.is_empty() {
        findings.push(Finding::unknown("no device is a rail, so no transfer was tried"));
    }
    Answer::of_each(findings, WHY_NONE, |finding| finding.read(SOURCE))
}

/// Returns the devices of the kernel, and those that only libibverbs lists, because /sys may be
/// unreadable.
fn all_devices(pack: &Pack) -> BTreeSet<&str> {
    let mut all: BTreeSet<&str> = pack.devices().into_iter().collect();
    if let Ok(verbs) = pack.probes().verbs.get() {
        all.extend(verbs.devices.keys().map(String::as_str));
    }
    all
}

fn trial_finding(rail: &str, trial: &Trial) -> Finding {
    match trial {
        Trial::Worked { latency_ns, rate_bits_per_second, bytes } => Finding::pass(format!(
            "{} written and verified at {}; latency of a short message {} (½ RTT)",
            figures::size(*bytes),
            figures::bit_rate(*rate_bits_per_second as f64),
            figures::duration(*latency_ns as f64)
        )),
        Trial::Failed { error, cause, fix } => {
            let cause = cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default();
            let finding = Finding::fail(format!("{error}{cause}"));
            match fix {
                // The text of the library lists all ways to raise the limit in one line.
                Some(_) if finding.found.contains("locked in memory") => {
                    finding.fix("raise the limit on locked memory: see the check memlock")
                }
                Some(fix) => finding.fix(Fix::quoted(fix)),
                None => {
                    finding.fix(Fix::new(format!("see how {rail} is configured")).run("farreach devices -v"))
                }
            }
        }
    }
}
