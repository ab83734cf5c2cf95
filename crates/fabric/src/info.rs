//! What the providers offer.

use std::fmt;

use farreach_fabric_sys as sys;

use crate::raw::{Parts, RawInfo};
use crate::{
    Address, AddressFormat, Capabilities, EndpointType, Error, Hints, Library, Mode, MrMode, Nic, Order,
    Progress, Protocol, ResourceManagement, Threading, TrafficClass, Version,
};

/// One offer of one provider: a domain, a type of endpoint, and what they can do.
///
/// A provider makes several: for each domain (a card, an interface), endpoint type and address. All of it is
/// data; the rest of a program decides from these and never from a provider's name.
///
/// ```
/// use farreach_fabric::{EndpointType, Hints, Info};
///
/// match Info::query(&Hints::new().endpoint_type(EndpointType::ReliableDatagram)) {
///     Ok(offers) => {
///         for info in offers {
///             println!("{} {} {:?}", info.provider(), info.domain(), info.source());
///         }
///     }
///     Err(error) => println!("{error}: {}", error.fix()),
/// }
/// ```
#[doc(alias = "fi_info")]
pub struct Info {
    raw: RawInfo,
    provider: String,
    fabric: String,
    domain: String,
}

impl Info {
    /// Asks every provider what it offers: `fi_getinfo(3)`.
    ///
    /// The best comes first, as the library sees it. Nothing to offer is an error, [`Error::NoProvider`].
    #[doc(alias = "fi_getinfo")]
    pub fn query(hints: &Hints) -> Result<Vec<Self>, Error> {
        let library = Library::open()?;
        match getinfo(&library, hints) {
            Err(Error::Failed { errno: sys::FI_ENODATA, .. }) => {
                let offered = getinfo(&library, &Hints::new()).unwrap_or_default();
                Err(Error::NoProvider { wanted: hints.to_string(), offered: provider_names(&offered) })
            }
            answer => answer,
        }
    }

    fn from_raw(raw: RawInfo) -> Result<Self, Error> {
        let [provider, fabric, domain] = raw.names()?;
        Ok(Self { raw, provider, fabric, domain })
    }

    /// A copy for an object that outlives this one.
    pub(crate) fn try_clone(&self) -> Result<Self, Error> {
        Self::from_raw(self.raw.duplicate(&Library::open()?)?)
    }

    /// The structure for functions that open something by it. They take it as one to be changed, and only read it.
    pub(crate) fn as_raw_mut(&self) -> *mut sys::fi_info {
        self.raw.as_ptr().cast_mut()
    }

    /// The part that names the fabric, as `fi_fabric(3)` takes it.
    pub(crate) fn fabric_attr(&self) -> *mut sys::fi_fabric_attr {
        self.parts().info.fabric_attr
    }

    /// What kind of address vector it wants.
    pub(crate) fn av_type(&self) -> sys::fi_av_type {
        self.parts().domain.av_type
    }

    /// Whether the same is offered with completions that tell of delivery. An offer does not say; asking for them does.
    pub(crate) fn offers_delivery(&self) -> bool {
        let ask = || {
            let library = Library::open()?;
            RawInfo::query(&library, &self.raw.with_delivery(&library)?, (None, None), 0)
        };
        ask().is_ok_and(|offers: Vec<RawInfo>| !offers.is_empty())
    }

    fn parts(&self) -> Parts<'_> {
        self.raw.parts().expect("all parts were there when this was made, and nothing changes it")
    }

    /// The provider's name; with a layer over it, both: `tcp;ofi_rxm`.
    #[doc(alias = "prov_name")]
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// The provider's own version.
    #[doc(alias = "prov_version")]
    pub fn provider_version(&self) -> Version {
        Version::from_c(self.parts().fabric.prov_version)
    }

    /// The fabric: the network that it reaches.
    pub fn fabric(&self) -> &str {
        &self.fabric
    }

    /// The domain: a card, or a network interface.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// The type of endpoint.
    #[doc(alias = "ep_attr")]
    pub fn endpoint_type(&self) -> EndpointType {
        EndpointType::from_c(self.parts().endpoint.type_)
    }

    /// What is spoken between endpoints.
    pub fn protocol(&self) -> Protocol {
        Protocol::from_c(self.parts().endpoint.protocol)
    }

    /// The version of the protocol.
    pub fn protocol_version(&self) -> u32 {
        self.parts().endpoint.protocol_version
    }

    /// What it can do.
    #[doc(alias = "caps")]
    pub fn capabilities(&self) -> Capabilities {
        Capabilities::from_bits_retain(self.parts().info.caps)
    }

    /// What it asks of its user.
    pub fn mode(&self) -> Mode {
        Mode::from_bits_retain(self.parts().info.mode)
    }

    /// What it asks of memory regions.
    pub fn mr_mode(&self) -> MrMode {
        MrMode::from_bits_retain(self.parts().domain.mr_mode as u32)
    }

    /// How its addresses are written.
    #[doc(alias = "addr_format")]
    pub fn address_format(&self) -> AddressFormat {
        AddressFormat::from_c(self.parts().info.addr_format)
    }

    /// The local address, if it has one already.
    #[doc(alias = "src_addr")]
    pub fn source(&self) -> Option<Address> {
        self.raw.source().map(|bytes| Address::new(self.address_format(), bytes))
    }

    /// The address that was asked for, if one was.
    #[doc(alias = "dest_addr")]
    pub fn destination(&self) -> Option<Address> {
        self.raw.destination().map(|bytes| Address::new(self.address_format(), bytes))
    }

    /// The order in which operations leave.
    #[doc(alias = "msg_order")]
    pub fn transmit_order(&self) -> Order {
        Order::from_bits_retain(self.parts().transmit.msg_order)
    }

    /// The order in which a peer's operations are taken.
    #[doc(alias = "msg_order")]
    pub fn receive_order(&self) -> Order {
        Order::from_bits_retain(self.parts().receive.msg_order)
    }

    /// The order in which operations complete.
    #[doc(alias = "comp_order")]
    pub fn completion_order(&self) -> Order {
        Order::from_bits_retain(self.parts().transmit.comp_order)
    }

    /// Whether writes are ordered after writes: sent so, and taken so.
    ///
    /// This is the order of the operations. That of their bytes holds up to
    /// [`ordered_write_size`](Self::ordered_write_size).
    pub fn writes_ordered(&self) -> bool {
        self.transmit_order().orders_writes() && self.receive_order().orders_writes()
    }

    /// Up to which size the bytes of a write land after those of the writes before it; 0 if never.
    #[doc(alias = "max_order_waw_size")]
    pub fn ordered_write_size(&self) -> usize {
        self.parts().endpoint.max_order_waw_size
    }

    /// The largest message or transfer, in bytes.
    #[doc(alias = "max_msg_size")]
    pub fn message_size_max(&self) -> usize {
        self.parts().endpoint.max_msg_size
    }

    /// The largest transfer whose buffer is free again on return, in bytes.
    pub fn inject_size(&self) -> usize {
        self.parts().transmit.inject_size
    }

    /// How many operations may be under way.
    #[doc(alias = "tx_attr")]
    pub fn transmit_queue_size(&self) -> usize {
        self.parts().transmit.size
    }

    /// How many receives may be posted.
    #[doc(alias = "rx_attr")]
    pub fn receive_queue_size(&self) -> usize {
        self.parts().receive.size
    }

    /// How many buffers one operation may gather.
    #[doc(alias = "iov_limit")]
    pub fn transmit_buffers_max(&self) -> usize {
        self.parts().transmit.iov_limit
    }

    /// How many buffers one receive may scatter to.
    #[doc(alias = "iov_limit")]
    pub fn receive_buffers_max(&self) -> usize {
        self.parts().receive.iov_limit
    }

    /// How many remote ranges one operation may name.
    #[doc(alias = "rma_iov_limit")]
    pub fn remote_ranges_max(&self) -> usize {
        self.parts().transmit.rma_iov_limit
    }

    /// How many bytes of immediate data an operation may carry.
    #[doc(alias = "cq_data_size")]
    pub fn immediate_size(&self) -> usize {
        self.parts().domain.cq_data_size
    }

    /// The size of a region's key, in bytes.
    #[doc(alias = "mr_key_size")]
    pub fn key_size(&self) -> usize {
        self.parts().domain.mr_key_size
    }

    /// How many memory regions are best not exceeded; 0 where not said.
    #[doc(alias = "mr_cnt")]
    pub fn region_count(&self) -> usize {
        self.parts().domain.mr_cnt
    }

    /// How many completion queues are best not exceeded.
    #[doc(alias = "cq_cnt")]
    pub fn completion_queue_count(&self) -> usize {
        self.parts().domain.cq_cnt
    }

    /// How many endpoints are best not exceeded.
    #[doc(alias = "ep_cnt")]
    pub fn endpoint_count(&self) -> usize {
        self.parts().domain.ep_cnt
    }

    /// Who keeps connections and addresses moving.
    pub fn control_progress(&self) -> Progress {
        Progress::from_c(self.parts().domain.control_progress)
    }

    /// Who keeps transfers moving, by the provider's own word.
    pub fn data_progress(&self) -> Progress {
        Progress::from_c(self.parts().domain.data_progress)
    }

    /// What may be called from several threads at once.
    pub fn threading(&self) -> Threading {
        Threading::from_c(self.parts().domain.threading)
    }

    /// How its traffic is treated on its way.
    #[doc(alias = "tclass")]
    pub fn traffic_class(&self) -> TrafficClass {
        TrafficClass::from_c(self.parts().transmit.tclass)
    }

    /// Whether the provider keeps queues from overrunning.
    #[doc(alias = "resource_mgmt")]
    pub fn resource_management(&self) -> ResourceManagement {
        ResourceManagement::from_c(self.parts().domain.resource_mgmt)
    }

    /// The card, where there is one and the provider tells: `fi_nic(3)`.
    #[doc(alias = "fid_nic")]
    pub fn nic(&self) -> Option<Nic> {
        self.raw.nic()
    }
}

impl fmt::Debug for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Info")
            .field("provider", &self.provider())
            .field("fabric", &self.fabric())
            .field("domain", &self.domain())
            .field("endpoint_type", &self.endpoint_type())
            .field("source", &self.source())
            .finish_non_exhaustive()
    }
}

/// Each name once, in the order of the offers.
fn provider_names(offers: &[Info]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for info in offers {
        if !names.iter().any(|name| name == info.provider()) {
            names.push(info.provider().to_owned());
        }
    }
    names
}

fn getinfo(library: &Library, hints: &Hints) -> Result<Vec<Info>, Error> {
    let offers = RawInfo::query(library, &hints.to_raw(library)?, hints.place()?, hints.flags())?;
    offers.into_iter().map(Info::from_raw).collect()
}
