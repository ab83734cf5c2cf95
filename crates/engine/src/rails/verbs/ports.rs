//! The ports of this host that can be rails.

use farreach_rail::RailError;
use farreach_verbs::context::Context;
use farreach_verbs::device::{Device, DeviceList, Transport};
use farreach_verbs::gid::GidChoice;
use farreach_verbs::port::{PortAttributes, PortState};
use farreach_verbs::system;

use super::VerbsSettings;
use super::error::told;

/// A port that can be a rail, and its source GID.
///
/// ```no_run
/// use farreach::rails::verbs::{self, VerbsRail, VerbsSettings};
///
/// let settings = VerbsSettings::default();
/// for rail in verbs::rails(&settings) {
///     println!("{}, {}", rail.name(), rail.gid()); // rxe0, GID 1 ::ffff:192.0.2.1: RoCE v2, IPv4, on v0
///     let _opened = VerbsRail::open(&rail, &settings)?;
/// }
/// # Ok::<(), farreach_rail::RailError>(())
/// ```
#[derive(Debug, Clone)]
pub struct VerbsPort {
    pub(super) device: Device,
    pub(super) port: u8,
    pub(super) gid: GidChoice,
    name: String,
}

impl VerbsPort {
    /// Returns the name: `rxe0`, or `mlx5_0/2` if the device has several ports.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the GID, and why it was chosen: `GID 1 ::ffff:192.0.2.1: RoCE v2, IPv4, on v0`.
    pub fn gid(&self) -> String {
        self.gid.to_string()
    }

    /// Returns the NUMA node nearest to the card; `None` if the host has only one, or the device is
    /// no card.
    pub fn numa_node(&self) -> Option<u32> {
        self.device.numa_node()
    }
}

/// Returns every port of this host that can be a rail now: it is active and has a source GID. The
/// list is empty if there is no library or no device.
pub fn rails(settings: &VerbsSettings) -> Vec<VerbsPort> {
    // Without the library no card can be used. Other rails may be.
    let Ok(devices) = DeviceList::get() else { return Vec::new() };
    // A port that is down is left out. `rails_named` tells the reason to who names it.
    devices.iter().flat_map(|device| ports(device, settings)).filter_map(Result::ok).collect()
}

/// Returns the rails of one name: for a device, such as `rxe0`, all of its usable ports; for a
/// port, such as `rxe0/1`, that one. It is an error if there is none.
pub fn rails_named(name: &str, settings: &VerbsSettings) -> Result<Vec<VerbsPort>, RailError> {
    let operation = format!("open {name}");
    let devices = DeviceList::get().map_err(|error| told(operation.clone(), &error))?;
    let (device, port) = match name.split_once('/') {
        Some((device, port)) => (device, Some(port)),
        None => (name, None),
    };
    let Some(device) = devices.find(device) else { return Err(missing(operation, &devices)) };
    let mut found = ports(device, settings);
    if let Some(port) = port {
        let number = port.parse::<usize>().ok().filter(|number| (1..=found.len()).contains(number));
        let Some(number) = number else {
            let cause = format!("{} has ports 1 to {}", device.name(), found.len());
            return Err(RailError::new(
                operation,
                cause,
                "use one of these numbers, or the device name alone",
            ));
        };
        found = vec![found.swap_remove(number - 1)];
    }
    let (rails, mut refused): (Vec<_>, Vec<_>) = found.into_iter().partition(Result::is_ok);
    // A device is named for those of its ports that work. The reason counts only if none does.
    match refused.pop() {
        Some(Err(reason)) if rails.is_empty() => Err(reason),
        _ => Ok(rails.into_iter().flatten().collect()),
    }
}

fn missing(operation: String, devices: &DeviceList) -> RailError {
    let names: Vec<_> = devices.iter().map(Device::name).collect();
    if !names.is_empty() {
        let cause = format!("there is no device of this name; the devices are {}", names.join(", "));
        return RailError::new(operation, cause, "use one of these names");
    }
    // The list is empty: the kernel tells more than the library, for example that a module is
    // missing.
    let survey = system::survey();
    match survey.obstacles().first() {
        Some(obstacle) => RailError::new(operation, obstacle.to_string(), obstacle.fix()),
        None => RailError::new(operation, "there is no RDMA device", "check `rdma link`"),
    }
}

/// Returns each port of a device, or why it cannot be a rail; a single error if the device itself
/// cannot.
fn ports(device: &Device, settings: &VerbsSettings) -> Vec<Result<VerbsPort, RailError>> {
    let operation = format!("open {}", device.name());
    if device.transport() != Transport::InfiniBand {
        let cause = format!("its transport is {}; links need InfiniBand or RoCE", device.transport());
        return vec![Err(RailError::new(operation, cause, "use it through libfabric"))];
    }
    let opened = device.open().and_then(|context| {
        // Port numbers have one byte.
        let count = context.query_device()?.port_count.min(u8::MAX.into()) as u8;
        Ok((context, count))
    });
    match opened {
        Ok((context, count)) => (1..=count).map(|port| look(&context, port, count, settings)).collect(),
        Err(error) => vec![Err(told(operation, &error))],
    }
}

fn look(context: &Context, port: u8, count: u8, settings: &VerbsSettings) -> Result<VerbsPort, RailError> {
    let device = context.device();
    let name = match count {
        1 => device.name().to_owned(),
        _ => format!("{}/{port}", device.name()),
    };
    let failed = |error| told(format!("open {name}"), &error);
    let attributes = context.query_port(port).map_err(failed)?;
    if let Some(reason) = inactive(format!("open {name}"), port, &attributes) {
        return Err(reason);
    }
    let gid = match settings.gid_index {
        Some(index) => context.gid_at(port, index),
        None => context.choose_gid(port, None),
    };
    Ok(VerbsPort { device: device.clone(), port, gid: gid.map_err(failed)?, name })
}

/// Returns an error if the port is not active.
pub(super) fn inactive(operation: String, port: u8, attributes: &PortAttributes) -> Option<RailError> {
    (attributes.state != PortState::Active).then(|| {
        RailError::new(
            operation,
            format!("port {port} is {}, {}", attributes.state, attributes.physical_state),
            "set its net device up, or connect the cable; on InfiniBand, check that a subnet manager runs",
        )
    })
}
