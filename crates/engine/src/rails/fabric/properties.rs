//! What a rail over libfabric is and can do: from its offer, and from what is known of its kind.

use farreach_fabric::{Capabilities, Domain, Endpoint, Hints, Info, MrMode, Profile, Protocol, RemoteParts};
use farreach_proto::counter::IMMEDIATE_PAGES_MAX;
use farreach_proto::plan::Limits;
use farreach_rail::{EndedKeys, Proof, Properties};

use super::FabricSettings;
use super::offers::OWN_DATAGRAMS;

/// One operation is at most this long, also where the library would take more: what is under way cannot be stopped, nor shared among rails.
const BYTES_MAX: u64 = 1 << 30;

/// As many pieces as the library's lists have room for.
const PIECES_MAX: usize = 16;

/// How many requests, of those that the settings ask for.
pub(super) fn depth(info: &Info, settings: &FabricSettings) -> usize {
    settings.transmit_depth.clamp(1, info.transmit_queue_size().max(1))
}

pub(super) fn properties(domain: &Domain, endpoint: &Endpoint, settings: &FabricSettings) -> Properties {
    let (info, profile) = (domain.info(), domain.profile());
    let atomics = endpoint.atomics();
    let proves_delivery = settings.asks_for_delivery && domain.delivers();
    Properties {
        name: name(info, settings),
        native: endpoint.address().to_string(),
        kind: kind(info),
        is_rdma: is_rdma(info),
        limits: limits(info),
        window: depth(info, settings) as u32,
        message_max: settings.message_max.min(info.message_size_max()),
        has_atomics: atomics.fetch_add && atomics.compare_swap,
        writes_prove: if proves_delivery { Proof::Delivered } else { Proof::Sent },
        immediates_name_link: false,
        links_end_alone: false,
        ended_keys: ended_keys(profile),
        rate_bps: rate_bps(info),
    }
}

/// What the card says.
fn rate_bps(info: &Info) -> u64 {
    info.nic().map_or(0, |nic| nic.speed_bits_per_second as u64)
}

/// The provider as it was asked for, and its address: two rails of one host differ in that.
fn name(info: &Info, settings: &FabricSettings) -> String {
    let provider = name_asked_for(info.provider(), &settings.providers);
    match info.source().and_then(|source| source.socket_addr()) {
        Some(address) => format!("{provider} {}", address.ip()),
        None => format!("{provider} {}", info.domain()),
    }
}

/// `tcp` where libfabric 1.x answered with `net`: the user asked for `tcp` and finds no `net` in what was typed.
fn name_asked_for<'a>(provider: &'a str, asked: &[String]) -> &'a str {
    if provider == OWN_DATAGRAMS && !asked.iter().any(|name| name == provider) { "tcp" } else { provider }
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
        targets: info.remote_ranges_max().clamp(1, RemoteParts::MAX),
        pages: IMMEDIATE_PAGES_MAX,
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

fn ended_keys(profile: &Profile) -> EndedKeys {
    if profile.revoke_stops_writes { EndedKeys::StopAll } else { EndedKeys::StopNew }
}

/// What is the same on both ends of a link.
fn kind(info: &Info) -> String {
    let (provider, protocol, version) = (info.provider(), info.protocol(), info.protocol_version());
    if protocol == Protocol::Xnet {
        // `net` of 1.17 is `tcp` of 2.x, and they understand each other, whatever their versions say.
        return format!("fabric/tcp/{protocol}");
    }
    format!("fabric/{provider}/{protocol}.{version}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rail_has_the_name_that_was_asked_for() {
        let asked = |name: &str| vec![name.to_owned()];
        assert_eq!(name_asked_for("net", &asked("tcp")), "tcp");
        assert_eq!(name_asked_for("net", &FabricSettings::default().providers), "tcp");
        assert_eq!(name_asked_for("net", &asked("net")), "net");
        assert_eq!(name_asked_for("tcp;ofi_rxm", &asked("tcp;ofi_rxm")), "tcp;ofi_rxm");
    }
}
