//! Reasons for a rejected connection.

use std::fmt;

/// The reason why the peer, or its kernel, rejected a connection.
///
/// `Display` shows the meaning; [`code`](Self::code) is the number on the wire.
///
/// ```
/// use farreach_verbs::cm::RejectReason;
///
/// assert_eq!(RejectReason::InvalidServiceId.to_string(), "nothing listens there");
/// assert_eq!(RejectReason::InvalidServiceId.code(), Some(8));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RejectReason {
    /// Nothing listens on that port in that port space: reason 8, and status 1 for datagrams.
    InvalidServiceId,
    /// The peer's program rejected the request, or ended before it answered: reason 28, and status
    /// 2 for datagrams.
    Consumer,
    /// The peer still has a connection of this queue pair: reason 10.
    StaleConnection,
    /// The peer has no queue pair left: reason 1.
    NoQueuePair,
    /// The peer lacks resources: reason 3.
    NoResources,
    /// The peer waited too long for an answer: reason 4.
    Timeout,
    /// The peer does not support the request: reason 5.
    Unsupported,
    /// The path MTU exceeds the peer's: reason 26.
    InvalidMtu,
    /// The peer has too few resources for incoming reads and atomics: reason 27.
    InsufficientResponderResources,
    /// The peer requires other connection enhancements (ECE): reason 35.
    VendorOption,
    /// iWARP: the peer refused or reset the underlying TCP connection.
    Refused,
    /// Another reason, by its number in the InfiniBand specification (volume 1, 12.6.7.2).
    Other(i32),
}

impl RejectReason {
    /// Converts the status of a rejected event: positive values are reasons of InfiniBand and RoCE,
    /// negative ones are errnos of iWARP.
    pub(super) fn from_status(status: i32) -> Self {
        match status {
            1 => Self::NoQueuePair,
            3 => Self::NoResources,
            4 => Self::Timeout,
            5 => Self::Unsupported,
            8 => Self::InvalidServiceId,
            10 => Self::StaleConnection,
            26 => Self::InvalidMtu,
            27 => Self::InsufficientResponderResources,
            28 => Self::Consumer,
            35 => Self::VendorOption,
            _ if status == -libc::ECONNREFUSED || status == -libc::ECONNRESET => Self::Refused,
            other => Self::Other(other),
        }
    }

    /// Converts the status of a service id resolution, which answers datagram connections.
    pub(super) fn from_sidr_status(status: i32) -> Self {
        match status {
            1 => Self::InvalidServiceId,
            2 => Self::Consumer,
            3 => Self::NoQueuePair,
            other => Self::Other(other),
        }
    }

    /// Returns the number in the reject message of InfiniBand and RoCE. `None` if there was no such
    /// message.
    pub fn code(self) -> Option<i32> {
        match self {
            Self::NoQueuePair => Some(1),
            Self::NoResources => Some(3),
            Self::Timeout => Some(4),
            Self::Unsupported => Some(5),
            Self::InvalidServiceId => Some(8),
            Self::StaleConnection => Some(10),
            Self::InvalidMtu => Some(26),
            Self::InsufficientResponderResources => Some(27),
            Self::Consumer => Some(28),
            Self::VendorOption => Some(35),
            Self::Refused => None,
            Self::Other(code) => Some(code),
        }
    }

    /// Returns an instruction that resolves the rejection.
    pub(super) fn fix(self) -> &'static str {
        match self {
            Self::InvalidServiceId | Self::Refused => {
                "start the listener, and compare address, port and port space with the listener's"
            }
            Self::Consumer => {
                "ask the listening program: its reason may be in the private data, or in its log"
            }
            Self::StaleConnection => "wait some seconds, or use a new queue pair",
            Self::NoQueuePair | Self::NoResources => {
                "free resources on the other side, or make its listener take requests faster"
            }
            Self::Timeout => "answer the connect response at once, and check for lost packets on the path",
            Self::InvalidMtu => "give both ports the same MTU",
            Self::InsufficientResponderResources => "request a smaller initiator_depth",
            Self::Unsupported | Self::VendorOption | Self::Other(_) => {
                "compare device, driver and connection parameters of the two sides"
            }
        }
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::InvalidServiceId => "nothing listens there",
            Self::Consumer => "the listening program rejected the request",
            Self::StaleConnection => "the other side still holds an earlier connection of this queue pair",
            Self::NoQueuePair => "the other side has no queue pair left",
            Self::NoResources => "the other side lacks resources",
            Self::Timeout => "the other side waited too long for an answer",
            Self::Unsupported => "the other side does not support the request",
            Self::InvalidMtu => "the path MTU is too large for the other side",
            Self::InsufficientResponderResources => {
                "the other side has too few resources for reads and atomics"
            }
            Self::VendorOption => "the other side requires other connection enhancements (ECE)",
            Self::Refused => "the other side refused or reset the TCP connection",
            Self::Other(code) => return f.pad(&format!("reject reason {code} of InfiniBand")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reasons_number_is_kept() {
        for status in 1..=40 {
            assert_eq!(RejectReason::from_status(status).code(), Some(status));
        }
        assert_eq!(RejectReason::from_status(33), RejectReason::Other(33));
        assert_eq!(RejectReason::Other(33).to_string(), "reject reason 33 of InfiniBand");
    }

    #[test]
    fn each_transport_says_nobody_is_there_in_its_own_way() {
        assert_eq!(RejectReason::from_status(8), RejectReason::InvalidServiceId);
        assert_eq!(RejectReason::from_sidr_status(1), RejectReason::InvalidServiceId);
        assert_eq!(RejectReason::from_status(-libc::ECONNREFUSED), RejectReason::Refused);
    }
}
