//! What can be chosen for a rail over verbs.

/// How a rail over verbs is set up. The default serves most.
///
/// ```
/// use farreach::rails::verbs::VerbsSettings;
///
/// let many_small_messages = VerbsSettings { receives: 4096, message_max: 512, ..VerbsSettings::default() };
/// assert_eq!(many_small_messages.window, 128);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerbsSettings {
    /// Requests that one link has in flight at most.
    pub window: u32,
    /// Room for what peers send, of all links together: so many messages and immediates may have come before they are polled for. A peer
    /// whose message finds no room tries again, after a while, for as long as it takes.
    pub receives: u32,
    /// The longest message.
    pub message_max: usize,
    /// Ranges of local memory in one request at most, where the card allows as many.
    pub pieces: u32,
    /// For how many links there is room in the first completion queue. More links get more queues, each for twice as many as the one
    /// before, as far as the card allows; each queue costs a look at every poll.
    pub links_at_first: u32,
    /// The place of the GID to use in the port's table; the best one where there is none.
    pub gid_index: Option<u32>,
    /// How the network shall treat the packets: DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// The lane through an InfiniBand subnet; on RoCE, the priority where there is a VLAN.
    pub service_level: u8,
    /// How long a card waits for an acknowledgement before it sends again: 4.096 µs × 2^this. What is sent seven times in vain fails the
    /// link, and some cards wait longer than they are told.
    pub ack_timeout: u8,
}

impl Default for VerbsSettings {
    fn default() -> Self {
        Self {
            window: 128,
            receives: 256,
            message_max: 4096,
            pieces: 16,
            links_at_first: 64,
            gid_index: None,
            traffic_class: 0,
            service_level: 0,
            // 268 ms, seven times: a dead peer is told of in 1.9 s.
            ack_timeout: 16,
        }
    }
}
