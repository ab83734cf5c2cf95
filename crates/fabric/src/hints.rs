//! What to ask the providers for.

use std::ffi::CString;
use std::fmt;

use farreach_fabric_sys as sys;

use crate::domain::{MODES_SERVED, MR_MODES_SERVED};
use crate::raw::{RawInfo, Wanted};
use crate::{Capabilities, EndpointType, Error, Library, Mode, MrMode, Order, Threading, TrafficClass};

/// What to ask for in [`Info::query`](crate::Info::query).
///
/// A new one asks for everything that there is: whatever a provider demands of its user ([`Mode`],
/// [`MrMode`]) is accepted, and the answer says what it demands. Ask for less by naming what you need.
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
    /// Everything that there is.
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

    /// What the endpoints of this crate can serve: reliable datagrams with messages and one-sided access, callable from any thread,
    /// demanding nothing of its user that is not done here.
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

    /// Only this provider, such as `tcp`, `shm`, `efa` or `verbs;ofi_rxm`.
    #[doc(alias = "prov_name")]
    pub fn provider(mut self, name: impl Into<String>) -> Self {
        self.provider = Some(name.into());
        self
    }

    /// Only the fabric of this name.
    pub fn fabric(mut self, name: impl Into<String>) -> Self {
        self.fabric = Some(name.into());
        self
    }

    /// Only the domain of this name: a device, or a network interface.
    pub fn domain(mut self, name: impl Into<String>) -> Self {
        self.domain = Some(name.into());
        self
    }

    /// Only endpoints of this type.
    #[doc(alias = "ep_type")]
    pub fn endpoint_type(mut self, endpoint_type: EndpointType) -> Self {
        self.endpoint_type = endpoint_type;
        self
    }

    /// Only what has all of these.
    #[doc(alias = "caps")]
    pub fn capabilities(mut self, capabilities: Capabilities) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// What the caller is ready to do for the provider. A provider that demands more is left out.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// What the caller is ready to do for memory regions. A provider that demands more is left out.
    pub fn mr_mode(mut self, mr_mode: MrMode) -> Self {
        self.mr_mode = mr_mode;
        self
    }

    /// Only what keeps this order between operations.
    #[doc(alias = "msg_order")]
    pub fn message_order(mut self, order: Order) -> Self {
        self.message_order = order;
        self
    }

    /// Only what may be called from several threads at once in this way.
    pub fn threading(mut self, threading: Threading) -> Self {
        self.threading = threading;
        self
    }

    /// A wish: a provider that knows no classes ignores it, and [`Info::traffic_class`](crate::Info::traffic_class) tells.
    #[doc(alias = "tclass")]
    pub fn traffic_class(mut self, class: TrafficClass) -> Self {
        self.traffic_class = class;
        self
    }

    /// The host to reach, by name or address; with [`source`](Self::source), the local address.
    pub fn node(mut self, node: impl Into<String>) -> Self {
        self.node = Some(node.into());
        self
    }

    /// The port or service to reach; with [`source`](Self::source), the local one.
    pub fn service(mut self, service: impl Into<String>) -> Self {
        self.service = Some(service.into());
        self
    }

    /// Node and service name the local side.
    #[doc(alias = "FI_SOURCE")]
    pub fn source(mut self) -> Self {
        self.source = true;
        self
    }

    /// The node and service as C takes them.
    pub(crate) fn place(&self) -> Result<(Option<CString>, Option<CString>), Error> {
        Ok((text("node", self.node.as_deref())?, text("service", self.service.as_deref())?))
    }

    /// The flags of `fi_getinfo`. The library refuses FI_SOURCE without a node or service.
    pub(crate) fn flags(&self) -> u64 {
        if self.source && (self.node.is_some() || self.service.is_some()) { sys::FI_SOURCE } else { 0 }
    }

    /// The structure that C takes.
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

/// In words, for an error message.
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
        let error = Hints::new().node("a\0b").place().expect_err("C cannot take it");
        assert_eq!(error, Error::InvalidName { what: "node" });
    }
}
