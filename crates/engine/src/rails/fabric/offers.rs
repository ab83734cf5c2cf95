//! The rails that libfabric offers on this host.

use farreach_fabric::{Capabilities, Error, Hints, Info, Library, Profile};
use farreach_rail::RailError;

use super::properties::is_rdma;
use super::settings::OWN_DATAGRAMS;
use super::{FabricSettings, failure};

/// Returns the rails that can be opened: those of the [providers](FabricSettings::providers) in the
/// settings that exist here, RDMA first.
///
/// The provider of a card has one offer for each card; of other providers only the best offer is
/// returned. An empty list is no error; a missing libfabric is.
///
/// ```
/// use farreach::rails::fabric::{FabricSettings, offers};
///
/// match offers(&FabricSettings::default()) {
///     Ok(offers) => println!("{} rails", offers.len()),
///     Err(error) => println!("{error}\nfix: {}", error.fix),
/// }
/// ```
pub fn offers(settings: &FabricSettings) -> Result<Vec<Info>, RailError> {
    // First: without it, a missing library would be an empty list.
    Library::open().map_err(|error| refused(&error))?;
    let mut found = Vec::new();
    for name in &settings.providers {
        match named(name, settings) {
            Ok(offers) => found.extend(offers),
            // The default names the providers of all kinds of hosts, and each host has a part of
            // them.
            Err(Error::NoProvider { .. }) => {}
            Err(error) => return Err(refused(&error)),
        }
    }
    // Stable, so that the order of the settings holds otherwise.
    found.sort_by_key(|info| !is_rdma(info));
    Ok(found)
}

/// Returns the best offer of one provider.
pub(in crate::rails) fn best(name: &str, settings: &FabricSettings) -> Result<Info, RailError> {
    let offers = named(name, settings).map_err(|error| refused(&error))?;
    offers.into_iter().next().ok_or_else(|| {
        RailError::new(
            format!("open a rail over {name}"),
            "libfabric offers this provider only under other names",
            "use the name that `farreach devices` lists",
        )
    })
}

/// Returns whether this name of a rail is a provider of libfabric, and not a verbs device.
///
/// ```
/// use farreach::rails::fabric::is_provider;
///
/// assert!(is_provider("tcp") && is_provider("verbs;ofi_rxm"));
/// assert!(!is_provider("mlx5_0"));
/// ```
pub fn is_provider(name: &str) -> bool {
    // Without asking libfabric, which takes 0.1 s to open (docs/PROVIDERS.md).
    let core = name.split(';').next().unwrap_or(name);
    name.contains(';')
        || ["tcp", "net", "shm", "sm2", "efa", "sockets", "udp", "psm3", "opx", "cxi"].contains(&core)
}

fn refused(error: &Error) -> RailError {
    failure::of_error("look for rails", error)
}

/// Returns the offers of one provider: the best of each domain, or only the best one if it has no
/// card.
///
/// For `tcp`, the provider that implements datagrams by itself is preferred. The layer that builds
/// them on connections (`ofi_rxm`) does not suit an engine that outlives its peers: in 1.17 it
/// crashes the process when a connection ends in the middle of a write with immediate data. It can
/// be chosen by its full name.
fn named(name: &str, settings: &FabricSettings) -> Result<Vec<Info>, Error> {
    let offers = offers_of(name, settings)?;
    let is_layered = |info: &Info| Profile::of(info).close_spoils_waits;
    if name == "tcp" && offers.iter().any(is_layered) {
        match offers_of(OWN_DATAGRAMS, settings) {
            Ok(own) if !own.is_empty() => return Ok(own),
            // Without `net`, the layer is all that there is over tcp.
            _ => {}
        }
    }
    Ok(offers)
}

fn offers_of(name: &str, settings: &FabricSettings) -> Result<Vec<Info>, Error> {
    let basic = Capabilities::MSG | Capabilities::RMA;
    let is_named = |info: &Info| info.provider() == name || info.provider().split(';').next() == Some(name);
    let mut best: Vec<Info> = Vec::new();
    for info in query(name, basic, settings)? {
        let is_another = best.iter().all(|other| other.domain() != info.domain() && is_rdma(&info));
        if is_named(&info) && (best.is_empty() || is_another && info.provider() == best[0].provider()) {
            best.push(info);
        }
    }
    // An offer with atomics replaces the one without, if it is otherwise the same.
    let with_atomics = query(name, basic | Capabilities::ATOMIC, settings).unwrap_or_default();
    // In reverse, so that the library's best offer is the last one that replaces another.
    for info in with_atomics.into_iter().rev() {
        let same = |other: &&mut Info| {
            other.provider() == info.provider()
                && other.domain() == info.domain()
                && other.source() == info.source()
                && other.mr_mode() == info.mr_mode()
        };
        if let Some(place) = best.iter_mut().find(same) {
            *place = info;
        }
    }
    Ok(best)
}

fn query(name: &str, capabilities: Capabilities, settings: &FabricSettings) -> Result<Vec<Info>, Error> {
    let mut hints = Hints::rdm().provider(name).capabilities(capabilities);
    if let Some(class) = settings.traffic_class {
        hints = hints.traffic_class(class);
    }
    match settings.bind {
        // A provider without IP addresses has no offer for this one, and is queried without it.
        Some(bind) => match Info::query(&hints.clone().node(bind.to_string()).source()) {
            Err(Error::NoProvider { .. }) if !has_sockets(&hints) => Info::query(&hints),
            answer => answer,
        },
        None => Info::query(&hints),
    }
}

/// Returns whether an offer for these hints has an IP address.
fn has_sockets(hints: &Hints) -> bool {
    let offers = Info::query(hints).unwrap_or_default();
    offers.iter().any(|info| info.source().is_some_and(|source| source.socket_addr().is_some()))
}
