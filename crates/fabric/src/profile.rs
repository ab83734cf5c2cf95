//! What is known of a provider and not told by its offer.
//!
//! An offer says a great deal as data, and the rest of the crate decides from that. What is left is written down here, for each
//! protocol by itself, with where it is known from. The protocol is data of the offer too; a provider's name is never asked.

use crate::{Info, MrMode, Protocol};

/// Properties of one kind of provider. One that is not listed has the careful value of each.
///
/// ```
/// use farreach_fabric::{Profile, Protocol};
///
/// let shm = Profile::of_protocol(Protocol::Shm);
/// assert!(!shm.keys_enforced, "a wrong key does not keep anybody out");
/// assert!(Profile::of_protocol(Protocol::Efa).target_must_know_initiator);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Profile {
    /// Whether the target's side refuses a wrong or dead key. Where it does not, a revoked region cannot be told from a live one, so
    /// its bytes come back only by the word of the peers.
    pub keys_enforced: bool,
    /// Whether a region that is closed stops a write that is under way. A card looks the key up for each packet; a library looks it up
    /// when a write begins, and goes on.
    pub revoke_stops_writes: bool,
    /// Whether closing an endpoint also ends what a peer does on its behalf: copying what was sent out of its buffers, or the answer of a
    /// read into them. Where it does not, buffers of what is unfinished are kept for good.
    pub close_stops_peers: bool,
    /// Whether closing an endpoint leaves it in what its completion queue sleeps on. The queue's descriptor is then of no use any more: to
    /// ask whether it may be slept on would look into what was freed.
    pub close_spoils_waits: bool,
    /// Whether endpoints of one process look into each other's memory, which goes when one is closed. One that is dropped or closed is then closed only when no
    /// other is open; until then it is polled no more, and takes its memory.
    pub siblings_look_in: bool,
    /// Whether closing an endpoint leaves connections behind that were made to it and not finished: they point to what was freed, and the provider looks there
    /// when it is moved next. The endpoint's domain is [spent](crate::Domain::is_spent) then, and is moved no more.
    pub close_leaves_connections: bool,
    /// Whether a peer must be in the target's address vector before it can reach the target's memory.
    pub target_must_know_initiator: bool,
    /// Whether a peer can be removed from an address vector. Where it cannot, its entry stays until the vector is closed.
    pub forgets_peers: bool,
    /// Whether two endpoints of one host can be relied upon to reach each other.
    pub same_host: SameHost,
    /// How a write with immediate data is made.
    pub write_with_data: WriteWithData,
    /// Where this is known from.
    pub known_from: KnownFrom,
}

/// Whether two endpoints of one host reach each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SameHost {
    /// They do.
    Reachable,
    /// Some were seen to lose or slow down such traffic: try before relying on it.
    Uncertain,
}

/// How a write with immediate data is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteWithData {
    /// As one operation.
    Native,
    /// As one operation, or by a message of the provider's own after the write, depending on the card's generation.
    MaybeEmulated,
}

/// Where a profile is known from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KnownFrom {
    /// Tests of this crate show it.
    Tests,
    /// The provider's documents and those who run it; it was never run here.
    Documents,
    /// Nothing: the careful values.
    Nothing,
}

impl Profile {
    /// The profile of an offer.
    pub fn of(info: &Info) -> Self {
        let profile = Self::of_protocol(info.protocol());
        // The same layer serves cards and sockets. A key that the provider chooses is the card's.
        let has_card_keys = info.protocol() == Protocol::Rxm && info.mr_mode().contains(MrMode::PROV_KEY);
        Self { revoke_stops_writes: profile.revoke_stops_writes || has_card_keys, ..profile }
    }

    /// The profile of a protocol, as far as that tells.
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
    target_must_know_initiator: true,
    forgets_peers: true,
    same_host: SameHost::Uncertain,
    write_with_data: WriteWithData::MaybeEmulated,
    known_from: KnownFrom::Nothing,
};

/// Both sides talk through a socket or a queue pair, and the target's library or card looks the key up.
const THROUGH_TARGET: Profile = Profile {
    keys_enforced: true,
    revoke_stops_writes: false,
    close_stops_peers: true,
    close_spoils_waits: false,
    siblings_look_in: false,
    close_leaves_connections: false,
    target_must_know_initiator: false,
    forgets_peers: true,
    same_host: SameHost::Reachable,
    write_with_data: WriteWithData::Native,
    known_from: KnownFrom::Tests,
};

/// The layer that makes datagrams of connections adds its own queue to what the user's sleeps on, and does not take it out when the endpoint is
/// closed: 1.17 dies in `fi_trywait` then, and 2.x has the same lines.
const LAYERED: Profile = Profile { close_spoils_waits: true, ..THROUGH_TARGET };

const KNOWN: &[(Protocol, Profile)] = &[
    (Protocol::Rxm, LAYERED),
    (Protocol::RxmTcp, LAYERED),
    // What has connected and not said yet what it wants points to the endpoint's listener, which is freed with it: libfabric's own source says so, in 1.17 and in
    // 2.x. Whoever connects by tcp and waits for the close decides what is called then.
    (Protocol::Xnet, Profile { close_leaves_connections: true, ..THROUGH_TARGET }),
    (Protocol::SockTcp, THROUGH_TARGET),
    // The initiator copies to the target's address itself, by process_vm_writev, and nobody looks at the key. Where it does not, the
    // target copies the answer of a read into the initiator's buffer, whenever it gets to it. A peer of the same process is mapped once for
    // both, and closing it takes that away: who polls for what it has sent, or removes it, dies.
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
    // Keys are the card's. The rest is what those say who run it: fi_efa(7) and ENGINES-style notes in docs/NOT_RUN.md.
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
        assert_eq!(profile.known_from, KnownFrom::Nothing);
    }

    #[test]
    fn no_protocol_is_listed_twice() {
        for (index, (protocol, _)) in KNOWN.iter().enumerate() {
            assert!(KNOWN[..index].iter().all(|(other, _)| other != protocol), "{protocol}");
        }
    }
}
