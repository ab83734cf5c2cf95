//! Properties of providers that no offer states.
//!
//! An offer states many properties as data, and the rest of the crate decides by these. The
//! remaining properties are listed here, by protocol, with their source. The protocol is data of
//! the offer, too; a provider's name is never used.

use crate::{Info, MrMode, Protocol};

/// Properties of one kind of provider. A provider that is not listed has the conservative value of
/// each.
///
/// ```
/// use farreach_fabric::{Profile, Protocol};
///
/// let shm = Profile::of_protocol(Protocol::Shm);
/// assert!(!shm.keys_enforced, "a wrong key does not prevent access");
/// assert!(Profile::of_protocol(Protocol::Efa).target_must_know_initiator);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Profile {
    /// Whether the target refuses a wrong or ended key. If it does not, a revoked region is as
    /// accessible as a live one, so its bytes come back only if the peers are trusted.
    pub keys_enforced: bool,
    /// Whether closing a region stops a write in flight. A card looks the key up for each packet; a
    /// library looks it up when a write begins, and continues.
    pub revoke_stops_writes: bool,
    /// Whether closing an endpoint also stops the actions of peers on its behalf: copying sent data
    /// out of its buffers, or copying the answer of a read into them. If it does not, buffers of
    /// unfinished operations are kept for good.
    pub close_stops_peers: bool,
    /// Whether a closed endpoint remains in the wait set of its completion queue. The queue's
    /// descriptor can then no longer be used: a check before sleeping would access freed memory.
    pub close_spoils_waits: bool,
    /// Whether endpoints of one process access each other's memory, which is unmapped when one is
    /// closed. An endpoint that is dropped or closed is then closed only when no other is open;
    /// until then it is no longer polled, and keeps its memory.
    pub siblings_look_in: bool,
    /// Whether closing an endpoint leaves unfinished incoming connections behind: they point to
    /// freed memory, which the provider accesses on its next progress. The endpoint's domain is
    /// [spent](crate::Domain::is_spent) then, and is no longer polled.
    pub close_leaves_connections: bool,
    /// Whether a write that requests delivery proves, when it succeeds, that earlier writes to the
    /// same peer have landed, too: those that were posted directly before it, while the completion
    /// queue was not read. When it is read, the provider may replace a lost connection by another
    /// one, and nothing follows for the writes that were posted before.
    pub delivery_covers_earlier: bool,
    /// Whether a peer must be in the target's address vector before it can reach the target's
    /// memory.
    pub target_must_know_initiator: bool,
    /// Whether a peer can be removed from an address vector. If not, its entry stays until the
    /// vector is closed.
    pub forgets_peers: bool,
    /// Whether two endpoints of one host reach each other reliably.
    pub same_host: SameHost,
    /// The implementation of a write with immediate data.
    pub write_with_data: WriteWithData,
    /// The source of this information.
    pub known_from: KnownFrom,
}

/// Whether two endpoints of one host reach each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SameHost {
    /// They do.
    Reachable,
    /// Some were seen to lose or slow down such traffic: test it before use.
    Uncertain,
}

/// The implementation of a write with immediate data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteWithData {
    /// One operation.
    Native,
    /// One operation, or the write and a message of the provider, depending on the card's
    /// generation.
    MaybeEmulated,
}

/// The source of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KnownFrom {
    /// Tests of this crate.
    Tests,
    /// Documents of the provider and reports of its users; it was never run here.
    Documents,
    /// None: the conservative values.
    Nothing,
}

impl Profile {
    /// Returns the profile of an offer.
    pub fn of(info: &Info) -> Self {
        let profile = Self::of_protocol(info.protocol());
        // The same layer serves cards and sockets. Keys that the provider chooses are those of a
        // card.
        let has_card_keys = info.protocol() == Protocol::Rxm && info.mr_mode().contains(MrMode::PROV_KEY);
        Self { revoke_stops_writes: profile.revoke_stops_writes || has_card_keys, ..profile }
    }

    /// Returns the profile of a protocol, as far as the protocol determines it.
    pub fn of_protocol(protocol: Protocol) -> Self {
        KNOWN.iter().find(|(known, _)| *known == protocol).map_or(UNKNOWN, |(_, profile)| *profile)
    }
}

const UNKNOWN: Profile = Profile {
    keys_enforced: false,
    revoke_stops_writes: false,
    close_stops_peers: false,
    close_spoils_waits: true,
    siblings_look_in: true,
    close_leaves_connections: true,
    delivery_covers_earlier: false,
    target_must_know_initiator: true,
    forgets_peers: true,
    same_host: SameHost::Uncertain,
    write_with_data: WriteWithData::MaybeEmulated,
    known_from: KnownFrom::Nothing,
};

/// Both sides communicate through a socket or a queue pair, and the target's library or card looks
/// the key up.
const THROUGH_TARGET: Profile = Profile {
    keys_enforced: true,
    revoke_stops_writes: false,
    close_stops_peers: true,
    close_spoils_waits: false,
    siblings_look_in: false,
    close_leaves_connections: false,
    delivery_covers_earlier: false,
    target_must_know_initiator: false,
    forgets_peers: true,
    same_host: SameHost::Reachable,
    write_with_data: WriteWithData::Native,
    known_from: KnownFrom::Tests,
};

/// The layer that builds datagrams on connections adds its own queue to the wait set of the user's
/// queue, and does not remove it when the endpoint is closed: 1.17 crashes in `fi_trywait` then,
/// and 2.x has the same code.
const LAYERED: Profile = Profile { close_spoils_waits: true, ..THROUGH_TARGET };

const KNOWN: &[(Protocol, Profile)] = &[
    (Protocol::Rxm, LAYERED),
    (Protocol::RxmTcp, LAYERED),
    // A connection that was accepted and has not sent its first message points to the endpoint's
    // listener, which is freed with the endpoint: libfabric's source shows this, in 1.17 and in
    // 2.x. A peer that connects by tcp and waits for the close controls what is called then.
    //
    // A connection is one tcp stream, and the target handles an operation when it has received all
    // bytes of the earlier ones. Posting uses the connection that exists, or returns "try again" and
    // makes a new one; only progress removes a lost one.
    (
        Protocol::Xnet,
        Profile { close_leaves_connections: true, delivery_covers_earlier: true, ..THROUGH_TARGET },
    ),
    (Protocol::SockTcp, THROUGH_TARGET),
    // The initiator copies to the target's address itself, by process_vm_writev, and the key is not
    // checked. If it does not, the target copies the answer of a read into the initiator's buffer
    // at an arbitrary time. A peer of the same process is mapped once for both, and closing it
    // removes the mapping: a process that polls for its sent operations, or removes the peer,
    // crashes.
    (
        Protocol::Shm,
        Profile {
            keys_enforced: false,
            close_stops_peers: false,
            siblings_look_in: true,
            forgets_peers: false,
            ..THROUGH_TARGET
        },
    ),
    // Keys are those of the card. The other values come from fi_efa(7) and from reports of its
    // users, as in docs/NOT_RUN.md.
    (
        Protocol::Efa,
        Profile {
            target_must_know_initiator: true,
            same_host: SameHost::Uncertain,
            write_with_data: WriteWithData::MaybeEmulated,
            known_from: KnownFrom::Documents,
            ..THROUGH_TARGET
        },
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_treated_with_care() {
        let profile = Profile::of_protocol(Protocol::Other(999));
        assert!(!profile.keys_enforced && !profile.close_stops_peers && profile.close_spoils_waits);
        assert!(!profile.delivery_covers_earlier);
        assert_eq!(profile.known_from, KnownFrom::Nothing);
    }

    #[test]
    fn no_protocol_is_listed_twice() {
        for (index, (protocol, _)) in KNOWN.iter().enumerate() {
            assert!(KNOWN[..index].iter().all(|(other, _)| other != protocol), "{protocol}");
        }
    }
}
