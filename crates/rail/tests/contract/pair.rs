//! Two rails of one process, a link between them, and waits that poll both.

use std::collections::VecDeque;
use std::sync::Arc;

use farreach_memory::{Buffers, Exposed, Memory, Slice};
use farreach_proto::rights::Rights;
use farreach_rail::{Event, Key, KeyId, LinkKey, Rail, Refusal, RemoteSegment, RequestError, WorkRequest};
use farreach_sim::request::{Refused, Request, post};
use farreach_testkit::wait_for;

/// An event that a rail has reported.
#[derive(Debug)]
pub(crate) enum Seen {
    Completed { tag: u64, buffers: Buffers, outcome: Result<(), RequestError> },
    Immediate(u32),
    Message(Vec<u8>),
}

/// The side that posts, and its target.
pub(crate) const A: usize = 0;
pub(crate) const B: usize = 1;

/// Two rails with a link between them.
pub(crate) struct Pair<R> {
    pub(crate) rails: [R; 2],
    pub(crate) links: [LinkKey; 2],
    pub(crate) seen: [VecDeque<Seen>; 2],
    /// All links so far.
    all_links: [Vec<LinkKey>; 2],
    /// Lets time pass between two polls, where it does not by itself.
    pass: Box<dyn FnMut()>,
}

impl<R: Rail> Pair<R> {
    pub(crate) fn new(rails: [R; 2], pass: impl FnMut() + 'static) -> Self {
        let (seen, all_links) = (Default::default(), Default::default());
        let mut pair = Self { rails, links: [LinkKey(0); 2], seen, all_links, pass: Box::new(pass) };
        pair.link();
        pair
    }

    /// Connects a new link between both.
    pub(crate) fn link(&mut self) {
        assert_eq!(self.rails[A].properties().kind, self.rails[B].properties().kind);
        let ends = [A, B].map(|side| self.rails[side].open_link(farreach_rail::PeerKey(0)).unwrap());
        self.links = [ends[A].0, ends[B].0];
        for side in [A, B] {
            assert!(!self.all_links[side].contains(&self.links[side]), "a name is not used again");
            self.all_links[side].push(self.links[side]);
        }
        self.rails[A].connect(self.links[A], &ends[B].1).unwrap();
        self.rails[B].connect(self.links[B], &ends[A].1).unwrap();
    }

    /// Returns a registered slice of this side with these bytes.
    pub(crate) fn slice(&mut self, side: usize, bytes: &[u8]) -> Slice {
        let mut slice = Memory::allocate(bytes.len()).unwrap();
        slice.copy_from_slice(bytes);
        self.rails[side].register(slice.memory()).unwrap();
        slice
    }

    /// Grants the other side all rights to memory of this side.
    pub(crate) fn expose(&mut self, side: usize, len: usize) -> Granted {
        let memory = Arc::new(Memory::allocate(len).unwrap().expose());
        let mut key = self.rails[side].make_key(farreach_rail::PeerKey(0), &memory, Rights::all()).unwrap();
        if self.rails[side].properties().keys_are_bound {
            (key.address, key.key) = self.bind(side, key.id);
        }
        Granted { memory, key }
    }

    /// Binds a key to the link. Returns its address and number there.
    fn bind(&mut self, side: usize, key: KeyId) -> (u64, u64) {
        self.rails[side].bind_key(self.links[side], key, 17).unwrap();
        let mut answer = None;
        wait_for("bound key", || {
            (self.pass)();
            self.rails[1 - side].poll(&mut |event| panic!("{event:?}")).unwrap();
            self.rails[side]
                .poll(&mut |event| match event {
                    Event::KeyBound { tag: 17, bound, .. } => answer = Some(bound.unwrap()),
                    other => panic!("{other:?}"),
                })
                .unwrap();
            answer
        })
    }

    /// Polls one side.
    pub(crate) fn poll(&mut self, side: usize) {
        let names_link = self.rails[side].properties().immediates_name_link;
        let (seen, links) = (&mut self.seen[side], &self.all_links[side]);
        let check = |link: Option<LinkKey>| {
            assert_eq!(link.is_some(), names_link, "it names its link if the rail can");
            assert!(link.is_none_or(|link| links.contains(&link)), "{link:?} is none of {links:?}");
        };
        let mut told = 0;
        let count = self.rails[side]
            .poll(&mut |event| {
                told += 1;
                seen.push_back(match event {
                    Event::Completed { tag, buffers, outcome } => Seen::Completed { tag, buffers, outcome },
                    Event::Immediate { link, bits } => {
                        check(link);
                        Seen::Immediate(bits)
                    }
                    Event::Message { link, bytes } => {
                        check(link);
                        Seen::Message(bytes.to_vec())
                    }
                    Event::KeyBound { tag, .. } => panic!("no key is bound, and here is {tag}"),
                    Event::KeyEnded { key } => panic!("no key was ended, and here is {key:?}"),
                    Event::LinkDown { reason, .. } => panic!("no link has failed: {reason}"),
                });
            })
            .unwrap();
        assert_eq!(count, told);
    }

    /// Polls both sides: an operation makes no progress while its target does not poll.
    pub(crate) fn progress(&mut self) {
        (self.pass)();
        self.poll(A);
        self.poll(B);
    }

    /// Posts to the link, and polls both sides while the queue is full.
    #[track_caller]
    pub(crate) fn post(&mut self, side: usize, tag: u64, request: Request<'_>) {
        let mut waiting = Some(request);
        wait_for("room", || {
            let request = waiting.take().expect("it was handed back");
            match post(&mut self.rails[side], self.links[side], tag, request) {
                Ok(()) => Some(()),
                Err(Refused { reason: Refusal::Full, request }) => {
                    waiting = Some(request);
                    self.progress();
                    None
                }
                Err(refused) => panic!("{:?}", refused.reason),
            }
        });
    }

    /// Returns the next event of a side.
    #[track_caller]
    pub(crate) fn next(&mut self, side: usize) -> Seen {
        wait_for("event", || {
            self.progress();
            self.seen[side].pop_front()
        })
    }

    /// Returns the next completion: its tag, buffers and outcome.
    #[track_caller]
    pub(crate) fn completed(&mut self, side: usize) -> (u64, Buffers, Result<(), RequestError>) {
        match self.next(side) {
            Seen::Completed { tag, buffers, outcome, .. } => (tag, buffers, outcome),
            other => panic!("{other:?}"),
        }
    }

    /// Returns the buffers of the next completion, which must have succeeded.
    #[track_caller]
    pub(crate) fn done(&mut self, side: usize, expected: u64) -> Buffers {
        let (tag, buffers, outcome) = self.completed(side);
        outcome.unwrap_or_else(|error| panic!("{error}\nfix: {}", error.error().fix));
        assert_eq!(tag, expected);
        buffers
    }

    #[track_caller]
    pub(crate) fn immediate(&mut self, side: usize) -> u32 {
        match self.next(side) {
            Seen::Immediate(bits) => bits,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn message(&mut self, side: usize) -> Vec<u8> {
        match self.next(side) {
            Seen::Message(bytes) => bytes,
            other => panic!("{other:?}"),
        }
    }

    /// Checks that nothing is in flight, and that no unexpected event was reported.
    #[track_caller]
    pub(crate) fn assert_quiet(&mut self) {
        // A message of a completed operation may still be in flight inside the process.
        for _ in 0..100 {
            self.progress();
        }
        for side in [A, B] {
            assert!(self.seen[side].is_empty(), "nobody asked for {:?}", self.seen[side]);
            assert_eq!(self.rails[side].in_flight(), 0);
        }
    }
}

/// Memory that a peer can access.
pub(crate) struct Granted {
    pub(crate) memory: Arc<Exposed>,
    pub(crate) key: Key,
}

impl Granted {
    /// Returns a range of it, as the peer addresses it.
    pub(crate) fn target(&self, offset: u64, len: u64) -> RemoteSegment {
        assert!(offset + len <= self.memory.len() as u64);
        RemoteSegment { address: self.key.address + offset, key: self.key.key, len }
    }

    /// A notification: an immediate without data.
    pub(crate) fn immediate(&self, immediate: u32) -> Request<'static> {
        (WorkRequest::Write { target: self.target(0, 0), immediate: Some(immediate) }, Buffers::None)
    }

    pub(crate) fn copy(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read_at(offset, &mut bytes);
        bytes
    }
}

/// A write of one slice.
pub(crate) fn write(slice: Slice, target: RemoteSegment, immediate: Option<u32>) -> Request<'static> {
    (WorkRequest::Write { target, immediate }, slice.into())
}
