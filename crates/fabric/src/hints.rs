//! Conditions of a query.

use std::ffi::CString;
use std::fmt;

use farreach_fabric_sys as sys;

use crate::raw::{RawInfo, Wanted};
use crate::{Capabilities, EndpointType, Error, Library, Mode, MrMode, Order, Threading, TrafficClass};

/// The modes that an offer may require of its user, because this crate supports them.
pub(crate) const MODES_SERVED: Mode = Mode::CONTEXT.union(Mode::CONTEXT2);

/// The modes that an offer may require for memory regions, because this crate supports them.
pub(crate) const MR_MODES_SERVED: MrMode =
    MrMode::LOCAL.union(MrMode::VIRT_ADDR).union(MrMode::ALLOCATED).union(MrMode::PROV_KEY);

/// The conditions of [`Info::query`](crate::Info::query).
///
/// A new one matches every offer: everything that a provider requires of its user ([`Mode`],
/// [`MrMode`]) is accepted, and the offer states its requirements. Further conditions narrow the
/// query.
///
/// ```
/// use farreach_fabric::{Capabilities, EndpointType, Hints};
///
/// let hints = Hints::new()
///     .provider("tcp")
///     .endpoint_type(EndpointType::ReliableDatagram)
///     .capabilities(Capabilities::MSG | Capabilities::RMA);
/// assert_eq!(hints.to_string(), "provider tcp, rdm endpoints, MSG | RMA");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Hints {
    provider: Option<String>,
    fabric: Option<String>,
    domain: Option<String>,
    endpoint_type: EndpointType,
    capabilities: Capabilities,
    mode: Mode,
    mr_mode: MrMode,
    message_order: Order,
    threading: Threading,
    traffic_class: TrafficClass,
    node: Option<String>,
    service: Option<String>,
    source: bool,
}

impl Hints {
    /// Matches every offer.
    pub fn new() -> Self {
        Self {
            provider: None,
            fabric: None,
            domain: None,
            endpoint_type: EndpointType::Unspecified,
            capabilities: Capabilities::empty(),
            mode: Mode::all_known(),
            mr_mode: MrMode::all_known(),
            message_order: Order::empty(),
            threading: Threading::Unspecified,
            traffic_class: TrafficClass::Unspecified,
            node: None,
            service: None,
            source: false,
        }
    }

    /// Matches the offers that endpoints of this crate support: reliable datagrams with messages
    /// and one-sided access, callable from any thread, and without requirements that this crate
    /// does not meet.
    ///
    /// ```
    /// use farreach_fabric::Hints;
    ///
    /// assert_eq!(Hints::rdm().provider("shm").to_string(), "provider shm, rdm endpoints, MSG | RMA, the modes given");
    /// ```
    #[doc(alias = "FI_EP_RDM")]
    pub fn rdm() -> Self {
        Self {
            endpoint_type: EndpointType::ReliableDatagram,
            capabilities: Capabilities::MSG | Capabilities::RMA,
            mode: MODES_SERVED,
            mr_mode: MR_MODES_SERVED,
            threading: Threading::Safe,
            ..Self::new()
        }
    }

    /// Matches only this provider, such as `tcp`, `shm`, `efa` or `verbs;ofi_rxm`.
    #[doc(alias = "prov_name")]
    pub fn provider(mut self, name: impl Into<String>) -> Self {
        self.provider = Some(name.into());
        self
    }

    /// Matches only the fabric of this name.
    pub fn fabric(mut self, name: impl Into<String>) -> Self {
        self.fabric = Some(name.into());
        self
    }

    /// Matches only the domain of this name: a device, or a network interface.
    pub fn domain(mut self, name: impl Into<String>) -> Self {
        self.domain = Some(name.into());
        self
    }

    /// Matches only endpoints of this type.
    #[doc(alias = "ep_type")]
    pub fn endpoint_type(mut self, endpoint_type: EndpointType) -> Self {
        self.endpoint_type = endpoint_type;
        self
    }

    /// Matches only offers that have all of these capabilities.
    #[doc(alias = "caps")]
    pub fn capabilities(mut self, capabilities: Capabilities) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// Sets the modes that the caller supports. Providers that require others are left out.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the registration modes that the caller supports. Providers that require others are left
    /// out.
    pub fn mr_mode(mut self, mr_mode: MrMode) -> Self {
        self.mr_mode = mr_mode;
        self
    }

    /// Matches only offers that keep this order between operations.
    #[doc(alias = "msg_order")]
    pub fn message_order(mut self, order: Order) -> Self {
        self.message_order = order;
        self
    }

    /// Matches only offers that support this threading model.
    pub fn threading(mut self, threading: Threading) -> Self {
        self.threading = threading;
        self
    }

    /// Requests a traffic class. A provider without classes ignores it;
    /// [`Info::traffic_class`](crate::Info::traffic_class) returns the result.
    #[doc(alias = "tclass")]
    pub fn traffic_class(mut self, class: TrafficClass) -> Self {
        self.traffic_class = class;
        self
    }

    /// Sets the host to reach, by name or address; with [`source`](Self::source), the local
    /// address.
    pub fn node(mut self, node: impl Into<String>) -> Self {
        self.node = Some(node.into());
        self
    }

    /// Sets the port or service to reach; with [`source`](Self::source), the local one.
    pub fn service(mut self, service: impl Into<String>) -> Self {
        self.service = Some(service.into());
        self
    }

    /// Makes node and service name the local side.
    #[doc(alias = "FI_SOURCE")]
    pub fn source(mut self) -> Self {
        self.source = true;
        self
    }

    /// Returns the node and service as C strings.
    pub(crate) fn place(&self) -> Result<(Option<CString>, Option<CString>), Error> {
        Ok((text("node", self.node.as_deref())?, text("service", self.service.as_deref())?))
    }

    /// Returns the flags of `fi_getinfo`. The library refuses FI_SOURCE without a node or service.
    pub(crate) fn flags(&self) -> u64 {
        if self.source && (self.node.is_some() || self.service.is_some()) { sys::FI_SOURCE } else { 0 }
    }

    /// Returns the structure for C.
    pub(crate) fn to_raw(&self, library: &Library) -> Result<RawInfo, Error> {
        let wanted = Wanted {
            capabilities: self.capabilities.bits(),
            mode: self.mode.bits(),
            endpoint_type: self.endpoint_type.to_c(),
            mr_mode: self.mr_mode.bits() as _,
            threading: self.threading.to_c(),
            traffic_class: self.traffic_class.to_c(),
            message_order: self.message_order.bits(),
            provider: text("provider", self.provider.as_deref())?,
            fabric: text("fabric", self.fabric.as_deref())?,
            domain: text("domain", self.domain.as_deref())?,
        };
        RawInfo::hints(library, &wanted)
    }
}

impl Default for Hints {
    fn default() -> Self {
        Self::new()
    }
}

/// Describes the query, for an error message.
impl fmt::Display for Hints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        for (what, name) in [("provider", &self.provider), ("fabric", &self.fabric), ("domain", &self.domain)]
        {
            words.extend(name.as_ref().map(|name| format!("{what} {name}")));
        }
        if self.endpoint_type != EndpointType::Unspecified {
            words.push(format!("{} endpoints", self.endpoint_type));
        }
        if !self.capabilities.is_empty() {
            words.push(bitflags_text(&self.capabilities));
        }
        if !self.message_order.is_empty() {
            words.push(format!("order {}", bitflags_text(&self.message_order)));
        }
        if self.traffic_class != TrafficClass::Unspecified {
            words.push(format!("traffic class {}", self.traffic_class));
        }
        if self.mode != Mode::all_known() || self.mr_mode != MrMode::all_known() {
            words.push("the modes given".to_owned());
        }
        let side = if self.source { "from" } else { "to" };
        match (&self.node, &self.service) {
            (Some(node), Some(service)) => words.push(format!("{side} {node} port {service}")),
            (Some(node), None) => words.push(format!("{side} {node}")),
            (None, Some(service)) => words.push(format!("{side} port {service}")),
            (None, None) => {}
        }
        f.pad(&if words.is_empty() { "anything".to_owned() } else { words.join(", ") })
    }
}

fn bitflags_text<F: bitflags::Flags>(flags: &F) -> String {
    flags.iter_names().map(|(name, _)| name).collect::<Vec<_>>().join(" | ")
}

fn text(what: &'static str, text: Option<&str>) -> Result<Option<CString>, Error> {
    text.map(|text| CString::new(text).map_err(|_| Error::InvalidName { what })).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_read_as_words() {
        assert_eq!(Hints::new().to_string(), "anything");
        let hints = Hints::new().domain("eth0").node("10.0.0.1").service("18520");
        assert_eq!(hints.to_string(), "domain eth0, to 10.0.0.1 port 18520");
        assert_eq!(hints.source().to_string(), "domain eth0, from 10.0.0.1 port 18520");
        assert_eq!(Hints::new().message_order(Order::WAW).to_string(), "order WAW");
        let urgent = Hints::new().traffic_class(TrafficClass::LowLatency);
        assert_eq!(urgent.to_string(), "traffic class low_latency");
        assert_eq!(Hints::new().mode(Mode::empty()).to_string(), "the modes given");
    }

    #[test]
    fn source_needs_a_place() {
        assert_eq!(Hints::new().source().flags(), 0);
        assert_eq!(Hints::new().source().service("1").flags(), sys::FI_SOURCE);
        assert_eq!(Hints::new().service("1").flags(), 0);
    }

    #[test]
    fn a_nul_in_a_name_is_an_error() {
        let error = Hints::new().node("a\0b").place().expect_err("a name with a NUL byte is refused");
        assert_eq!(error, Error::InvalidName { what: "node" });
    }
}
