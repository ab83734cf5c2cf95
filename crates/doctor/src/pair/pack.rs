//! What was read of two hosts, and tried between them.

use serde::{Deserialize, Serialize};

use super::readings::PairReadings;
use crate::pack::Pack;

/// What was read of two hosts and tried between them: all that the report on them is made of. The schema is docs/schema/doctor-pair-pack.json.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "DoctorPairPack"))]
pub struct PairPack {
    /// The host that asked.
    here: Pack,
    peer: Pack,
    readings: PairReadings,
}

impl PairPack {
    /// What was read of the host that asked and of its peer, and tried between them.
    pub fn new(here: Pack, peer: Pack, readings: PairReadings) -> Self {
        Self { here, peer, readings }
    }

    /// The host that asked.
    pub fn here(&self) -> &Pack {
        &self.here
    }

    /// The other host.
    pub fn peer(&self) -> &Pack {
        &self.peer
    }

    /// What was tried between them.
    pub fn readings(&self) -> &PairReadings {
        &self.readings
    }
}
