//! The packs of two hosts, and the results of the trials between them.

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
    /// Creates a pack of the host that asked, its peer, and the trials between them.
    pub fn new(here: Pack, peer: Pack, readings: PairReadings) -> Self {
        Self { here, peer, readings }
    }

    /// Returns the pack of the host that asked.
    pub fn here(&self) -> &Pack {
        &self.here
    }

    /// Returns the pack of the peer.
    pub fn peer(&self) -> &Pack {
        &self.peer
    }

    /// Returns the results of the trials.
    pub fn readings(&self) -> &PairReadings {
        &self.readings
    }
}
