//! Chooses and opens the card that carries the session.

use anyhow::Result;
use farreach::{Engine, Peer, Slice};
use farreach_verbs::attributes::{AtomicCapability, DeviceAttributes};
use farreach_verbs::context::Context;
use farreach_verbs::device::DeviceList;
use farreach_verbs::pd::ProtectionDomain;
use farreach_verbs::qp::state::ConnectionParameters;
use serde::{Deserialize, Serialize};

use super::failure::of_verbs;
use crate::exit::{Exit, Failure};
use crate::rails::Tuning;

/// The cards of this side that are rails of the session.
#[derive(Debug, Clone)]
pub(crate) struct Cards {
    rails: Vec<Rail>,
    /// The requested GID.
    gid_index: Option<u32>,
    /// How packets are marked.
    tuning: Tuning,
}

#[derive(Debug, Clone)]
struct Rail {
    /// `rxe0`, or `mlx5_0/2` if a device has several ports.
    name: String,
    /// Only rails of the same kind are connected.
    kind: String,
}

/// The client's first message: the pair of cards to use.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Proposal {
    /// The client's card.
    #[serde(deserialize_with = "farreach_text::line")]
    pub(crate) card: String,
    #[serde(deserialize_with = "farreach_text::line")]
    kind: String,
    /// Its index among the client's cards of the same kind.
    place: usize,
}

impl Cards {
    /// Returns the cards of an engine. Its other rails belong to libfabric, or are within this host.
    pub(crate) fn of(engine: &Engine, gid_index: Option<u32>) -> Self {
        // Without the library there is no card.
        let devices = DeviceList::get().ok();
        let is_card = |name: &str| devices.as_ref().is_some_and(|all| all.find(place(name).0).is_some());
        let rails = engine.rail_properties().iter().filter(|rail| is_card(&rail.name));
        let rails = rails.map(|rail| Rail { name: rail.name.clone(), kind: rail.kind.clone() }).collect();
        Self { rails, gid_index, tuning: Tuning::default() }
    }

    /// Sets the tuning.
    pub(crate) fn tuned(mut self, tuning: Tuning) -> Self {
        self.tuning = tuning;
        self
    }

    /// Returns whether a card reaches the peer. Otherwise another rail does.
    pub(crate) fn reach(&self, peer: &Peer) -> bool {
        self.propose(peer).is_ok()
    }

    /// Proposes the first card that reaches the peer.
    pub(super) fn propose(&self, peer: &Peer) -> Result<Proposal, Failure> {
        let ready = peer.rails();
        let Some(chosen) = self.rails.iter().find(|rail| ready.contains(&rail.name)) else {
            return Err(Failure::new(Exit::Unavailable, "it needs an RDMA device of verbs")
                .cause(format!("no rail to the server is one: {}", ready.join(", ")))
                .fix("use an RDMA device on both hosts; to list them:\nfarreach devices"));
        };
        let alike = self.rails.iter().filter(|rail| rail.kind == chosen.kind);
        let place = alike.take_while(|rail| rail.name != chosen.name).count();
        Ok(Proposal { card: chosen.name.clone(), kind: chosen.kind.clone(), place })
    }

    /// Opens the card that was proposed to the other side.
    pub(super) fn open_own(&self, proposal: &Proposal) -> Result<Card, Failure> {
        self.open(&proposal.card)
    }

    /// Opens the counterpart of the other side's card. Engines pair cards in the same way: those of
    /// a kind in turn.
    pub(super) fn open_other(&self, proposal: &Proposal) -> Result<Card, Failure> {
        let alike: Vec<&Rail> = self.rails.iter().filter(|rail| rail.kind == proposal.kind).collect();
        let Some(rail) = (!alike.is_empty()).then(|| alike[proposal.place % alike.len()]) else {
            let failure = Failure::new(Exit::Unavailable, format!("no card matches {}", proposal.card));
            return Err(failure
                .cause(format!("this side has no card of the kind {}", proposal.kind))
                .fix("compare the devices of both hosts:\nfarreach devices"));
        };
        self.open(&rail.name)
    }

    fn open(&self, name: &str) -> Result<Card, Failure> {
        let mut card = Card::open(name, self.gid_index)?;
        let parameters = &mut card.parameters;
        parameters.traffic_class = self.tuning.tclass.unwrap_or(parameters.traffic_class);
        parameters.service_level = self.tuning.sl.unwrap_or(parameters.service_level);
        Ok(card)
    }
}

/// Splits a name into device and port. The port is 1 if the name has none.
fn place(name: &str) -> (&str, u8) {
    match name.split_once('/') {
        Some((device, port)) => (device, port.parse().unwrap_or(1)),
        None => (name, 1),
    }
}

/// An open card.
#[derive(Debug)]
pub(crate) struct Card {
    pub(crate) name: String,
    pub(crate) attributes: DeviceAttributes,
    pub(crate) context: Context,
    pub(crate) pd: ProtectionDomain,
    pub(crate) parameters: ConnectionParameters,
}

impl Card {
    /// Opens the card of this name, with the requested GID or the best one.
    pub(crate) fn open(name: &str, gid_index: Option<u32>) -> Result<Self, Failure> {
        let open = || {
            let (device, port) = place(name);
            let devices = DeviceList::get()?;
            let Some(device) = devices.find(device) else { return Ok(None) };
            let context = device.open()?;
            // The engine's rail chooses in the same way.
            let gid = match gid_index {
                Some(index) => context.gid_at(port, index),
                None => context.choose_gid(port, None),
            }?;
            let parameters = ConnectionParameters::with_gid(&context, port, gid)?;
            let (attributes, pd) = (context.query_device()?, context.alloc_pd()?);
            Ok(Some(Self { name: name.to_owned(), attributes, context, pd, parameters }))
        };
        let opened = open().map_err(|error| of_verbs(&error))?;
        opened.ok_or_else(|| {
            Failure::new(Exit::Unavailable, format!("cannot open {name}"))
                .cause("the device was removed")
                .fix("list the devices:\nfarreach devices")
        })
    }

    /// Returns whether the card has compare-and-swap.
    pub(crate) fn has_atomics(&self) -> bool {
        self.attributes.atomic != AtomicCapability::None
    }

    /// Returns the name of the kernel driver.
    pub(crate) fn driver(&self) -> Option<String> {
        self.context.device().driver()
    }

    /// Allocates local memory for work requests.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<Slice, Failure> {
        self.pd.allocate(bytes).map_err(|error| of_verbs(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rail_names_a_device_and_perhaps_a_port() {
        assert_eq!(place("rxe0"), ("rxe0", 1));
        assert_eq!(place("mlx5_0/2"), ("mlx5_0", 2));
    }
}
