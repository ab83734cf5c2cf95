//! Two rails, a link between them, and the events that each has reported.

use std::collections::VecDeque;
use std::sync::Arc;

use farreach::rails::verbs::{self, VerbsPort, VerbsRail, VerbsSettings};
use farreach::{Memory, Rights, Slice};
use farreach_memory::Buffers;
use farreach_memory::Exposed;
use farreach_rail::{Event, Key, KeyId, LinkKey, Rail, RailError, RemoteSegment, RequestError, WorkRequest};
use farreach_sim::request::{Refused, Request, post};
use farreach_testkit::{Device, pattern, wait_for};

/// A completed request.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) tag: u64,
    pub(crate) buffers: Buffers,
    pub(crate) outcome: Result<(), RailError>,
}

/// A rail, and the events that it has reported and that were not taken.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) rail: VerbsRail,
    pub(crate) link: LinkKey,
    pub(crate) told: Told,
}

/// The link and the tag of a binding, and the address and key that it gave.
pub(crate) type BoundKey = (LinkKey, u64, Result<(u64, u64), RailError>);

#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) done: VecDeque<Done>,
    pub(crate) immediates: VecDeque<(LinkKey, u32)>,
    pub(crate) messages: VecDeque<(LinkKey, Vec<u8>)>,
    pub(crate) bound: VecDeque<BoundKey>,
    pub(crate) links_down: VecDeque<(LinkKey, RailError)>,
}

impl Told {
    fn note(&mut self, event: Event<'_>) {
        let named = |link: Option<LinkKey>| link.expect("it names its link");
        match event {
            Event::Completed { tag, buffers, outcome } => {
                let outcome = outcome.map_err(RequestError::into_error);
                self.done.push_back(Done { tag, buffers, outcome });
            }
            Event::Immediate { link, bits } => self.immediates.push_back((named(link), bits)),
            Event::Message { link, bytes } => self.messages.push_back((named(link), bytes.to_vec())),
            Event::KeyBound { link, tag, bound } => self.bound.push_back((link, tag, bound)),
            Event::KeyEnded { key } => panic!("the end of {key:?} was proven when it was ended"),
            Event::LinkDown { link, reason } => self.links_down.push_back((link, reason)),
        }
    }

    fn is_empty(&self) -> bool {
        let Self { done, immediates, messages, bound, links_down } = self;
        let has_none = done.is_empty() && immediates.is_empty() && messages.is_empty();
        has_none && bound.is_empty() && links_down.is_empty()
    }
}

/// Memory that peers can access.
pub(crate) struct Granted {
    pub(crate) memory: Arc<Exposed>,
    pub(crate) id: KeyId,
    whole: RemoteSegment,
}

impl Granted {
    /// Returns a part of it.
    pub(crate) fn part(&self, offset: u64, len: u64) -> RemoteSegment {
        assert!(offset + len <= self.whole.len);
        RemoteSegment { address: self.whole.address + offset, len, ..self.whole }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut copy = vec![0; self.memory.len()];
        self.memory.read_at(0, &mut copy);
        copy
    }
}

impl Side {
    /// Opens a rail without a link.
    pub(crate) fn open(rail: &VerbsPort, settings: &VerbsSettings) -> Self {
        let rail = VerbsRail::open(rail, settings).expect("the rail opens");
        Self { rail, link: LinkKey(0), told: Told::default() }
    }

    /// Returns a registered slice of zeroes.
    pub(crate) fn blank(&mut self, len: usize) -> Slice {
        let slice = Memory::allocate(len).expect("memory");
        self.rail.register(slice.memory()).expect("it is registered");
        slice
    }

    /// Returns a registered slice with a pattern.
    pub(crate) fn filled(&mut self, seed: u8, len: usize) -> Slice {
        let mut slice = self.blank(len);
        slice.copy_from_slice(&pattern(seed, len));
        slice
    }

    /// Grants memory with all rights.
    pub(crate) fn granted(&mut self, seed: u8, len: usize) -> Granted {
        let slice = self.filled(seed, len);
        self.grant(slice, Rights::all())
    }

    pub(crate) fn grant(&mut self, slice: Slice, rights: Rights) -> Granted {
        let (len, memory) = (slice.len(), Arc::new(slice.expose()));
        let Key { id, address, key } =
            self.rail.make_key(farreach_rail::PeerKey(0), &memory, rights).expect("a key");
        Granted { memory, id, whole: RemoteSegment { address, key, len: len as u64 } }
    }

    #[track_caller]
    pub(crate) fn post(&mut self, tag: u64, request: Request<'_>) {
        post(&mut self.rail, self.link, tag, request).unwrap_or_else(|refused| panic!("{refused:?}"));
    }

    /// Posts a request that has to be refused.
    #[track_caller]
    pub(crate) fn refused<'a>(&mut self, request: Request<'a>) -> Refused<'a> {
        let in_flight = self.rail.in_flight();
        let refused = post(&mut self.rail, self.link, 99, request).expect_err("it is not taken");
        assert_eq!(self.rail.in_flight(), in_flight);
        refused
    }

    pub(crate) fn poll(&mut self) {
        let (told, mut count) = (&mut self.told, 0);
        let counted = self.rail.poll(&mut |event| {
            count += 1;
            told.note(event);
        });
        assert_eq!(counted, Ok(count));
    }
}

/// Two sides with a link between them.
pub(crate) struct Pair {
    pub(crate) a: Side,
    pub(crate) b: Side,
}

/// The rail of this guest's own device.
pub(crate) fn own_rail() -> VerbsPort {
    let name = Device::find().name;
    let mut rails = verbs::rails_named(&name, &VerbsSettings::default()).expect("the device can be a rail");
    assert_eq!(rails.len(), 1, "it has one port");
    rails.remove(0)
}

impl Pair {
    /// Opens both sides over one device.
    pub(crate) fn new() -> Self {
        Self::with(&VerbsSettings::default())
    }

    pub(crate) fn with(settings: &VerbsSettings) -> Self {
        let rail = own_rail();
        let mut pair = Self { a: Side::open(&rail, settings), b: Side::open(&rail, settings) };
        (pair.a.link, pair.b.link) = pair.link();
        pair
    }

    /// Connects one more link.
    pub(crate) fn link(&mut self) -> (LinkKey, LinkKey) {
        let (at_a, end_a) = self.a.rail.open_link(farreach_rail::PeerKey(0)).expect("a link");
        let (at_b, end_b) = self.b.rail.open_link(farreach_rail::PeerKey(0)).expect("a link");
        self.a.rail.connect(at_a, &end_b).expect("it is connected");
        self.b.rail.connect(at_b, &end_a).expect("it is connected");
        (at_a, at_b)
    }

    pub(crate) fn poll(&mut self) {
        self.a.poll();
        self.b.poll();
    }

    /// Polls both sides until `found` returns a value.
    #[track_caller]
    pub(crate) fn until<T>(&mut self, what: &str, mut found: impl FnMut(&mut Self) -> Option<T>) -> T {
        wait_for(what, || {
            self.poll();
            found(self)
        })
    }

    /// Returns the next completed request of a.
    #[track_caller]
    pub(crate) fn done(&mut self) -> Done {
        self.until("end of a request", |pair| pair.a.told.done.pop_front())
    }

    /// Returns the next completed request of a, which must have succeeded.
    #[track_caller]
    pub(crate) fn well_done(&mut self) -> Done {
        let done = self.done();
        assert_eq!(done.outcome, Ok(()), "{done:?}");
        done
    }

    /// Returns the next immediate at b.
    #[track_caller]
    pub(crate) fn immediate(&mut self) -> (LinkKey, u32) {
        self.until("immediate", |pair| pair.b.told.immediates.pop_front())
    }

    /// Returns the next message at b.
    #[track_caller]
    pub(crate) fn message(&mut self) -> (LinkKey, Vec<u8>) {
        self.until("message", |pair| pair.b.told.messages.pop_front())
    }

    /// Checks that nothing is left: in flight, or reported and not taken.
    #[track_caller]
    pub(crate) fn finish(mut self) {
        self.poll();
        assert!(self.a.told.is_empty() && self.b.told.is_empty(), "{:?} {:?}", self.a.told, self.b.told);
        assert_eq!((self.a.rail.in_flight(), self.b.rail.in_flight()), (0, 0));
        drop(self);
        assert_eq!(farreach_memory::leaked_bytes(), 0);
    }
}

/// A write to a range.
pub(crate) fn write(pieces: impl Into<Buffers>, target: RemoteSegment) -> Request<'static> {
    (WorkRequest::Write { target, immediate: None }, pieces.into())
}

/// Like [`write`], with an immediate.
pub(crate) fn write_and_tell(
    pieces: impl Into<Buffers>,
    target: RemoteSegment,
    immediate: u32,
) -> Request<'static> {
    (WorkRequest::Write { target, immediate: Some(immediate) }, pieces.into())
}

/// A notification: an immediate without data.
pub(crate) fn tell(immediate: u32) -> Request<'static> {
    (
        WorkRequest::Write {
            target: RemoteSegment { address: 0, key: 0, len: 0 },
            immediate: Some(immediate),
        },
        Buffers::None,
    )
}

pub(crate) fn send(pieces: impl Into<Buffers>) -> Request<'static> {
    (WorkRequest::Send, pieces.into())
}
