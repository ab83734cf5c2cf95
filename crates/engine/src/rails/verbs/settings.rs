//! Settings of a rail over verbs.

/// Settings of a rail over verbs. The defaults suit most programs.
///
/// ```
/// use farreach::rails::verbs::VerbsSettings;
///
/// let many_small_messages = VerbsSettings { receives: 4096, message_max: 512, ..VerbsSettings::default() };
/// assert_eq!(many_small_messages.window, 128);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerbsSettings {
    /// Work requests that one link may have in flight.
    pub window: u32,
    /// Receive buffers of all links together: the messages and immediates that may arrive between
    /// two polls. A peer whose message finds no buffer retries after a delay, without limit.
    pub receives: u32,
    /// The longest message in bytes.
    pub message_max: usize,
    /// Segments of local memory in one work request, limited by the card.
    pub pieces: u32,
    /// The number of links for which the first completion queue has room. More links get more
    /// queues, each for twice as many as the one before, as far as the card allows. Each queue is
    /// polled at every poll.
    pub links_at_first: u32,
    /// Whether keys are bound to links, by memory windows of type 2, so that no peer can use the key
    /// of another. Without effect on cards that have no such windows.
    pub bind_keys: bool,
    /// The index of the GID in the port's table; if `None`, the best one is chosen.
    pub gid_index: Option<u32>,
    /// The traffic class of packets: DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// The service level in an InfiniBand subnet; on RoCE with a VLAN, the priority.
    pub service_level: u8,
    /// How long a card waits for an acknowledgement before it sends again: 4.096 µs × 2^this. After
    /// seven unsuccessful attempts the link fails. Some cards wait longer than configured.
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
            bind_keys: false,
            gid_index: None,
            traffic_class: 0,
            service_level: 0,
            // 268 ms, seven times: a dead peer is noticed in 1.9 s.
            ack_timeout: 16,
        }
    }
}
