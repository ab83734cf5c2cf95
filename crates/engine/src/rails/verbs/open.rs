//! Opens a rail over verbs.

use std::collections::{HashMap, VecDeque};

use farreach_proto::counter::IMMEDIATE_PAGES_MAX;
use farreach_proto::plan::Limits;
use farreach_rail::{EndedKeys, PeerKey, Proof, Properties, Rail, RailError, Scope};
use farreach_verbs::attributes::{AtomicCapability, DeviceAttributes, DeviceCapabilities};
use farreach_verbs::context::Context;
use farreach_verbs::mr::AccessFlags;
use farreach_verbs::qp::state::ConnectionParameters;
use farreach_verbs::wakeup::Wakeup;

use super::account::Account;
use super::error::told;
use super::links::Links;
use super::queues::{Plan, Queues};
use super::receives::Receives;
use super::regions::Regions;
use super::{VerbsPort, VerbsRail, VerbsSettings, bindings_max};

/// Retries for ever if the peer has no receive buffer.
const RNR_RETRY: u8 = 7;
/// The code for 0.64 ms, the delay before such a retry. Every poll posts receive buffers.
const MIN_RNR_TIMER: u8 = 12;
impl VerbsRail {
    /// Opens a rail.
    pub fn open(rail: &VerbsPort, settings: &VerbsSettings) -> Result<Self, RailError> {
        let failed = |error| told(format!("open {}", rail.name()), &error);
        let context = rail.device.open().map_err(failed)?;
        let (device, pd) = (context.query_device().map_err(failed)?, context.alloc_pd().map_err(failed)?);
        let mut parameters =
            ConnectionParameters::with_gid(&context, rail.port, rail.gid.clone()).map_err(failed)?;
        // What the queue pair permits at most. Each key restricts it further.
        parameters.access = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
        parameters.access.set(AccessFlags::REMOTE_ATOMIC, has_atomics(&device));
        parameters.timeout = settings.ack_timeout;
        (parameters.rnr_retry, parameters.min_rnr_timer) = (RNR_RETRY, MIN_RNR_TIMER);
        (parameters.traffic_class, parameters.service_level) =
            (settings.traffic_class, settings.service_level);
        let (channel, events) =
            (context.create_comp_channel().map_err(failed)?, context.async_events().map_err(failed)?);
        let wakeup = Wakeup::new(&channel, &events).map_err(failed)?;
        let properties = properties(rail, settings, &context, &device)?;
        let plan = Plan {
            links_at_first: settings.links_at_first,
            // Bindings are work requests of the same queue pair, and complete on the same queue.
            window: settings.window + bindings_max(&properties),
            receives: Receives::depth(settings.receives),
            depth_max: device.max_cqe,
        };
        let receives = Receives::new(&pd, settings.receives, settings.message_max)?;
        let (rail_name, links) = (rail.name().to_owned(), Links::default());
        let mut provider = Self {
            properties,
            pd,
            parameters,
            account: Account {
                rail: rail_name,
                links,
                receives,
                in_flight: 0,
                to_bind: Vec::new(),
                given_up: 0,
            },
            queues: Queues::new(&context, channel, plan),
            keys: HashMap::new(),
            regions: Regions::default(),
            exposures_made: 0,
            backlog: VecDeque::new(),
            events,
            wakeup,
            polls: 0,
            broken: None,
        };
        // Opening a link reports unsupported settings now, and not when the first peer connects.
        let (link, _) = provider.open_link(PeerKey(0))?;
        provider.close_link(link);
        Ok(provider)
    }
}

/// Returns whether the card has windows that belong to one queue pair.
fn has_windows(device: &DeviceAttributes) -> bool {
    let windows = DeviceCapabilities::MEM_WINDOW_TYPE_2A | DeviceCapabilities::MEM_WINDOW_TYPE_2B;
    device.max_mw > 0 && device.capabilities.intersects(windows)
}

fn has_atomics(device: &DeviceAttributes) -> bool {
    device.atomic != AtomicCapability::None
}

fn properties(
    rail: &VerbsPort,
    settings: &VerbsSettings,
    context: &Context,
    device: &DeviceAttributes,
) -> Result<Properties, RailError> {
    let port =
        context.query_port(rail.port).map_err(|error| told(format!("open {}", rail.name()), &error))?;
    // Some cards support fewer for reads, and a plan does not distinguish them.
    let pieces = settings.pieces.min(device.max_sge).min(device.max_sge_rd).max(1);
    Ok(Properties {
        name: rail.name().to_owned(),
        native: rail.gid(),
        kind: format!("reliable connection, {}", rail.gid.entry.gid_type),
        scope: Scope::Network,
        is_rdma: true,
        limits: Limits {
            bytes: port.max_message_bytes.into(),
            pieces: pieces as usize,
            // An operation of verbs has one remote segment.
            targets: 1,
            pages: IMMEDIATE_PAGES_MAX,
            is_ordered: true,
        },
        window: settings.window,
        message_max: settings.message_max,
        performs_max: 0,
        has_atomics: has_atomics(device),
        // The peer's card has acknowledged the write.
        writes_prove: Proof::Delivered,
        immediates_name_link: true,
        links_end_alone: true,
        // The card looks up the key of each packet.
        ended_keys: EndedKeys::StopAll,
        keys_are_bound: settings.bind_keys && has_windows(device),
        // A card of unknown rate gets nothing beside one with a rate.
        rate_bps: port.rate_bits_per_second().unwrap_or(0),
    })
}
