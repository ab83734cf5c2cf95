//! Tells commands from prose in the fixes of findings.
//!
//! The unit tests of the crate include this file, too.

/// The programs that fixes run.
const PROGRAMS: &[&str] = &[
    "apt-get",
    "aws",
    "cd",
    "chmod",
    "chown",
    "cpupower",
    "curl",
    "dcb",
    "devlink",
    "df",
    "dmesg",
    "dnf",
    "docker",
    "driverctl",
    "echo",
    "ethtool",
    "export",
    "farreach",
    "fi_info",
    "firewall-cmd",
    "grep",
    "ibportstate",
    "ibv_devinfo",
    "ip",
    "ip6tables",
    "iptables",
    "iptables-save",
    "lspci",
    "mkdir",
    "mlnx_qos",
    "mlxconfig",
    "mlxlink",
    "modprobe",
    "mount",
    "namei",
    "nft",
    "nsenter",
    "numactl",
    "ping",
    "printf",
    "rdma",
    "setpci",
    "sminfo",
    "smpquery",
    "sysctl",
    "systemctl",
    "tar",
    "tuned-adm",
    "udevadm",
    "ulimit",
    "unset",
    "update-grub",
    "uptime",
    "usermod",
];

/// The beginnings of lines for configuration files.
const SETTINGS: &[&str] = &[
    "CPUAffinity=",
    "Default=0x7fff, ipoib : ALL=full;",
    "DeviceAllow=",
    "LimitMEMLOCK=",
    "LimitNOFILE=",
    "SystemCallFilter=",
    "capabilities: {add: [IPC_LOCK]}",
    "hostNetwork: true",
    "hugepages-2Mi: ",
    "vpc.amazonaws.com/efa: 1",
];

/// Words and signs of prose, which no command here contains.
const PROSE: &[&str] = &[" (", ": ", "; ", ", ", " and ", " or ", " the ", " then ", " if ", "…", "`"];

/// Returns what is wrong with a fix; nothing if it has prose in words and commands in `commands`.
pub(crate) fn objections(what: &str, commands: &[String]) -> Vec<String> {
    let mut objections = Vec::new();
    if what.trim().is_empty() {
        objections.push(format!("no words before {commands:?}"));
    }
    if what.ends_with([':', '.']) || what.contains(['`', '\n']) || has_command(what) {
        objections.push(format!("prose with a command, a full stop or a colon at its end: {what:?}"));
    }
    objections
        .extend(commands.iter().filter(|it| !is_command(it)).map(|it| format!("not a command: {it:?}")));
    objections
}

fn is_command(line: &str) -> bool {
    if SETTINGS.iter().any(|setting| line.starts_with(setting)) {
        return true;
    }
    // Quoted words are arguments.
    let bare: String = line.split(['\'', '"']).step_by(2).collect();
    let mut words = bare.split(' ').skip_while(|word| word.contains('=') && !word.starts_with('/'));
    let is_program = words.next().is_some_and(|program| PROGRAMS.contains(&program));
    is_program && line == line.trim() && !PROSE.iter().any(|sign| bare.contains(sign))
}

/// Returns whether prose contains a command with its arguments.
fn has_command(what: &str) -> bool {
    let commands =
        ["modprobe ", "ip link", "ip address", "dmesg |", "systemctl ", "apt-get ", "sysctl ", "docker run"];
    commands.iter().any(|command| what.contains(command))
}

#[test]
fn prose_and_commands_are_told_apart() {
    let command = ["ip link set eth0 up", "IBV_SHOW_WARNINGS=1 farreach devices", "echo 'a, b: c' > /etc/d"];
    assert!(command.into_iter().all(is_command));
    let prose = [
        "ulimit -l unlimited (as root)",
        "see both ends: lspci -vv",
        "dmesg | tail: the driver tells why",
        "ip link set eth0 mtu 9000; on the peer, too",
        "load the module",
    ];
    assert!(!prose.into_iter().any(is_command));
    assert!(has_command("if it stays down, ip link set eth0 up"));
}
