//! The offers of providers.

use std::fmt;

use farreach_fabric_sys as sys;

use crate::raw::{Parts, RawInfo};
use crate::{
    Address, AddressFormat, Capabilities, EndpointType, Error, Hints, Library, Mode, MrMode, Nic, Order,
    Progress, Protocol, ResourceManagement, Threading, TrafficClass, Version,
};

/// One offer of one provider: a domain, a type of endpoint, and their properties.
///
/// A provider makes several offers: one for each domain (a card, an interface), endpoint type and
/// address. All properties are data; the rest of a program decides by these, and never by a
/// provider's name.
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
    /// Asks every provider for its offers: `fi_getinfo(3)`.
    ///
    /// The best offer comes first, in the order of the library. If there is none, the result is
    /// [`Error::NoProvider`].
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

    /// Returns a copy for an object that outlives this one.
    pub(crate) fn try_clone(&self) -> Result<Self, Error> {
        Self::from_raw(self.raw.duplicate(&Library::open()?)?)
    }

    /// Returns the structure for functions that open an object with it. They take a mutable
    /// pointer, but only read it.
    pub(crate) fn as_raw_mut(&self) -> *mut sys::fi_info {
        self.raw.as_ptr().cast_mut()
    }

    /// Returns the part that names the fabric, for `fi_fabric(3)`.
    pub(crate) fn fabric_attr(&self) -> *mut sys::fi_fabric_attr {
        self.parts().info.fabric_attr
    }

    /// Returns the type of address vector that it asks for.
    pub(crate) fn av_type(&self) -> sys::fi_av_type {
        self.parts().domain.av_type
    }

    /// Returns `true` if the same is offered with completions that prove delivery. An offer does
    /// not state this, so it is queried.
    pub(crate) fn offers_delivery(&self) -> bool {
        let ask = || {
            let library = Library::open()?;
            RawInfo::query(&library, &self.raw.with_delivery(&library)?, (None, None), 0)
        };
        ask().is_ok_and(|offers: Vec<RawInfo>| !offers.is_empty())
    }

    fn parts(&self) -> Parts<'_> {
        self.raw.parts().expect("the parts were checked at creation and never change")
    }

    /// Returns the provider's name; with a layer over it, both: `tcp;ofi_rxm`.
    #[doc(alias = "prov_name")]
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// Returns the provider's own version.
    #[doc(alias = "prov_version")]
    pub fn provider_version(&self) -> Version {
        Version::from_c(self.parts().fabric.prov_version)
    }

    /// Returns the fabric: the network that it reaches.
    pub fn fabric(&self) -> &str {
        &self.fabric
    }

    /// Returns the domain: a card, or a network interface.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Returns the type of endpoint.
    #[doc(alias = "ep_attr")]
    pub fn endpoint_type(&self) -> EndpointType {
        EndpointType::from_c(self.parts().endpoint.type_)
    }

    /// Returns the protocol between endpoints.
    pub fn protocol(&self) -> Protocol {
        Protocol::from_c(self.parts().endpoint.protocol)
    }

    /// Returns the version of the protocol.
    pub fn protocol_version(&self) -> u32 {
        self.parts().endpoint.protocol_version
    }

    /// Returns its capabilities.
    #[doc(alias = "caps")]
    pub fn capabilities(&self) -> Capabilities {
        Capabilities::from_bits_retain(self.parts().info.caps)
    }

    /// Returns the modes that it requires of its user.
    pub fn mode(&self) -> Mode {
        Mode::from_bits_retain(self.parts().info.mode)
    }

    /// Returns the modes that it requires for memory regions.
    pub fn mr_mode(&self) -> MrMode {
        MrMode::from_bits_retain(self.parts().domain.mr_mode as u32)
    }

    /// Returns the format of its addresses.
    #[doc(alias = "addr_format")]
    pub fn address_format(&self) -> AddressFormat {
        AddressFormat::from_c(self.parts().info.addr_format)
    }

    /// Returns the local address, if it has one already.
    #[doc(alias = "src_addr")]
    pub fn source(&self) -> Option<Address> {
        self.raw.source().map(|bytes| Address::new(self.address_format(), bytes))
    }

    /// Returns the address of the query, if there was one.
    #[doc(alias = "dest_addr")]
    pub fn destination(&self) -> Option<Address> {
        self.raw.destination().map(|bytes| Address::new(self.address_format(), bytes))
    }

    /// Returns the order in which operations leave.
    #[doc(alias = "msg_order")]
    pub fn transmit_order(&self) -> Order {
        Order::from_bits_retain(self.parts().transmit.msg_order)
    }

    /// Returns the order in which operations of a peer are processed.
    #[doc(alias = "msg_order")]
    pub fn receive_order(&self) -> Order {
        Order::from_bits_retain(self.parts().receive.msg_order)
    }

    /// Returns the order in which operations complete.
    #[doc(alias = "comp_order")]
    pub fn completion_order(&self) -> Order {
        Order::from_bits_retain(self.parts().transmit.comp_order)
    }

    /// Returns `true` if writes are ordered after writes, at the sender and at the receiver.
    ///
    /// This is the order of the operations. The order of their bytes holds up to
    /// [`ordered_write_size`](Self::ordered_write_size).
    pub fn writes_ordered(&self) -> bool {
        self.transmit_order().orders_writes() && self.receive_order().orders_writes()
    }

    /// Returns the size up to which the bytes of a write land after those of earlier writes; 0 if
    /// never.
    #[doc(alias = "max_order_waw_size")]
    pub fn ordered_write_size(&self) -> usize {
        self.parts().endpoint.max_order_waw_size
    }

    /// Returns the size of the largest message or transfer, in bytes.
    #[doc(alias = "max_msg_size")]
    pub fn message_size_max(&self) -> usize {
        self.parts().endpoint.max_msg_size
    }

    /// Returns the size of the largest transfer whose buffer is free on return, in bytes.
    pub fn inject_size(&self) -> usize {
        self.parts().transmit.inject_size
    }

    /// Returns the number of operations that may be in flight.
    #[doc(alias = "tx_attr")]
    pub fn transmit_queue_size(&self) -> usize {
        self.parts().transmit.size
    }

    /// Returns the number of receives that may be posted.
    #[doc(alias = "rx_attr")]
    pub fn receive_queue_size(&self) -> usize {
        self.parts().receive.size
    }

    /// Returns the number of buffers that one operation may gather.
    #[doc(alias = "iov_limit")]
    pub fn transmit_buffers_max(&self) -> usize {
        self.parts().transmit.iov_limit
    }

    /// Returns the number of buffers that one receive may scatter to.
    #[doc(alias = "iov_limit")]
    pub fn receive_buffers_max(&self) -> usize {
        self.parts().receive.iov_limit
    }

    /// Returns the number of remote ranges that one operation may name.
    #[doc(alias = "rma_iov_limit")]
    pub fn remote_ranges_max(&self) -> usize {
        self.parts().transmit.rma_iov_limit
    }

    /// Returns the number of bytes of immediate data that an operation may carry.
    #[doc(alias = "cq_data_size")]
    pub fn immediate_size(&self) -> usize {
        self.parts().domain.cq_data_size
    }

    /// Returns the size of a region's key, in bytes.
    #[doc(alias = "mr_key_size")]
    pub fn key_size(&self) -> usize {
        self.parts().domain.mr_key_size
    }

    /// Returns the recommended maximum number of memory regions; 0 if it is not stated.
    #[doc(alias = "mr_cnt")]
    pub fn region_count(&self) -> usize {
        self.parts().domain.mr_cnt
    }

    /// Returns the recommended maximum number of completion queues.
    #[doc(alias = "cq_cnt")]
    pub fn completion_queue_count(&self) -> usize {
        self.parts().domain.cq_cnt
    }

    /// Returns the recommended maximum number of endpoints.
    #[doc(alias = "ep_cnt")]
    pub fn endpoint_count(&self) -> usize {
        self.parts().domain.ep_cnt
    }

    /// Returns the progress model of connections and addresses.
    pub fn control_progress(&self) -> Progress {
        Progress::from_c(self.parts().domain.control_progress)
    }

    /// Returns the progress model of transfers, as the provider reports it.
    pub fn data_progress(&self) -> Progress {
        Progress::from_c(self.parts().domain.data_progress)
    }

    /// Returns which calls may be made from several threads at once.
    pub fn threading(&self) -> Threading {
        Threading::from_c(self.parts().domain.threading)
    }

    /// Returns the traffic class.
    #[doc(alias = "tclass")]
    pub fn traffic_class(&self) -> TrafficClass {
        TrafficClass::from_c(self.parts().transmit.tclass)
    }

    /// Returns whether the provider prevents queues from overrunning.
    #[doc(alias = "resource_mgmt")]
    pub fn resource_management(&self) -> ResourceManagement {
        ResourceManagement::from_c(self.parts().domain.resource_mgmt)
    }

    /// Returns the card, if there is one and the provider reports it: `fi_nic(3)`.
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

/// Returns each name once, in the order of the offers.
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
