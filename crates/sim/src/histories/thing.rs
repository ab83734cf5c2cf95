//! What users have: grants, counters, transfers, words.

use std::rc::Rc;
use std::sync::{Arc, Weak};

use farreach_memory::{Exposed, Shared, Slice};
use farreach_proto::counter::CounterId;
use farreach_proto::error::AtomicError;
use farreach_proto::machine::{Direction, OpId};
use farreach_proto::rights::Rights;
use farreach_rail::{RevokeAnswer, TransferAnswer};

use super::content::{Content, Layout};
use crate::answers::{Answer, CounterView};

/// Memory that one end of a connection has granted to the other.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) connection: usize,
    /// Whose memory it is.
    pub(super) end: usize,
    pub(super) host: usize,
    /// Its engine's name for it.
    pub(super) id: u64,
    pub(super) rights: Rights,
    pub(super) len: usize,
    pub(super) layout: Layout,
    pub(super) pages: Vec<Page>,
    pub(super) words: Vec<Word>,
    pub(super) hold: Hold,
    /// Its user has wanted it back at least once.
    pub(super) is_revoked: bool,
    /// What is behind it in its piece of memory, and stays with the user.
    pub(super) rest: Option<Slice>,
}

/// Where granted memory is.
#[derive(Debug)]
pub(super) enum Hold {
    Granted(Arc<Exposed>),
    /// Its user wants it back.
    Revoking {
        memory: Weak<Exposed>,
        answer: Answer<RevokeAnswer>,
        deadline: u64,
    },
    /// Its user has let go of it: the engine frees it.
    Dropped(Weak<Exposed>),
    /// It is the user's again, or gone with its host.
    Over,
}

impl Grant {
    /// The memory, for looking at it only.
    pub(super) fn look(&self) -> Option<Arc<Exposed>> {
        match &self.hold {
            Hold::Granted(memory) => Some(Arc::clone(memory)),
            Hold::Revoking { memory, .. } | Hold::Dropped(memory) => memory.upgrade(),
            Hold::Over => None,
        }
    }

    pub(super) fn is_granted(&self) -> bool {
        matches!(self.hold, Hold::Granted(_))
    }

    /// Whether a page holds this.
    pub(super) fn holds(&self, memory: &Exposed, page: usize, content: Content) -> bool {
        content.is_at(memory, self.layout.start(page), self.layout.page_len)
    }
}

/// A page of granted memory.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Page {
    /// What it holds, where that is certain.
    pub(super) content: Option<Content>,
    pub(super) readers: u16,
    pub(super) is_written: bool,
    /// A transfer to it went wrong: it may hold anything, at any time.
    pub(super) is_spoiled: bool,
}

/// A word of granted memory: even ones are added to, odd ones are compared and swapped.
#[derive(Debug, Default)]
pub(super) struct Word {
    /// Additions of one that were done, and those that may have been.
    pub(super) added: u64,
    pub(super) unknown: u64,
    /// What they found.
    pub(super) found: Vec<u64>,
    /// What it may hold, where it is swapped; the first one is 0.
    pub(super) candidates: Vec<u64>,
    /// Swaps that may yet be done: from what, to what.
    pub(super) late: Vec<(u64, u64)>,
    pub(super) asked: u32,
}

/// A word that is being changed.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) host: usize,
    pub(super) connection: usize,
    pub(super) end: usize,
    pub(super) grant: usize,
    pub(super) word: usize,
    /// From what to what; none where it is an addition.
    pub(super) swap: Option<(u64, u64)>,
    pub(super) answer: Answer<Result<u64, AtomicError>>,
}

/// A counter that one end of a connection has, and the other raises.
#[derive(Debug)]
pub(super) struct Count {
    pub(super) connection: usize,
    /// Whose it is.
    pub(super) end: usize,
    pub(super) host: usize,
    pub(super) id: CounterId,
    pub(super) view: Rc<CounterView>,
    /// Pages of all transfers that name it.
    pub(super) total: u64,
    /// Those that were seen to be there.
    pub(super) present: u64,
    /// Those that were not: the grant, the page, what it will hold.
    pub(super) missing: Vec<(usize, usize, Content)>,
    /// What it had reached when it was last looked at.
    pub(super) reached: u64,
    /// Transfers that have not ended.
    pub(super) under_way: u32,
    /// Whether all that have ended went well.
    pub(super) is_clean: bool,
    /// Memory was freed before anybody could look whether its pages were there.
    pub(super) is_unobservable: bool,
    pub(super) is_closed: bool,
}

/// Pages under way.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) number: u64,
    pub(super) op: OpId,
    pub(super) host: usize,
    pub(super) connection: usize,
    pub(super) end: usize,
    pub(super) direction: Direction,
    pub(super) grant: usize,
    /// The page of the grant, and what it will hold or does.
    pub(super) pages: Vec<(usize, Content)>,
    /// Where each is on this side, for a read.
    pub(super) layout: Layout,
    pub(super) places: Vec<u32>,
    pub(super) counter: Option<usize>,
    pub(super) source: Option<usize>,
    pub(super) answer: Answer<TransferAnswer>,
    pub(super) is_given_up: bool,
    /// It is asked for what it cannot have.
    pub(super) is_wrong: bool,
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
