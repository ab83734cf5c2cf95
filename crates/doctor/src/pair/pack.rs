//! The packs of two hosts, and the results of the trials between them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::readings::PairReadings;
use crate::pack::Pack;

/// The packs of two hosts and the results of the trials between them: the input of the diagnosis. The schema is docs/schema/doctor-pair-pack.json.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "DoctorPairPack"))]
pub struct PairPack {
    /// The host that ran `farreach doctor`.
    here: Pack,
    /// The host that ran `farreach serve`.
    peer: Pack,
    /// The results of the trials.
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

    /// Returns the addresses of both hosts on the control connection: of the host that asked, then
    /// of its peer.
    pub fn addresses(&self) -> Option<(IpAddr, IpAddr)> {
        self.readings.addresses()
    }

    /// Returns the results of the trials.
    pub fn readings(&self) -> &PairReadings {
        &self.readings
    }
}
