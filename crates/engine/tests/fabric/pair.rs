//! Two rails over one provider.

use std::net::IpAddr;

use farreach::rails::fabric::{FabricRail, FabricSettings};
use farreach_fabric::Library;

pub(crate) use crate::contract::pair::{A, B, Granted, Seen, write};

pub(crate) type Pair = crate::contract::pair::Pair<FabricRail>;

/// The provider over which the suite runs, and its expected properties.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) name: &'static str,
    /// The local address, if the provider has IP addresses.
    pub(crate) bind: Option<fn() -> IpAddr>,
    /// Whether it has atomics, in libfabric 1.x and in 2.x.
    pub(crate) has_atomics: [bool; 2],
    pub(crate) is_rdma: bool,
    /// Whether it has a descriptor to sleep on, in 1.x and in 2.x.
    pub(crate) has_descriptor: [bool; 2],
}

impl Place {
    pub(crate) fn has_atomics(&self) -> bool {
        self.has_atomics[generation()]
    }

    pub(crate) fn has_descriptor(&self) -> bool {
        self.has_descriptor[generation()]
    }

    pub(crate) fn open(&self, settings: &FabricSettings) -> FabricRail {
        let opened = FabricRail::open_named(self.name, self.bind.map(|bind| bind()), settings);
        opened.unwrap_or_else(|error| panic!("{error}\nfix: {}", error.fix))
    }
}

/// The index of what differs between libfabric 1.x and 2.x.
fn generation() -> usize {
    usize::from(Library::open().unwrap().version().major >= 2)
}

impl Pair {
    pub(crate) fn open(place: &Place) -> Self {
        Self::open_with(place, &FabricSettings::default())
    }

    pub(crate) fn open_with(place: &Place, settings: &FabricSettings) -> Self {
        Self::of([place.open(settings), place.open(settings)])
    }

    pub(crate) fn of(rails: [FabricRail; 2]) -> Self {
        Self::new(rails, || {})
    }
}
