//! Checks the software between a program and a device: kernel, modules, device nodes, namespaces.

use std::collections::BTreeMap;

use farreach_verbs::system::{KernelDevice, KernelSupport, NodeAccess};

use super::cards::{NO_DEVICE, has_rdma, hidden, is_efa_only, is_loaded, loads, no_device};
use crate::finding::{Answer, CommandLine, Finding, Fix};
use crate::pack::{Missing, Pack};
use crate::survey;

const VERBS: &str = "/sys/class/infiniband_verbs";

/// Checks whether the kernel supports RDMA.
pub(super) fn kernel(pack: &Pack) -> Answer {
    const NETLINK: &str = "socket(AF_NETLINK, NETLINK_RDMA)";
    let devices = pack.devices();
    if !devices.is_empty() {
        let found = format!("RDMA devices: {}", devices.join(", "));
        return Finding::pass(found).read("/sys/class/infiniband").into();
    }
    if let Some(hidden) = hidden(pack) {
        return hidden.into();
    }
    let listed = pack.probes().verbs.get().map(|verbs| verbs.devices.keys().cloned().collect::<Vec<_>>());
    match (survey::kernel(pack).support, pack.probes().rdma_netlink.get()) {
        (KernelSupport::Present, _) if listed.as_ref().is_ok_and(|names| !names.is_empty()) => {
            Finding::unknown(format!(
                "libibverbs lists {}, but /sys/class/infiniband is empty: /sys may not be mounted",
                listed.unwrap_or_default().join(", ")
            ))
            .read("/sys/class/infiniband")
            .into()
        }
        (KernelSupport::Present, _) => Finding::pass("the kernel supports RDMA, but has no RDMA device")
            .fix(
                Fix::new("to try RDMA without a card, create a Soft-RoCE device")
                    .run("rdma link add rxe0 type rxe netdev NETDEV"),
            )
            .read(NETLINK)
            .into(),
        (support, Ok(_)) => without_kernel_support(pack, support).read(NETLINK).into(),
        (_, Err(reason)) => Finding::unknown(reason).read(NETLINK).into(),
    }
}

/// Makes the finding for a kernel without RDMA support.
///
/// It fails only if a card needs the support. A host without RDMA hardware works as it is: it can
/// use tcp.
fn without_kernel_support(pack: &Pack, support: KernelSupport) -> Finding {
    const NOT_BUILT: &str = "boot a kernel that is built with CONFIG_INFINIBAND, or install its modules (Debian, Ubuntu: \
                             the full kernel package, not the cloud one)";
    let problem = |found: String| match has_rdma(pack) {
        true => Finding::fail(found),
        false => Finding::warn(format!(
            "{found}; without an RDMA card, only tcp, and shm within a host, can be used"
        )),
    };
    let release = pack.text("/proc/sys/kernel/osrelease").unwrap_or("of this host");
    let folder = format!("/lib/modules/{release}/kernel/drivers/infiniband/core");
    match support {
        KernelSupport::NotLoaded => {
            let found = "the kernel's RDMA modules are not loaded".to_owned();
            return loads(problem(found).read(folder), "ib_uverbs");
        }
        KernelSupport::NotBuilt => {
            let found =
                format!("the kernel {release} has no RDMA support, and no RDMA modules are in {folder}");
            problem(found).read(folder).fix(NOT_BUILT)
        }
        _ => loads(problem("the kernel has no RDMA support".to_owned()), "ib_uverbs").fix(NOT_BUILT),
    }
    .fix(Fix::new("use tcp, which needs no RDMA").run("farreach ping -d tcp PEER"))
}

/// Checks whether user space can reach the devices and the connection manager.
pub(super) fn modules(pack: &Pack) -> Answer {
    // A kernel with RDMA support may get a device at any time, such as a software device by a
    // command.
    if !has_rdma(pack) && pack.probes().rdma_netlink.get() != Ok(&true) {
        return Answer::DoesNotApply(NO_DEVICE.to_owned());
    }
    let user_verbs = module(pack, "ib_uverbs", "/sys/class/infiniband_verbs/abi_version", |found| {
        Finding::fail(format!("{found}: no program can use an RDMA device"))
    });
    // EFA has no connection manager, so rdma_ucm is not needed.
    if is_efa_only(pack) {
        return user_verbs.into();
    }
    let connection_manager = module(pack, "rdma_ucm", "/sys/class/misc/rdma_cm/dev", |found| {
        Finding::warn(format!(
            "{found}: programs that connect with rdma_cm (rping, NFS, iSER and others) do not work; farreach does not need it"
        ))
    });
    Answer::Findings(vec![user_verbs, connection_manager])
}

/// Checks one module. `offers` is a file that the module provides, loaded or built in.
fn module(pack: &Pack, name: &str, offers: &str, absent: impl Fn(String) -> Finding) -> Finding {
    let state = format!("/sys/module/{name}/initstate");
    match (pack.text(offers), is_loaded(pack, name)) {
        (Ok(_), _) => Finding::pass("loaded or built in").read(offers),
        (Err(Missing::Absent), Ok(is_loaded)) => {
            let found = if is_loaded { "loaded, but its device file is missing" } else { "not loaded" };
            loads(absent(found.to_owned()), name).read(state)
        }
        (Err(Missing::Absent), Err(missing)) => Finding::unread(&state, &missing),
        (Err(missing), _) => Finding::unread(offers, &missing),
    }
    .of(name)
}

/// Checks whether every device has a node that this process may open.
pub(super) fn nodes(pack: &Pack) -> Answer {
    if pack.devices().is_empty() {
        return no_device(pack);
    }
    if pack.text(&format!("{VERBS}/abi_version")) == Err(Missing::Absent) {
        return Answer::DoesNotApply("ib_uverbs, which creates the nodes, is not loaded".to_owned());
    }
    let opened = match pack.probes().nodes.get() {
        Ok(opened) => opened,
        Err(reason) => return Finding::unknown(reason).read("/dev/infiniband").into(),
    };
    let devices = survey::kernel(pack).devices;
    let mut findings: Vec<Finding> =
        devices.iter().map(|device| device_finding(opened, device).of(device.name.as_str())).collect();
    if pack.text("/sys/class/misc/rdma_cm/dev").is_ok() {
        findings.push(node_finding(opened, "rdma_cm", Finding::warn).of("rdma_cm"));
    }
    Answer::Findings(findings)
}

fn device_finding(opened: &BTreeMap<String, Option<String>>, device: &KernelDevice) -> Finding {
    match (&device.node, &device.access) {
        (Some(node), _) => node_finding(opened, node, Finding::fail),
        (None, NodeAccess::Unknown { path, reason }) => {
            Finding::unknown(reason.as_str()).read(path.display().to_string())
        }
        (None, _) => Finding::fail("the kernel has no device node for it")
            .read(VERBS)
            .fix(Fix::new("read the messages of uverbs in the kernel log").run("dmesg | grep -i uverbs"))
            .fix(
                Fix::new("mount the host's /sys, which lists the node")
                    .at("container")
                    .run("docker run -v /sys:/sys:ro IMAGE"),
            ),
    }
}

/// Returns whether this process may open the node of a device, or `None` if that is not known.
pub(super) fn opens(pack: &Pack, device: &str) -> Option<bool> {
    let device = survey::kernel(pack).devices.into_iter().find(|it| it.name == device)?;
    match device.access {
        NodeAccess::Granted => Some(true),
        NodeAccess::NoNode(_) | NodeAccess::Denied(_) => Some(false),
        _ => None,
    }
}

/// Checks one node. `problem` makes the finding for a node that does not open.
fn node_finding(
    opened: &BTreeMap<String, Option<String>>,
    node: &str,
    problem: impl Fn(String) -> Finding,
) -> Finding {
    let path = format!("/dev/infiniband/{node}");
    match opened.get(node) {
        Some(None) => Finding::pass(format!("{path} can be opened")),
        Some(Some(error)) if error.contains("EPERM") => denied_by_group(
            problem(format!("cannot open {path}: {error}; the control group does not allow this device")),
            &path,
        ),
        Some(Some(error)) => denied_by_mode(problem(format!("cannot open {path}: {error}")), &path, node),
        None => problem(format!("{path} does not exist"))
            .fix(Fix::new("let udev create the nodes again").run(
                "udevadm trigger --action=add --subsystem-match=infiniband_verbs --subsystem-match=misc",
            ))
            .fix(
                Fix::new("start the container with the devices")
                    .at("container")
                    .run("docker run --device=/dev/infiniband IMAGE"),
            )
            .fix(device_plugin()),
    }
    .read(path.as_str())
}

fn device_plugin() -> Fix {
    Fix::new("request the resource of the RDMA or EFA device plugin, such as this one, in resources.limits")
        .at("Kubernetes")
        .run("vpc.amazonaws.com/efa: 1")
}

fn denied_by_group(finding: Finding, path: &str) -> Finding {
    finding
        .fix(
            Fix::new(
                "start the container with the device; a bind mount of /dev/infiniband alone is not enough",
            )
            .at("container")
            .run(CommandLine::new("docker run").arg(format!("--device={path}")).shell("IMAGE")),
        )
        .fix(device_plugin())
        .fix(
            Fix::new("add this line to the section [Service] of the unit, and restart it")
                .at("systemd")
                .run(CommandLine::setting("DeviceAllow=", path, " rw")),
        )
}

fn denied_by_mode(finding: Finding, path: &str, node: &str) -> Finding {
    const RULES: &str = ">> /etc/udev/rules.d/99-rdma.rules";
    let kernel = if node == "rdma_cm" { "rdma_cm" } else { "uverbs*" };
    let rule =
        |rest: &str| CommandLine::new("echo").arg(format!("KERNEL==\"{kernel}\", {rest}")).shell(RULES);
    finding
        .fix(
            Fix::new("allow all users to open it, until the next boot")
                .run(CommandLine::new("chmod 666").path(path)),
        )
        .fix(Fix::new("allow all users to open it").at("at boot").run(rule("MODE=\"0666\"")))
        .fix(
            Fix::new("allow one group to open it, and add users to the group")
                .at("at boot")
                .run(rule("GROUP=\"rdma\", MODE=\"0660\""))
                .run("usermod -aG rdma USER"),
        )
        .fix(
            Fix::new("add the group that owns the node on the host")
                .at("container")
                .run("docker run --group-add GROUP IMAGE"),
        )
}

/// Checks whether the devices are in this network namespace.
pub(super) fn namespaces(pack: &Pack) -> Answer {
    const SOURCE: &str = "netlink RDMA_NLDEV_CMD_SYS_GET";
    if !has_rdma(pack) {
        return Answer::DoesNotApply(NO_DEVICE.to_owned());
    }
    let devices = pack.devices();
    if let Some(hidden) = hidden(pack) {
        return hidden.into();
    }
    let finding = match pack.probes().rdma_namespaces.get().map(String::as_str) {
        Ok("shared") => Finding::pass("shared: every network namespace has all RDMA devices"),
        Ok("exclusive") if devices.is_empty() => Finding::fail(
            "exclusive: each network namespace has its own RDMA devices; this one has none, although the host has a \
             card",
        )
        .fix(
            Fix::new("move the device to the container's namespace, on the host; rdma dev lists the devices")
                .at("container")
                .run("rdma dev set DEVICE netns NAMESPACE"),
        )
        .fix(
            Fix::new("share all devices, while no other network namespace exists")
                .run("rdma system set netns shared"),
        )
        .fix(
            Fix::new("share all devices")
                .at("at boot")
                .run("echo options ib_core netns_mode=1 > /etc/modprobe.d/rdma.conf"),
        ),
        Ok("exclusive") => {
            Finding::pass(format!("exclusive: this network namespace has {}", devices.join(", ")))
        }
        Ok(other) => Finding::unknown(format!("the mode \"{other}\" is not known to this farreach")),
        Err(reason) => Finding::unknown(reason),
    };
    finding.read(SOURCE).into()
}

/// Checks whether cards can access GPU memory.
pub(super) fn gpu(pack: &Pack) -> Answer {
    if pack.devices().is_empty() {
        return no_device(pack);
    }
    let mut findings = Vec::new();
    match is_loaded(pack, "nvidia") {
        Ok(true) => findings.push(nvidia(pack).of("NVIDIA")),
        Ok(false) => {}
        Err(missing) => findings.push(Finding::unread("/sys/module/nvidia/initstate", &missing).of("NVIDIA")),
    }
    if pack.text("/sys/class/kfd/kfd/uevent").is_ok() {
        findings.push(amd(pack).of("AMD"));
    }
    if findings.is_empty() {
        return Answer::DoesNotApply("no GPU driver".to_owned());
    }
    Answer::Findings(findings)
}

fn nvidia(pack: &Pack) -> Finding {
    const VERSION: &str = "/proc/driver/nvidia/version";
    for place in ["/sys/module/nvidia_peermem/initstate", "/sys/kernel/mm/memory_peers/nv_mem/version"] {
        match pack.text(place) {
            Ok(_) => {
                return Finding::pass("RDMA cards can access GPU memory, through nvidia_peermem").read(place);
            }
            Err(Missing::Absent) => {}
            Err(missing) => return Finding::unread(place, &missing),
        }
    }
    let is_open = pack.text(VERSION).is_ok_and(|version| version.contains("Open Kernel Module"));
    match takes_dma_buf(pack) {
        Ok(true) if is_open => {
            Finding::pass("RDMA cards can access GPU memory, through dma-buf").read(VERSION)
        }
        Err(finding) if is_open => finding,
        _ => loads(Finding::warn(NO_GPU_ACCESS), "nvidia_peermem")
            .read("/sys/module/nvidia_peermem/initstate")
            .fix(
                "without nvidia_peermem: use NVIDIA's open kernel modules and Linux 5.12 or newer (dma-buf)",
            ),
    }
}

const NO_GPU_ACCESS: &str = "RDMA cards cannot access GPU memory: all data is copied through host memory";

fn amd(pack: &Pack) -> Finding {
    const PEERS: &str = "/sys/kernel/mm/memory_peers/amdkfd/version";
    if pack.text(PEERS).is_ok() {
        return Finding::pass("RDMA cards can access GPU memory, through amdkfd").read(PEERS);
    }
    match takes_dma_buf(pack) {
        Ok(true) => Finding::pass("RDMA cards can access GPU memory, through dma-buf")
            .read("/proc/sys/kernel/osrelease"),
        Ok(false) => Finding::warn(NO_GPU_ACCESS)
            .read("/proc/sys/kernel/osrelease")
            .fix("boot Linux 5.12 or newer, which supports dma-buf"),
        Err(finding) => finding,
    }
}

/// Returns whether the kernel is new enough to register dma-bufs exported by a GPU driver.
fn takes_dma_buf(pack: &Pack) -> Result<bool, Finding> {
    const RELEASE: &str = "/proc/sys/kernel/osrelease";
    let release = pack.text(RELEASE).map_err(|missing| Finding::unread(RELEASE, &missing))?;
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>());
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor) >= (5, 12)),
        _ => Err(Finding::unknown(format!("cannot parse the kernel release \"{release}\"")).read(RELEASE)),
    }
}
