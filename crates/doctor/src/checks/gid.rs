//! Checks the GIDs of a port: which one is chosen, why, and whether it can be used.

use farreach_verbs::ah::{GidEntry, GidType, NetDevice};
use farreach_verbs::gid::{Interface, Interfaces, NoGid, choose};

use super::cards::NO_DEVICE;
use super::wire::{Wire, WiredPort, each_of, each_port, is_anothers, net_device};
use crate::finding::{Answer, CommandLine, Finding, Fix};
use crate::pack::{Missing, Pack};
use crate::survey::driver;

/// Checks which GID is chosen, and why the others are not.
pub(super) fn gids(pack: &Pack) -> Answer {
    each_port(
        pack,
        |_| true,
        NO_DEVICE,
        |it| match table(pack, it) {
            Ok(table) if it.wire.is_roce() => roce(pack, it, &table),
            Ok(table) => elsewhere(pack, it, &table),
            Err((path, missing)) => Finding::unread(&path, &missing),
        },
    )
}

/// Checks a RoCE port, where a GID is an address of a net device.
fn roce(pack: &Pack, it: &WiredPort, table: &[GidEntry]) -> Finding {
    let here = match interfaces(pack) {
        Ok(here) => here,
        Err(reason) => return Finding::unknown(reason).read("getifaddrs"),
    };
    let net = net_device(pack, &it.port);
    let address = |family: &str| {
        Fix::new(format!("give {net} an {family} address, and set it up"))
            .run(CommandLine::new("ip address add ADDRESS/PREFIX dev").name(net))
            .run(CommandLine::new("ip link set").name(net).shell("up"))
    };
    let finding = match choose(table, None, &here) {
        Err(none) => Finding::fail(no_gid(&none)).fix(address("IP")),
        Ok(choice) => {
            let losers =
                choice.losers.iter().map(|loser| format!("; not chosen: {loser}")).collect::<String>();
            let found = format!("{choice}{losers}");
            if choice.entry.gid_type != GidType::RoceV2 {
                Finding::warn(format!("{found}; RoCE v1 is not routable, and newer cards may not support it"))
                    .fix("update the driver and the card's firmware: the driver creates no RoCE v2 GIDs")
            } else if choice.entry.address().is_none_or(|address| address.is_ipv6()) {
                Finding::warn(format!("no IPv4 GID: peers with only IPv4 GIDs cannot be reached; {found}"))
                    .fix(address("IPv4"))
            } else {
                Finding::pass(found)
            }
        }
    };
    finding.read(it.port.path("gids")).read(it.port.path("gid_attrs")).read("getifaddrs")
}

fn no_gid(none: &NoGid) -> String {
    if none.losers.is_empty() {
        return "the GID table is empty: the net device has no address, or is down".to_owned();
    }
    let losers: Vec<String> = none.losers.iter().map(|loser| loser.to_string()).collect();
    format!("no usable GID: {}", losers.join("; "))
}

/// Checks any other port. There a GID is a name of the port in the fabric, and any GID can be used.
fn elsewhere(pack: &Pack, it: &WiredPort, table: &[GidEntry]) -> Finding {
    let finding = match table.first() {
        Some(entry) => Finding::pass(format!("GID {} {}", entry.index, entry.gid)),
        None => Finding::fail("the GID table is empty").fix(reload(
            match driver(pack, it.port.device).as_deref() {
                Some("mlx5_core") => Some("mlx5_ib"),
                Some("mlx4_core") => Some("mlx4_ib"),
                other => other,
            },
        )),
    };
    finding.read(it.port.path("gids"))
}

fn reload(module: Option<&str>) -> Fix {
    let fix = Fix::new("reload the device's driver while nothing uses the device");
    match module {
        Some(module) => fix
            .run(CommandLine::new("modprobe -r").name(module))
            .run(CommandLine::new("modprobe").name(module)),
        None => fix,
    }
}

/// Checks whether the net device of each GID is in this network namespace.
pub(super) fn namespace(pack: &Pack) -> Answer {
    each_of(pack.ports(), pack, Wire::is_roce, "no RoCE port", |it| {
        let found = match (table(pack, it), interfaces(pack)) {
            (Ok(table), Ok(here)) => namespace_of(pack, it, &table, &here),
            (Err((path, missing)), _) => Finding::unread(&path, &missing),
            (_, Err(reason)) => Finding::unknown(reason),
        };
        found.read(it.port.path("gid_attrs/ndevs")).read("getifaddrs")
    })
}

fn namespace_of(pack: &Pack, it: &WiredPort, table: &[GidEntry], here: &Interfaces) -> Finding {
    let names = table.iter().filter_map(|entry| entry.net_device.as_ref()?.name.as_deref());
    let is_here = |name: &str| here.iter().any(|interface| interface.name == name);
    let (mut near, mut far): (Vec<_>, Vec<_>) = names.partition(|name| is_here(name));
    near.dedup();
    far.dedup();
    let Some(first) = far.first() else {
        return match near.is_empty() {
            true => Finding::unknown("the kernel reports no net device for any GID"),
            false => Finding::pass(format!("{} is in this network namespace", near.join(", "))),
        };
    };
    let found = format!("{} is in another network namespace", far.join(", "));
    let device = it.port.device;
    let finding = match near.is_empty() {
        true if is_anothers(pack, &it.port) => {
            Finding::warn(format!("{found}: {device} cannot be used in this one"))
        }
        true => Finding::fail(format!("{found}: packets cannot be sent from this one")),
        false => Finding::warn(format!("{found}; {} is in this one", near.join(", "))),
    };
    finding
        .fix(
            Fix::new(format!("run the program in the network namespace of {first}"))
                .run("ip netns exec NAME COMMAND"),
        )
        .fix(
            Fix::new(format!("run the program in the network namespace of a process that has {first}"))
                .run("nsenter -t PID -n COMMAND"),
        )
        .fix(
            Fix::new(format!("move {first} and {device} to the network namespace of the program"))
                .run(CommandLine::new("ip link set").name(first).shell("netns PID"))
                .run(CommandLine::new("rdma dev set").name(device).shell("netns NAME")),
        )
        .fix(
            Fix::new("start the container with the host's network")
                .at("container")
                .run("docker run --network=host IMAGE"),
        )
        .fix(Fix::new("add this line to the pod's spec").at("Kubernetes").run("hostNetwork: true"))
}

fn interfaces(pack: &Pack) -> Result<Interfaces, &str> {
    let all = pack.probes().interfaces.get()?.iter();
    let copy = |it: &crate::probes::NetInterface| Interface {
        name: it.name.clone(),
        is_up: it.is_up,
        addresses: it.addresses.clone(),
    };
    Ok(all.map(copy).collect())
}

/// Returns the filled entries of a port's GID table.
fn table(pack: &Pack, it: &WiredPort) -> Result<Vec<GidEntry>, (String, Missing)> {
    let folder = it.port.path("gids");
    let mut table = Vec::new();
    let mut indices: Vec<u32> =
        pack.names(&folder).into_iter().filter_map(|name| name.parse().ok()).collect();
    indices.sort_unstable();
    if indices.is_empty() {
        // A folder that could not be read is recorded as a file.
        match pack.text(&folder) {
            Err(missing @ Missing::Unreadable(_)) => return Err((folder, missing)),
            _ => return Ok(table),
        }
    }
    for index in indices {
        let path = format!("{folder}/{index}");
        let text = pack.text(&path).map_err(|missing| (path.clone(), missing))?;
        let gid = text
            .parse()
            .map_err(|_| (path, Missing::Unreadable(format!("cannot parse the GID \"{text}\""))))?;
        let path = it.port.path(&format!("gid_attrs/types/{index}"));
        let gid_type = match pack.text(&path) {
            Ok("RoCE v2") => GidType::RoceV2,
            Ok(_) if it.wire.is_roce() => GidType::RoceV1,
            Err(missing) if it.wire.is_roce() => return Err((path, missing)),
            _ => GidType::Ib,
        };
        let name = pack.text(&it.port.path(&format!("gid_attrs/ndevs/{index}")));
        // No file states the interface index, and nothing here needs it.
        let net_device = name.ok().map(|name| NetDevice { index: 0, name: Some(name.to_owned()) });
        table.push(GidEntry::new(index, gid, gid_type, net_device));
    }
    Ok(table)
}
