//! The record of a history, and of violations.

use std::collections::VecDeque;
use std::fmt;

use farreach_rail::LinkKey;

use super::CardId;

/// A misuse of a card by its user.
///
/// ```
/// use farreach_sim::{SimCard, SimNetwork, SimRail, SimSettings};
/// use farreach_rail::{Rail, WorkRequest};
/// use farreach_memory::Buffers;
///
/// let network = SimNetwork::new(SimSettings::new(7));
/// let mut provider = SimRail::new(&network, 0, SimCard::rc());
/// let (link, _) = provider.open_link(farreach_rail::PeerKey(0))?;
/// provider.post(link, 0, WorkRequest::Send, Buffers::None).unwrap_err();
/// let violation = &network.violations()[0];
/// assert_eq!(
///     violation.to_string(),
///     "seed 7, at 0 ns, card 0: a request over link 0, which is not connected"
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The seed of the network, which replays the history.
    pub seed: u64,
    /// The time at which it was detected.
    pub at_ns: u64,
    /// The card of the user.
    pub card: CardId,
    /// The link of the work request, if it was refused at the peer's card.
    pub link: Option<LinkKey>,
    /// The rule that was violated.
    pub rule: Rule,
    /// A description.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, at_ns, card, what, .. } = self;
        write!(f, "seed {seed}, at {at_ns} ns, card {card}: {what}")
    }
}

/// Rules for users of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// A link has no more work requests in flight than its window.
    Window,
    /// A queue has room for every completion.
    Overrun,
    /// Work requests use links that are connected and not closed.
    NoPeer,
    /// Buffers are registered before they are posted, and writable if the card is to write to them.
    Buffers,
    /// Work requests name keys of the peer's card, ranges within the exposed memory, and operations
    /// that the key allows.
    RemoteSegment,
    /// No key is made while the pages of its memory are exchanged.
    OldPages,
}

/// The history of a network.
pub(super) struct Record {
    seed: u64,
    violations: Vec<Violation>,
    digest: u64,
    notes: VecDeque<Note>,
    notes_max: usize,
    /// How often each of [`RARE`] has happened.
    rare: [u64; RARE.len()],
}

/// Events that are counted, so that a test of many histories can check what they contained.
const RARE: [&str; 8] = ["kill link", "cut", "fill", "reset", "lost", "leak", "poll fails", "refused"];

#[derive(Clone, Copy)]
struct Note {
    at_ns: u64,
    what: &'static str,
    who: u64,
    detail: u64,
}

impl Record {
    pub(super) fn new(seed: u64, notes_max: usize) -> Self {
        Self {
            seed,
            violations: Vec::new(),
            digest: seed,
            notes: VecDeque::new(),
            notes_max,
            rare: [0; RARE.len()],
        }
    }

    /// Records an event. Its values must not differ between runs, as addresses would.
    pub(super) fn note(&mut self, at_ns: u64, what: &'static str, who: u64, detail: u64) {
        let name = what.bytes().fold(0_u64, |name, byte| name.rotate_left(7) ^ u64::from(byte));
        for word in [at_ns, name, who, detail] {
            // The multiplier is the golden ratio in 64 bits. It is odd, so no information is lost.
            self.digest = (self.digest.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        if let Some(place) = RARE.iter().position(|rare| *rare == what) {
            self.rare[place] += 1;
        }
        if self.notes_max > 0 {
            if self.notes.len() == self.notes_max {
                self.notes.pop_front();
            }
            self.notes.push_back(Note { at_ns, what, who, detail });
        }
    }

    pub(super) fn violate(
        &mut self,
        at_ns: u64,
        card: usize,
        link: Option<LinkKey>,
        rule: Rule,
        what: String,
    ) {
        self.note(at_ns, "violation", card as u64, rule as u64);
        let (seed, card) = (self.seed, CardId(card as u32));
        self.violations.push(Violation { seed, at_ns, card, link, rule, what });
    }

    pub(super) fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Returns how often each rare event has happened.
    pub(super) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        RARE.into_iter().zip(self.rare)
    }

    pub(super) fn digest(&self) -> u64 {
        self.digest
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let text =
            |Note { at_ns, what, who, detail }: &Note| format!("{at_ns:>12} {what:<10} {who:>6} {detail}");
        self.notes.iter().map(text).collect()
    }
}
