//! Queries both libraries, and opens the rail within this host. What is missing or fails becomes a
//! problem in the report.

use farreach::rails::shm::ShmRail;
use farreach_fabric::{Hints, Info, Library};
use farreach_rail::Properties;
use farreach_shm::Place;
use farreach_verbs::Error;
use farreach_verbs::context::Context;
use farreach_verbs::device::{Device as VerbsDevice, DeviceList};
use farreach_verbs::system::{self, NodeAccess, Obstacle};

use super::report::{
    Device, Fabric, Gid, Limits, Nic, Offer, Port, Problem, Rail, Reach, Report, SCHEMA_VERSION, Shm, Verbs,
};
use crate::rails::{self, FabricRail, Found};

/// Collects the devices, providers and rails of this host.
pub(crate) fn report() -> Report {
    let (verbs, fabric, within_host) = (verbs(), fabric(), rails::within_host(None));
    let rails = rails(&verbs, within_host.as_ref().ok());
    let shm = match within_host.map(|shm| reach(&shm)) {
        Ok(reach) => Shm { reach, problems: Vec::new() },
        Err(failure) => {
            let fix = failure.fix.unwrap_or_default();
            Shm { reach: None, problems: vec![Problem { what: failure.error, cause: failure.cause, fix }] }
        }
    };
    Report { schema_version: SCHEMA_VERSION, verbs, fabric, shm, rails }
}

fn reach(shm: &Properties) -> Option<Reach> {
    let Place { user, network_namespace, .. } = Place::here().ok()?;
    Some(Reach {
        user,
        network_namespace,
        message_bytes_max: ShmRail::MESSAGE_BYTES_MAX,
        request_bytes_max: shm.limits.bytes,
        segments_max: shm.limits.targets.min(shm.limits.pieces),
    })
}

/// Returns the rails, cards first.
fn rails(verbs: &Verbs, shm: Option<&Properties>) -> Vec<Rail> {
    let card = |found: Found| {
        let device = found.name.split('/').next().unwrap_or(&found.name);
        let has_atomics = verbs.devices.iter().any(|it| it.name == device && it.atomics != NO_ATOMICS);
        Rail {
            name: found.name,
            library: "verbs".to_owned(),
            provider: None,
            through: found.through,
            is_rdma: found.is_rdma,
            has_atomics,
        }
    };
    let provider = |it: FabricRail| Rail {
        name: it.rail.name,
        library: "libfabric".to_owned(),
        provider: Some(it.provider),
        through: it.rail.through,
        is_rdma: it.rail.is_rdma,
        has_atomics: it.has_atomics,
    };
    let within = |shm: &Properties| {
        let Found { name, through, is_rdma } = rails::found_within(shm);
        let library = rails::library(&name).to_owned();
        Rail { name, library, provider: None, through, is_rdma, has_atomics: shm.has_atomics }
    };
    let cards = rails::verbs_rails().into_iter().map(card);
    cards.chain(rails::fabric_rails().into_iter().map(provider)).chain(shm.map(within)).collect()
}

/// The value that a device without atomics reports.
const NO_ATOMICS: &str = "none";

fn verbs() -> Verbs {
    let survey = system::survey();
    let obstacles = survey.obstacles();
    let mut problems: Vec<_> = obstacles
        .iter()
        .map(|obstacle| match obstacle {
            Obstacle::NoLibrary(missing) => verbs_problem(&missing.clone().into()),
            obstacle => Problem { what: obstacle.to_string(), cause: None, fix: obstacle.fix() },
        })
        .collect();
    let mut devices = Vec::new();
    match DeviceList::get() {
        Ok(list) => {
            for found in &list {
                // A device for which the survey has an obstacle would only fail again.
                let is_usable = survey
                    .devices
                    .iter()
                    .all(|known| known.name != found.name() || known.access == NodeAccess::Granted);
                match found.open().and_then(|context| device(found, &context)) {
                    Ok(device) => devices.push(device),
                    Err(error) if is_usable => problems.push(verbs_problem(&error)),
                    Err(_) => {}
                }
            }
        }
        // The survey covers what is below the library, but not a library that lacks a function.
        Err(error @ Error::Symbol(_)) => problems.push(verbs_problem(&error)),
        // Other errors are reported only if the survey found no cause.
        Err(error) if problems.is_empty() => problems.push(verbs_problem(&error)),
        Err(_) => {}
    }
    Verbs { library: survey.library.ok(), devices, problems }
}

fn verbs_problem(error: &Error) -> Problem {
    Problem { what: error.to_string(), cause: Some(error.cause()), fix: error.fix() }
}

fn device(found: &VerbsDevice, context: &Context) -> Result<Device, Error> {
    let attributes = context.query_device()?;
    let ports = (1..=u8::try_from(attributes.port_count).unwrap_or(u8::MAX))
        .map(|number| port(context, number))
        .collect::<Result<_, _>>()?;
    Ok(Device {
        name: found.name().to_owned(),
        driver: found.driver(),
        node_type: found.node_type().to_string(),
        transport: found.transport().to_string(),
        node_guid: attributes.node_guid.to_string(),
        system_image_guid: attributes.system_image_guid.to_string(),
        uverbs_node: found.uverbs_node(),
        pci_address: found.pci_address(),
        numa_node: found.numa_node(),
        vendor_id: attributes.vendor_id,
        vendor_part_id: attributes.vendor_part_id,
        hardware_version: attributes.hardware_version,
        on_chip_memory_bytes: attributes.max_dm_bytes,
        completion_vectors: context.completion_vector_count(),
        capabilities: attributes.capabilities.iter_names().map(|(name, _)| name).collect(),
        atomics: attributes.atomic.to_string(),
        on_demand_paging: attributes.on_demand.supported,
        limits: Limits {
            max_mr_bytes: attributes.max_mr_bytes,
            max_mr: attributes.max_mr,
            max_mw: attributes.max_mw,
            max_pd: attributes.max_pd,
            max_qp: attributes.max_qp,
            max_qp_wr: attributes.max_qp_wr,
            max_sge: attributes.max_sge,
            max_sge_rd: attributes.max_sge_rd,
            max_cq: attributes.max_cq,
            max_cqe: attributes.max_cqe,
            max_srq: attributes.max_srq,
            max_srq_wr: attributes.max_srq_wr,
            max_srq_sge: attributes.max_srq_sge,
            max_ah: attributes.max_ah,
            max_qp_rd_atom: attributes.max_qp_rd_atom,
            max_res_rd_atom: attributes.max_res_rd_atom,
            max_qp_init_rd_atom: attributes.max_qp_init_rd_atom,
            max_mcast_grp: attributes.max_mcast_grp,
            max_mcast_qp_attach: attributes.max_mcast_qp_attach,
            max_pkeys: attributes.max_pkeys,
        },
        firmware: attributes.firmware,
        ports,
    })
}

fn port(context: &Context, number: u8) -> Result<Port, Error> {
    let attributes = context.query_port(number)?;
    let gids = context.gid_table(number)?;
    Ok(Port {
        number,
        state: attributes.state.to_string(),
        physical_state: attributes.physical_state.to_string(),
        link_layer: attributes.link_layer.to_string(),
        rate_bits_per_second: attributes.rate_bits_per_second(),
        width: attributes.active_width.to_string(),
        lane_speed: attributes.active_speed.to_string(),
        active_mtu_bytes: attributes.active_mtu.bytes(),
        max_mtu_bytes: attributes.max_mtu.bytes(),
        lid: attributes.lid.0,
        sm_lid: attributes.sm_lid.0,
        lmc: attributes.lmc,
        gid_table_len: attributes.gid_table_len,
        pkey_table_len: attributes.pkey_table_len,
        max_message_bytes: attributes.max_message_bytes,
        gids: gids
            .into_iter()
            .map(|entry| Gid {
                index: entry.index,
                gid: entry.gid.to_string(),
                gid_type: entry.gid_type.to_string(),
                address: entry.address(),
                net_device: entry.net_device.and_then(|net| net.name),
            })
            .collect(),
    })
}

fn fabric() -> Fabric {
    let problem = |error: &farreach_fabric::Error| Problem {
        what: error.to_string(),
        cause: Some(error.cause()),
        fix: error.fix(),
    };
    let mut fabric = Fabric { library: None, version: None, offers: Vec::new(), problems: Vec::new() };
    match Library::open() {
        Ok(library) => {
            fabric.library = Some(library.path().to_owned());
            fabric.version = Some(library.version().to_string());
        }
        Err(error) => {
            fabric.problems.push(problem(&error));
            return fabric;
        }
    }
    match Info::query(&Hints::new()) {
        Ok(offers) => fabric.offers = offers.iter().map(offer).collect(),
        Err(error) => fabric.problems.push(problem(&error)),
    }
    fabric
}

fn offer(info: &Info) -> Offer {
    Offer {
        provider: info.provider().to_owned(),
        provider_version: info.provider_version().to_string(),
        fabric: info.fabric().to_owned(),
        domain: info.domain().to_owned(),
        endpoint_type: info.endpoint_type().to_string(),
        protocol: info.protocol().to_string(),
        capabilities: info.capabilities().iter_names().map(|(name, _)| name).collect(),
        mode: info.mode().iter_names().map(|(name, _)| name).collect(),
        registration_modes: info.mr_mode().iter_names().map(|(name, _)| name).collect(),
        order: info.transmit_order().iter_names().map(|(name, _)| name).collect(),
        writes_ordered: info.writes_ordered(),
        ordered_write_bytes: info.ordered_write_size(),
        immediate_bytes: info.immediate_size(),
        inject_bytes: info.inject_size(),
        message_bytes_max: info.message_size_max(),
        transmit_queue: info.transmit_queue_size(),
        receive_queue: info.receive_queue_size(),
        buffers_per_operation: info.transmit_buffers_max(),
        key_bytes: info.key_size(),
        progress: info.data_progress().to_string(),
        threading: info.threading().to_string(),
        address_format: info.address_format().to_string(),
        address: info.source().map(|address| address.to_string()),
        nic: info.nic().map(|nic| Nic {
            rate_bits_per_second: (nic.speed_bits_per_second > 0).then_some(nic.speed_bits_per_second as u64),
            link_state: nic.link_state.to_string(),
            pci_address: nic.pci.map(|pci| pci.to_string()),
            device: nic.device,
            driver: nic.driver,
            firmware: nic.firmware,
        }),
    }
}
