//! The things that users have: grants, counters, transfers, words.

use std::rc::Rc;
use std::sync::{Arc, Weak};

use farreach_memory::{Exposed, Shared, Slice};
use farreach_proto::counter::CounterId;
use farreach_proto::error::AtomicError;
use farreach_proto::ids::GrantId;
use farreach_proto::machine::{Direction, OpId};
use farreach_proto::rights::Rights;
use farreach_rail::{RevokeAnswer, Scope, TransferAnswer};

use super::content::{Content, Layout};
use crate::answers::{Answer, CounterView};

/// Memory that one end of a connection has granted to the other.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) connection: usize,
    /// The end that owns the memory.
    pub(super) end: usize,
    pub(super) host: usize,
    /// The id in its engine.
    pub(super) id: GrantId,
    /// The scope of the cards over which the peer reaches it.
    pub(super) scope: Scope,
    pub(super) rights: Rights,
    pub(super) len: usize,
    pub(super) layout: Layout,
    pub(super) pages: Vec<Page>,
    pub(super) words: Vec<Word>,
    pub(super) hold: Hold,
    /// The publication that it is of.
    pub(super) published: Option<usize>,
    /// Whether its user has revoked it at least once.
    pub(super) is_revoked: bool,
    /// Whether the peer has said that it has stopped, truly or not.
    pub(super) has_word: bool,
    /// The rest of its piece of memory, which stays with the user.
    pub(super) rest: Option<Slice>,
}

/// The state of granted memory.
#[derive(Debug)]
pub(super) enum Hold {
    Granted(Arc<Exposed>),
    /// Its user revokes it.
    Revoking {
        memory: Weak<Exposed>,
        answer: Answer<RevokeAnswer>,
        since: u64,
        deadline: u64,
    },
    /// The peer has opened it, and each peer has a part of it.
    Published(Weak<Exposed>),
    /// The peer has lost it, as its owner was told. It tries to write all the same, if its engine
    /// lets it.
    Lost,
    /// Its user has dropped it: the engine frees it.
    Dropped(Weak<Exposed>),
    /// It is the user's again, or gone with its host.
    Over,
}

impl Grant {
    /// Returns the memory, for reading only.
    pub(super) fn look(&self) -> Option<Arc<Exposed>> {
        match &self.hold {
            Hold::Granted(memory) => Some(Arc::clone(memory)),
            Hold::Revoking { memory, .. } | Hold::Published(memory) | Hold::Dropped(memory) => {
                memory.upgrade()
            }
            Hold::Lost | Hold::Over => None,
        }
    }

    pub(super) fn is_granted(&self) -> bool {
        matches!(self.hold, Hold::Granted(_))
    }

    /// Returns `true` if the peer uses it, as far as its engine lets it.
    pub(super) fn is_usable(&self) -> bool {
        matches!(self.hold, Hold::Granted(_) | Hold::Published(_) | Hold::Lost)
    }

    /// Returns how many bytes of a page are those of this content.
    pub(super) fn bytes_of(&self, memory: &Exposed, page: usize, content: Content) -> u64 {
        content.bytes_at(memory, self.layout.start(page), self.layout.page_len)
    }

    /// Returns `true` if a page holds this content.
    pub(super) fn holds(&self, memory: &Exposed, page: usize, content: Content) -> bool {
        content.is_at(memory, self.layout.start(page), self.layout.page_len)
    }
}

/// A page of granted memory.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Page {
    /// Its content, if it is certain.
    pub(super) content: Option<Content>,
    pub(super) readers: u16,
    pub(super) is_written: bool,
    /// A transfer to it failed: it may hold anything, at any time.
    pub(super) is_spoiled: bool,
}

/// A word of granted memory: even ones are used for fetch-and-add, odd ones for compare-and-swap.
#[derive(Debug, Default)]
pub(super) struct Word {
    /// The number of additions of one that took effect, and of those that may have.
    pub(super) added: u64,
    pub(super) unknown: u64,
    /// The values that they found.
    pub(super) found: Vec<u64>,
    /// The values that it may hold, if it is swapped; the first one is 0.
    pub(super) candidates: Vec<u64>,
    /// Swaps that may still take effect: expected and new value.
    pub(super) late: Vec<(u64, u64)>,
    pub(super) asked: u32,
}

/// An atomic in progress.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) host: usize,
    pub(super) connection: usize,
    pub(super) end: usize,
    pub(super) grant: usize,
    pub(super) word: usize,
    /// The expected and the new value; `None` for an addition.
    pub(super) swap: Option<(u64, u64)>,
    pub(super) answer: Answer<Result<u64, AtomicError>>,
}

/// A counter of one end of a connection, which the other raises.
#[derive(Debug)]
pub(super) struct Count {
    pub(super) connection: usize,
    /// The end that owns it.
    pub(super) end: usize,
    pub(super) host: usize,
    pub(super) id: CounterId,
    pub(super) view: Rc<CounterView>,
    /// The pages of all transfers that name it.
    pub(super) total: u64,
    /// The number of pages that were seen to have arrived.
    pub(super) present: u64,
    /// Pages that have not arrived: the grant, the page, its content.
    pub(super) missing: Vec<(usize, usize, Content)>,
    /// Its value when it was last checked.
    pub(super) reached: u64,
    /// Transfers that have not ended.
    pub(super) under_way: u32,
    /// Whether all transfers that have ended succeeded.
    pub(super) is_clean: bool,
    /// Memory was freed before its pages could be checked.
    pub(super) is_unobservable: bool,
    pub(super) is_closed: bool,
    /// The shared counter that it is of.
    pub(super) shared: Option<usize>,
}

impl Count {
    pub(super) fn new(
        (connection, end): (usize, usize),
        host: usize,
        id: CounterId,
        view: Rc<CounterView>,
    ) -> Self {
        Self {
            connection,
            end,
            host,
            id,
            view,
            total: 0,
            present: 0,
            missing: Vec::new(),
            reached: 0,
            under_way: 0,
            is_clean: true,
            is_unobservable: false,
            is_closed: false,
            shared: None,
        }
    }
}

/// A transfer in progress.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) number: u64,
    pub(super) begun_at: u64,
    pub(super) op: OpId,
    pub(super) host: usize,
    pub(super) connection: usize,
    pub(super) end: usize,
    pub(super) direction: Direction,
    pub(super) grant: usize,
    /// The page of the grant, and its content.
    pub(super) pages: Vec<(usize, Content)>,
    /// The layout on this side, for a read.
    pub(super) layout: Layout,
    pub(super) places: Vec<u32>,
    pub(super) counter: Option<usize>,
    pub(super) source: Option<usize>,
    pub(super) answer: Answer<TransferAnswer>,
    pub(super) is_given_up: bool,
    /// Whether it asks for something that it cannot have.
    pub(super) is_wrong: bool,
    pub(super) deadline: Option<u64>,
}

/// Memory that several transfers read from.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) host: usize,
    pub(super) shared: Option<Shared>,
    pub(super) tag: u64,
    pub(super) layout: Layout,
    pub(super) users: u32,
    /// A transfer ended without it: a card may still have a part.
    pub(super) is_held: bool,
}
