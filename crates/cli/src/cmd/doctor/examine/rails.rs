//! What could carry a transfer from this host to itself, and which cards could not.

use farreach::provider::verbs::{self, VerbsSettings};
use farreach_verbs::device::DeviceList;
use serde::{Deserialize, Serialize};

use crate::cmd::doctor::probes::Trial;
use crate::rails::{self, RailArgs};

/// Something that should carry data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rail {
    /// `rxe0`, `mlx5_0/2`, `tcp`
    pub(crate) name: String,
    /// What came of a transfer already: there is nothing to try where a port is down.
    pub(crate) failed: Option<Trial>,
}

pub(super) fn look() -> Vec<Rail> {
    let (found, _) = rails::look(&RailArgs::default());
    let mut all: Vec<Rail> = Vec::new();
    for rail in found {
        // libfabric offers tcp on each address.
        if all.iter().all(|known| known.name != rail.name) {
            all.push(Rail { name: rail.name, failed: None });
        }
    }
    let has_efa = all.iter().any(|rail| rail.name == "efa");
    if let Ok(devices) = DeviceList::get() {
        for device in &devices {
            // One that libfabric has is tried by it.
            let is_tried = has_efa && device.driver().as_deref() == Some("efa");
            if let Err(error) = verbs::rails_named(device.name(), &VerbsSettings::default())
                && !is_tried
            {
                let failed =
                    Trial::Failed { error: error.operation, cause: Some(error.cause), fix: Some(error.fix) };
                all.push(Rail { name: device.name().to_owned(), failed: Some(failed) });
            }
        }
    }
    all
}
