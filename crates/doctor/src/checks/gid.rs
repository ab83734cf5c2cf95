//! Checks the GIDs of a port: which one is chosen, why, and whether it can be used.

use farreach_verbs::ah::{GidEntry, GidType, NetDevice};
use farreach_verbs::gid::{Interface, Interfaces, NoGid, choose};

use super::wire::{Wire, WiredPort, each_of, each_port, is_anothers, net_device};
use crate::finding::{Answer, Finding};
use crate::pack::{Missing, Pack};
use crate::survey::driver;

/// Checks which GID is chosen, and why the others are not.
pub(super) fn gids(pack: &Pack) -> Answer {
    each_port(
        pack,
        |_| true,
        "there is no RDMA device",
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
    let address = format!("ip address add ADDRESS/PREFIX dev {net}; ip link set {net} up");
    let finding = match choose(table, None, &here) {
        Err(none) => Finding::fail(no_gid(&none)).fix(address),
        Ok(choice) => {
            let losers = choice.losers.iter().map(|loser| format!("; not {loser}")).collect::<String>();
            let found = format!("{choice}{losers}");
            if choice.entry.gid_type != GidType::RoceV2 {
                Finding::warn(format!(
                    "{found}; RoCE v1 passes no router, and cards of today may not speak it"
                ))
                .fix("the driver makes no RoCE v2 GIDs: update it and the card's firmware")
            } else if choice.entry.address().is_none_or(|address| address.is_ipv6()) {
                Finding::warn(format!("no IPv4 GID: peers that have only IPv4 are not reached; {found}"))
                    .fix(address)
            } else {
                Finding::pass(found)
            }
        }
    };
    finding.read(it.port.path("gids")).read(it.port.path("gid_attrs")).read("getifaddrs")
}

fn no_gid(none: &NoGid) -> String {
    if none.losers.is_empty() {
        return "the table is empty: the net device has no address, or is down".to_owned();
    }
    let losers: Vec<String> = none.losers.iter().map(|loser| loser.to_string()).collect();
    format!("no GID can be used: {}", losers.join("; "))
}

/// Checks any other port. There a GID is a name of the port in the fabric, and any GID can be used.
fn elsewhere(pack: &Pack, it: &WiredPort, table: &[GidEntry]) -> Finding {
    let finding = match table.first() {
        Some(entry) => Finding::pass(format!("GID {} {}", entry.index, entry.gid)),
        None => Finding::fail("the table is empty").fix_in(
            "while nothing uses the device",
            match driver(pack, it.port.device).as_deref() {
                Some("mlx5_core") => load_anew("mlx5_ib"),
                Some("mlx4_core") => load_anew("mlx4_ib"),
                Some(driver) => load_anew(driver),
                None => "load its driver anew".to_owned(),
            },
        ),
    };
    finding.read(it.port.path("gids"))
}

fn load_anew(module: &str) -> String {
    format!("modprobe -r {module}; modprobe {module}")
}

/// Checks whether the net device of each GID is in this network namespace.
pub(super) fn namespace(pack: &Pack) -> Answer {
    each_of(pack.ports(), pack, Wire::is_roce, "no port speaks RoCE", |it| {
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
            true => Finding::unknown("no GID tells its net device"),
            false => Finding::pass(format!("{} is here", near.join(", "))),
        };
    };
    let found = format!("{} is in another network namespace", far.join(", "));
    let device = it.port.device;
    let finding = match near.is_empty() {
        true if is_anothers(pack, &it.port) => Finding::warn(format!("{found}: {device} is of no use here")),
        true => Finding::fail(format!("{found}, and no packet leaves from here")),
        false => Finding::warn(format!("{found}; {} is here", near.join(", "))),
    };
    finding
        .fix(format!("run where {first} is: ip netns exec NAME COMMAND, or nsenter -t PID -n COMMAND"))
        .fix(format!("or bring it here: ip link set {first} netns PID; rdma dev set {device} netns NAME"))
        .fix_in("container", "start it with the host's network: docker run --network=host, hostNetwork: true")
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
        let gid = text.parse().map_err(|_| (path, Missing::Unreadable(format!("\"{text}\" is no GID"))))?;
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
