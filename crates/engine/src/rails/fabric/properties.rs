//! Properties of a rail over libfabric: from its offer, and from its profile.

use farreach_fabric::{Capabilities, Domain, Endpoint, Hints, Info, MrMode, Profile, Protocol, RemoteParts};
use farreach_proto::counter::IMMEDIATE_PAGES_MAX;
use farreach_proto::plan::Limits;
use farreach_rail::{EndedKeys, Proof, Properties, Scope};

use super::FabricSettings;
use super::settings::OWN_DATAGRAMS;

/// The longest operation, even if the library takes longer ones: an operation in flight can be
/// neither stopped nor divided among rails.
const BYTES_MAX: u64 = 1 << 30;

/// The capacity of the library's scatter-gather lists.
const PIECES_MAX: usize = 16;

/// Returns the transmit depth: that of the settings, limited by the offer.
pub(super) fn depth(info: &Info, settings: &FabricSettings) -> usize {
    // `clamp` panics if its maximum is less than its minimum.
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
        scope: Scope::Network,
        is_rdma: is_rdma(info),
        limits: limits(info),
        window: settings.link_depth.clamp(1, depth(info, settings)) as u32,
        message_max: settings.message_max.min(info.message_size_max()),
        performs_max: 0,
        has_atomics: atomics.fetch_add && atomics.compare_swap,
        writes_prove: if proves_delivery { Proof::Delivered } else { Proof::Sent },
        // libfabric reports no source of a write with immediate data.
        immediates_name_link: false,
        // All links have one endpoint, and only its close stops peers. `IsolatedRail` has one for
        // each link, and changes both values.
        links_end_alone: false,
        ended_keys: ended_keys(profile),
        keys_are_bound: false,
        rate_bps: rate_bps(info),
    }
}

/// Returns the rate that the card reports; 0 if there is no card.
fn rate_bps(info: &Info) -> u64 {
    info.nic().map_or(0, |nic| nic.speed_bits_per_second as u64)
}

/// Returns the provider's name as the user gave it, with its address, which distinguishes two rails
/// of one host.
fn name(info: &Info, settings: &FabricSettings) -> String {
    let provider = name_asked_for(info.provider(), &settings.providers);
    match info.source().and_then(|source| source.socket_addr()) {
        Some(address) => format!("{provider} {}", address.ip()),
        None => format!("{provider} {}", info.domain()),
    }
}

/// Returns `tcp` if libfabric 1.x answered with `net`, because the user asked for `tcp` and does
/// not know `net`.
fn name_asked_for<'a>(provider: &'a str, asked: &[String]) -> &'a str {
    if provider == OWN_DATAGRAMS && !asked.iter().any(|name| name == provider) { "tcp" } else { provider }
}

/// Returns whether the offer is a card's: only cards choose their keys.
pub(super) fn is_rdma(info: &Info) -> bool {
    info.mr_mode().contains(MrMode::PROV_KEY)
}

fn limits(info: &Info) -> Limits {
    let ordered_max = ordered_max(info);
    Limits {
        // The bytes of a longer operation could land before those of an earlier one.
        bytes: BYTES_MAX.min(info.message_size_max() as u64).min(ordered_max.unwrap_or(u64::MAX)),
        pieces: info.transmit_buffers_max().clamp(1, PIECES_MAX),
        targets: info.remote_ranges_max().clamp(1, RemoteParts::MAX),
        pages: IMMEDIATE_PAGES_MAX,
        is_ordered: ordered_max.is_some(),
    }
}

/// Returns the length up to which the bytes of a write land after those of earlier writes; `None`
/// if they do not. The order of operations and the order of their bytes are separate properties.
fn ordered_max(info: &Info) -> Option<u64> {
    if !info.writes_ordered() {
        return None;
    }
    let mut max = info.ordered_write_size();
    if max == 0 && info.capabilities().contains(Capabilities::ATOMIC) {
        // One layer implements atomics by messages. Once they are requested, it reports only that
        // one-sided writes stay in order, and no length. Writes use the same path with and without
        // atomics, so the offer without atomics has the length.
        let hints = Hints::rdm().provider(info.provider()).domain(info.domain());
        // Without such an offer, no order is assumed.
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

/// Returns a text that is the same on both ends of a link.
fn kind(info: &Info) -> String {
    let (provider, protocol, version) = (info.provider(), info.protocol(), info.protocol_version());
    if protocol == Protocol::Xnet {
        // `net` of 1.17 is `tcp` of 2.x. They are compatible, although their versions differ.
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
