//! A peer that was admitted: it speaks the control protocol itself, has a link over a rail, and was
//! granted memory and a counter like every peer. What it posts and sends is its own choice.
//!
//! This file and `protocol.rs` are all that depends on the details of the protocol and of rails.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use farreach::rails::fabric::{self, FabricRail, FabricSettings};
use farreach::rails::verbs::{self, VerbsRail, VerbsSettings};
use farreach_memory::{Buffers, Memory, Slice};
use farreach_proto::counter::{CounterId, LinkId};
use farreach_proto::ids::GrantId;
use farreach_proto::wire::{BoundKey, Frame, GrantOffer, LinkOffer};
use farreach_rail::{Event, LinkKey, PeerKey, Rail, Refusal, RemoteSegment, WorkRequest};
use serde::{Deserialize, Serialize};

use crate::protocol::{HEADER, Speaker, header, hello, link_ready};

/// How long a victim may take to admit a peer and to grant it memory.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a work request may take by default. Over tcp a request with a wrong key may get no
/// answer at all.
const POST_PATIENCE: Duration = Duration::from_secs(2);

/// What an attacker writes, wherever it can.
pub(crate) const ATTACK_BYTE: u8 = 0xee;

/// The length of a write, and of the text of a message.
const LEN: usize = 8;

/// The names and keys that a victim tells one peer. An attacker that has those of another peer must
/// not be able to use them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Secrets {
    /// The id of the grant.
    pub(crate) grant: GrantId,
    /// The address and the key of the granted memory.
    pub(crate) address: u64,
    pub(crate) key: u64,
    /// The counter, and its names on links.
    pub(crate) counter: u32,
    pub(crate) names: Vec<u32>,
    /// The mark of the peer's messages.
    pub(crate) mark: u64,
    /// The victim's end of the link.
    pub(crate) end: Vec<u8>,
}

/// Opens the rail of this name: a provider of libfabric, or an RDMA device.
pub(crate) fn open_rail(name: &str) -> Result<Box<dyn Rail>> {
    let provider = name.split('@').next().unwrap_or(name);
    if fabric::is_provider(provider) {
        let bind = name.split_once('@').map(|(_, address)| address.parse()).transpose()?;
        let rail = FabricRail::open_named(provider, bind, &FabricSettings::default());
        return Ok(Box::new(rail.map_err(|error| anyhow!("{error}\nfix: {}", error.fix))?));
    }
    let settings = VerbsSettings::default();
    let ports = verbs::rails_named(name, &settings).map_err(|error| anyhow!("{error}"))?;
    let port = ports.first().with_context(|| format!("{name} has no usable port"))?;
    Ok(Box::new(VerbsRail::open(port, &settings).map_err(|error| anyhow!("{error}"))?))
}

/// Returns whether a rail is of libfabric over tcp, whose port strangers can connect to.
pub(crate) fn is_tcp(name: &str) -> bool {
    name.split('@').next() == Some("tcp")
}

/// The result of a work request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Posted {
    /// It completed.
    Done,
    /// It failed, with this reason.
    Failed(String),
    /// It was not posted, for this reason.
    Refused(String),
    /// It has not completed in time.
    Silent,
}

/// Requests without an answer hold their buffers until their link is closed.
fn no_buffer() -> Posted {
    Posted::Refused("every buffer is in flight".to_owned())
}

/// A rail with one link, and buffers for what is posted to it.
#[derive(Debug)]
pub(crate) struct Poster {
    rail: Box<dyn Rail>,
    link: LinkKey,
    writes: Vec<Slice>,
    messages: Vec<Slice>,
    next_tag: u64,
    /// How long a work request may take.
    pub(crate) patience: Duration,
    /// Messages that arrived and were not looked at.
    pub(crate) heard: u64,
}

impl Poster {
    /// Opens an end of a link. Returns the address that the victim needs.
    pub(crate) fn open(rail: Box<dyn Rail>) -> Result<(Self, Vec<u8>)> {
        let (writes, messages) = (Vec::new(), Vec::new());
        let mut poster =
            Self { rail, link: LinkKey(0), writes, messages, next_tag: 1, patience: POST_PATIENCE, heard: 0 };
        let end = poster.open_link()?;
        poster.writes = poster.buffers(LEN, ATTACK_BYTE)?;
        poster.messages = poster.buffers(HEADER + LEN, b'!')?;
        Ok((poster, end))
    }

    fn buffers(&mut self, len: usize, byte: u8) -> Result<Vec<Slice>> {
        const COUNT: usize = 16;
        let mut rest = Memory::allocate(len * COUNT)?;
        self.rail.register(rest.memory()).map_err(|error| anyhow!("{error}"))?;
        rest.fill(byte);
        let mut slices: Vec<Slice> = (1..COUNT).map(|_| rest.split_to(len)).collect();
        slices.push(rest);
        Ok(slices)
    }

    /// Returns the kind that the rail announces.
    pub(crate) fn kind(&self) -> String {
        self.rail.properties().kind.clone()
    }

    /// Returns whether the victim's end of a link fails with this one.
    fn ends_alone(&self) -> bool {
        self.rail.properties().links_end_alone
    }

    /// Opens another end, and forgets the last one.
    pub(crate) fn open_link(&mut self) -> Result<Vec<u8>> {
        self.rail.close_link(self.link);
        let (link, end) = self.rail.open_link(PeerKey(0)).map_err(|error| anyhow!("{error}"))?;
        self.link = link;
        Ok(end)
    }

    /// Connects this end to the victim's.
    pub(crate) fn connect(&mut self, end: &[u8]) -> Result<()> {
        self.rail.connect(self.link, end).map_err(|error| anyhow!("{error}"))
    }

    /// Writes [`ATTACK_BYTE`]s.
    pub(crate) fn write(&mut self, address: u64, key: u64, immediate: Option<u32>) -> Posted {
        let Some(slice) = self.writes.pop() else { return no_buffer() };
        let target = RemoteSegment { address, key, len: LEN as u64 };
        self.post(WorkRequest::Write { target, immediate }, slice.into())
    }

    /// Reads eight bytes.
    pub(crate) fn read(&mut self, address: u64, key: u64) -> Posted {
        let Some(slice) = self.writes.pop() else { return no_buffer() };
        let target = RemoteSegment { address, key, len: LEN as u64 };
        let posted = self.post(WorkRequest::Read { target }, slice.into());
        self.writes.iter_mut().for_each(|slice| slice.fill(ATTACK_BYTE));
        posted
    }

    /// Adds to eight bytes.
    pub(crate) fn fetch_add(&mut self, address: u64, key: u64) -> Posted {
        let Some(slice) = self.writes.pop() else { return no_buffer() };
        let target = RemoteSegment { address, key, len: LEN as u64 };
        let posted = self.post(WorkRequest::FetchAdd { target, add: 1 }, slice.into());
        self.writes.iter_mut().for_each(|slice| slice.fill(ATTACK_BYTE));
        posted
    }

    /// Sends a message with this mark and number.
    pub(crate) fn send(&mut self, mark: u64, number: u64) -> Posted {
        let Some(mut slice) = self.messages.pop() else { return no_buffer() };
        slice[..HEADER].copy_from_slice(&header(mark, number));
        self.post(WorkRequest::Send, slice.into())
    }

    fn post(&mut self, request: WorkRequest<'_>, mut buffers: Buffers) -> Posted {
        let tag = self.next_tag;
        self.next_tag += 1;
        let deadline = Instant::now() + self.patience;
        loop {
            match self.rail.post(self.link, tag, request, buffers) {
                Ok(()) => break,
                Err((Refusal::Full, back)) if Instant::now() < deadline => {
                    buffers = back;
                    let _ = self.poll();
                }
                Err((refusal, back)) => {
                    self.keep(back);
                    return match refusal {
                        Refusal::Full => Posted::Refused("the queue is full".to_owned()),
                        Refusal::LinkDown(error) | Refusal::Never(error) => Posted::Refused(error.cause),
                    };
                }
            }
        }
        while Instant::now() < deadline {
            if let Some((_, outcome)) = self.poll().into_iter().find(|(done, _)| *done == tag) {
                return outcome.map_or_else(Posted::Failed, |()| Posted::Done);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Posted::Silent
    }

    /// Lets the library make progress. Returns the work requests that have completed.
    pub(crate) fn poll(&mut self) -> Vec<(u64, Result<(), String>)> {
        let (mut done, mut back, mut heard) = (Vec::new(), Vec::new(), 0);
        let _ = self.rail.poll(&mut |event| match event {
            Event::Completed { tag, buffers, outcome } => {
                back.push(buffers);
                done.push((tag, outcome.map_err(|error| error.into_error().cause)));
            }
            Event::Message { .. } => heard += 1,
            _ => {}
        });
        self.heard += heard;
        back.into_iter().for_each(|buffers| self.keep(buffers));
        done
    }

    fn keep(&mut self, buffers: Buffers) {
        let Ok(slice) = buffers.into_slice() else { return };
        if slice.len() == LEN { self.writes.push(slice) } else { self.messages.push(slice) }
    }
}

/// A peer of a victim. See the [module](self).
#[derive(Debug)]
pub(crate) struct Insider {
    pub(crate) speaker: Speaker,
    pub(crate) poster: Poster,
    known: Known,
    address: SocketAddr,
    name: String,
}

/// What the victim has told so far.
#[derive(Debug, Default)]
struct Known {
    end: Option<Vec<u8>>,
    mark: Option<u64>,
    grant: Option<GrantOffer>,
    /// Keys that are bound to the link.
    bound: Vec<BoundKey>,
    counter: Option<(CounterId, Vec<(LinkId, CounterId)>)>,
    held: u64,
    /// The number of this peer's own messages that the victim holds.
    confirmed: u64,
    /// The last grant whose revocation the victim has confirmed.
    answered: Option<GrantId>,
    asked: u64,
    /// The answer to a request to open a publication: its grant, or `None` if it was refused.
    opened: Option<Option<GrantId>>,
    /// A grant that the victim revokes.
    revoked: Option<GrantId>,
}

/// The id of the only link.
pub(crate) const LINK: LinkId = LinkId(0);

/// The name of a peer from which the victim takes a publication.
pub(crate) const OPENER: &str = "opener";

/// The mark that the victim's messages carry.
const OWN_MARK: u64 = 1;

impl Insider {
    /// Connects, opens a link, and waits for a grant and a counter.
    pub(crate) fn join(address: SocketAddr, rail: &str, name: &str) -> Result<Self> {
        let (poster, end) = Poster::open(open_rail(rail)?)?;
        Self::join_with(poster, &end, address, name)
    }

    fn join_with(mut poster: Poster, end: &[u8], address: SocketAddr, name: &str) -> Result<Self> {
        poster.heard = 0;
        let speaker = Speaker::greet(address, name, &[poster.kind()])?;
        let known = Known::default();
        let mut insider = Self { speaker, poster, known, address, name: name.to_owned() };
        let deadline = Instant::now() + PATIENCE;
        insider.offer(end, deadline)?;
        while insider.secrets().is_none() {
            if Instant::now() >= deadline {
                bail!("the victim has granted nothing within {PATIENCE:?}: {:?}", insider.known);
            }
            insider.pump(Duration::from_millis(2))?;
        }
        Ok(insider)
    }

    /// Offers an end of a link, and connects it to the one that the victim answers with.
    fn offer(&mut self, end: &[u8], deadline: Instant) -> Result<()> {
        let kind = self.poster.kind();
        let mut to = None;
        while to.is_none() {
            if Instant::now() >= deadline {
                bail!("the victim sent no hello within {PATIENCE:?}");
            }
            for frame in self.speaker.receive(Duration::from_millis(100))? {
                if let Frame::Hello(hello) = frame {
                    let place = hello.rails.iter().position(|rail| *rail == kind);
                    to = Some(place.with_context(|| format!("the victim has no rail of the kind {kind}"))?);
                }
            }
        }
        let to = u16::try_from(to.unwrap_or_default())?;
        let offer = LinkOffer { link: LINK, from: 0, to, address: end.to_vec() };
        self.speaker.send(&Frame::Link(offer))?;
        while self.known.end.is_none() {
            if Instant::now() >= deadline {
                bail!("the victim has not answered the offer of a link within {PATIENCE:?}");
            }
            self.pump(Duration::from_millis(2))?;
        }
        let end = self.known.end.clone().unwrap_or_default();
        self.poster.connect(&end)?;
        self.speaker.send(&link_ready(LINK, OWN_MARK))
    }

    /// Receives frames and messages for about `time`, keeps the connection alive, and confirms
    /// messages.
    pub(crate) fn pump(&mut self, time: Duration) -> Result<()> {
        self.speaker.ping_if_due()?;
        self.poster.poll();
        for frame in self.speaker.receive(time)? {
            self.learn(frame)?;
        }
        // Each message of the victim gets the next number.
        if self.poster.heard > self.known.held {
            self.known.held = self.poster.heard;
            self.speaker.send(&Frame::Held { next: self.known.held })?;
        }
        Ok(())
    }

    fn learn(&mut self, frame: Frame) -> Result<()> {
        match frame {
            Frame::Link(offer) => self.known.end = Some(offer.address),
            Frame::LinkReady { mark, .. } => self.known.mark = Some(mark),
            Frame::LinkLost { reason, .. } => bail!("the victim has closed the link: {reason}"),
            Frame::Grant(offer) => self.known.grant = Some(offer),
            Frame::Keys { keys, .. } => self.known.bound.extend(keys),
            Frame::Counter { counter, names } => match &mut self.known.counter {
                Some((known, more)) if *known == counter => more.extend(names),
                _ => self.known.counter = Some((counter, names)),
            },
            Frame::Held { next } => self.known.confirmed = next,
            Frame::Revoked { grant } => self.known.answered = Some(grant),
            Frame::Opened { grant, .. } => self.known.opened = Some(Some(grant)),
            Frame::NotOpened { .. } => self.known.opened = Some(None),
            Frame::Revoke { grant } => self.known.revoked = Some(grant),
            Frame::Goodbye => bail!("the victim has said goodbye"),
            _ => {}
        }
        Ok(())
    }

    /// Returns the names and keys that the victim has told this peer, once it has told all of them.
    pub(crate) fn secrets(&self) -> Option<Secrets> {
        let Known { end: Some(end), mark: Some(mark), grant: Some(grant), counter: Some(counter), .. } =
            &self.known
        else {
            return None;
        };
        let bound = self.known.bound.iter().rfind(|bound| bound.grant == grant.grant);
        let of_rail = grant.keys.iter().flatten().next().copied();
        let (address, key) = of_rail.or(bound.map(|bound| (bound.address, bound.key)))?;
        let names = counter.1.iter().map(|(_, name)| name.to_raw()).collect();
        let (grant, counter) = (grant.grant, counter.0.to_raw());
        Some(Secrets { grant, address, key, counter, names, mark: *mark, end: end.clone() })
    }

    /// Waits until the victim has handled all frames so far. Returns an error if it has ended the
    /// connection.
    pub(crate) fn await_handled(&mut self) -> Result<()> {
        // A victim confirms at once that it does not use a grant that it does not know.
        self.known.asked += 1;
        let grant = GrantId::from_raw(u64::MAX - self.known.asked);
        self.speaker.send(&Frame::Revoke { grant })?;
        self.await_answer(|known| known.answered == Some(grant))
    }

    /// Takes the answer to a request to open a publication: its grant, or `None` if it was refused.
    pub(crate) fn take_opened(&mut self) -> Option<Option<GrantId>> {
        self.known.opened.take()
    }

    /// Takes a grant that the victim revokes.
    pub(crate) fn take_revoked(&mut self) -> Option<GrantId> {
        self.known.revoked.take()
    }

    /// Waits for the answer to a request to open a publication.
    pub(crate) fn await_opened(&mut self) -> Result<Option<GrantId>> {
        self.await_answer(|known| known.opened.is_some())?;
        Ok(self.known.opened.take().flatten())
    }

    /// Waits until the victim holds so many messages of this peer: it has then handled all that was
    /// posted to the link before the last of them.
    pub(crate) fn await_held(&mut self, messages: u64) -> Result<()> {
        self.await_answer(|known| known.confirmed >= messages)
    }

    fn await_answer(&mut self, is_there: impl Fn(&Known) -> bool) -> Result<()> {
        let deadline = Instant::now() + POST_PATIENCE;
        while !is_there(&self.known) {
            if Instant::now() >= deadline {
                bail!("the victim has not answered within {POST_PATIENCE:?}");
            }
            self.pump(Duration::from_millis(1))?;
        }
        Ok(())
    }

    /// Makes the link usable again after a request has failed. Where the victim's end has failed,
    /// too, the peer connects again.
    pub(crate) fn mend(self) -> Result<Self> {
        let Self { mut poster, known, speaker, address, name } = self;
        let end = poster.open_link()?;
        if poster.ends_alone() {
            return Self::join_with(poster, &end, address, &name);
        }
        let mut insider = Self { speaker, poster, known, address, name };
        let end = insider.known.end.clone().unwrap_or_default();
        insider.poster.connect(&end)?;
        Ok(insider)
    }

    /// Returns a hello, for a victim that does not expect another.
    pub(crate) fn second_hello(&self) -> Frame {
        hello(&self.name, &[self.poster.kind()])
    }
}
