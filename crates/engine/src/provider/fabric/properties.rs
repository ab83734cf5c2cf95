//! What a rail over libfabric is and can do: from its offer, and from what is known of its kind.

use std::fs;
use std::os::unix::fs::MetadataExt;

use farreach_core::counter::TICK_PAGES_MAX;
use farreach_core::plan::Limits;
use farreach_fabric::{Capabilities, Domain, Endpoint, Hints, Info, Library, MrMode, Profile, Protocol};

use super::ProviderSettings;
use crate::provider::{DeadKeys, Proof, Properties, Targets};

/// One operation is at most this long, also where the library would take more: what is under way cannot be stopped, nor shared among rails.
const BYTES_MAX: u64 = 1 << 30;

/// As many pieces as the library's lists have room for.
const PIECES_MAX: usize = 16;

/// How many requests, of those that the settings ask for.
pub(super) fn depth(info: &Info, settings: &ProviderSettings) -> usize {
    settings.transmit_depth.clamp(1, info.transmit_queue_size().max(1))
}

pub(super) fn properties(domain: &Domain, endpoint: &Endpoint, settings: &ProviderSettings) -> Properties {
    let (info, profile) = (domain.info(), domain.profile());
    let atomics = endpoint.atomics();
    let proves_delivery = settings.asks_for_delivery && domain.delivers();
    Properties {
        name: name(info),
        native: endpoint.address().to_string(),
        kind: kind(info),
        is_rdma: is_rdma(info),
        limits: limits(info),
        window: depth(info, settings) as u32,
        message_max: settings.message_max.min(info.message_size_max()),
        has_atomics: atomics.fetch_add && atomics.compare_swap,
        writes_prove: if proves_delivery { Proof::Delivered } else { Proof::Sent },
        // With an immediate, it is for the peer to copy the bytes.
        ticks_apart: proves_delivery && is_within_host(info),
        ticks_name_link: false,
        links_end_alone: false,
        reset_stops_peers: profile.close_stops_peers,
        dead_keys: dead_keys(profile),
        rate_bps: rate_bps(info),
    }
}

/// Up to which length a write is asked to complete only when it is there.
///
/// Over shared memory, what fits into a place of the peer's queue counts as done when it is in there; what is longer is done when it was copied,
/// by this side or by the peer. To ask for delivery there would keep this side from copying by itself.
pub(super) fn delivery_is_asked_up_to(info: &Info) -> u64 {
    if is_within_host(info) { info.inject_size() as u64 } else { u64::MAX }
}

/// What the card says; within a host, that of a copy, roughly.
fn rate_bps(info: &Info) -> u64 {
    match info.nic() {
        Some(nic) => nic.speed_bits_per_second as u64,
        None if is_within_host(info) => 50_000_000_000,
        None => 0,
    }
}

/// The provider, and where it is: two rails of one host differ in that.
fn name(info: &Info) -> String {
    match info.source().and_then(|source| source.socket_addr()) {
        Some(address) => format!("{} {}", info.provider(), address.ip()),
        None if is_within_host(info) => info.provider().to_owned(),
        None => format!("{} {}", info.provider(), info.domain()),
    }
}

/// Keys that the provider chooses are a card's.
pub(super) fn is_rdma(info: &Info) -> bool {
    info.mr_mode().contains(MrMode::PROV_KEY)
}

fn limits(info: &Info) -> Limits {
    let ordered_max = ordered_max(info);
    Limits {
        bytes: BYTES_MAX.min(info.message_size_max() as u64).min(ordered_max.unwrap_or(u64::MAX)),
        pieces: info.transmit_buffers_max().clamp(1, PIECES_MAX),
        targets: info.remote_ranges_max().clamp(1, Targets::MAX),
        pages: TICK_PAGES_MAX,
        is_ordered: ordered_max.is_some(),
    }
}

/// Up to which length a write lands behind those before it, if at all. The order of operations is one thing, and that of their bytes another.
fn ordered_max(info: &Info) -> Option<u64> {
    if !info.writes_ordered() {
        return None;
    }
    let mut max = info.ordered_write_size();
    if max == 0 && info.capabilities().contains(Capabilities::ATOMIC) {
        // One layer makes atomics of messages, and as soon as they are asked for says no more than that one-sided writes stay in order.
        // These take the same way with atomics and without, so the offer without knows.
        let hints = Hints::rdm().provider(info.provider()).domain(info.domain());
        let offers = Info::query(&hints).unwrap_or_default();
        let same = offers.iter().find(|other| {
            other.provider() == info.provider() && other.writes_ordered() && other.mr_mode() == info.mr_mode()
        });
        max = same.map_or(0, Info::ordered_write_size);
    }
    (max > 0).then_some(max as u64)
}

fn dead_keys(profile: &Profile) -> DeadKeys {
    match (profile.keys_enforced, profile.revoke_stops_writes) {
        (true, true) => DeadKeys::StopAll,
        (true, false) => DeadKeys::StopNew,
        (false, _) => DeadKeys::StopNothing,
    }
}

/// What is the same on both ends of a link.
fn kind(info: &Info) -> String {
    let (provider, protocol, version) = (info.provider(), info.protocol(), info.protocol_version());
    if protocol == Protocol::Xnet {
        // `net` of 1.17 is `tcp` of 2.x, and they understand each other, whatever their versions say.
        return format!("fabric/tcp/{protocol}");
    }
    let kind = format!("fabric/{provider}/{protocol}.{version}");
    if is_within_host(info) { format!("{kind}/{}", host()) } else { kind }
}

/// Whether it reaches only processes of this host.
fn is_within_host(info: &Info) -> bool {
    matches!(info.protocol(), Protocol::Shm | Protocol::Sm2)
}

/// Who can share memory: processes on one kernel that see each other by the same numbers and the same files, are of one user, and have the
/// same release, because its layout is no protocol.
fn host() -> String {
    let release = Library::open().map_or_else(|_| String::new(), |library| library.version().to_string());
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let processes = fs::read_link("/proc/self/ns/pid");
    let files = fs::metadata("/dev/shm").map(|files| format!("{}.{}", files.dev(), files.ino()));
    let user = fs::metadata("/proc/self").map(|process| process.uid());
    match (boot, processes, files, user) {
        (Ok(boot), Ok(processes), Ok(files), Ok(user)) => {
            format!("{release}/{}/{}/{files}/{user}", boot.trim(), processes.display())
        }
        // Where it cannot be told, only this process is known to.
        _ => format!("{release}/process {}", std::process::id()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_is_itself() {
        assert_eq!(host(), host());
        assert!(host().contains('/'));
    }

    #[test]
    fn what_a_dead_key_proves_is_what_the_profile_says() {
        assert_eq!(dead_keys(&Profile::of_protocol(Protocol::Shm)), DeadKeys::StopNothing);
        assert_eq!(dead_keys(&Profile::of_protocol(Protocol::Xnet)), DeadKeys::StopNew);
        assert_eq!(dead_keys(&Profile::of_protocol(Protocol::Other(999))), DeadKeys::StopNothing);
    }
}
