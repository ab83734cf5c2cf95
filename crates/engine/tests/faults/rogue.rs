//! A peer without an engine: it implements the control protocol itself, posts to its rail itself,
//! and breaks the rules.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farreach::{Grant, Memory};
use farreach_memory::Shared;
use farreach_proto::counter::LinkId;
use farreach_proto::ids::GrantId;
use farreach_proto::wire::{Decoder, Frame, Hello, LinkOffer, PREAMBLE_LEN, encode, preamble};
use farreach_rail::{LinkKey, Rail, Refusal, RemoteSegment, WorkRequest};
use farreach_testkit::wait_for;

/// The length of one write.
const CHUNK: usize = 256 << 10;
/// The byte that is written.
const BYTE: u8 = 0xAB;
/// The interval of its pings.
const HEARTBEAT: Duration = Duration::from_millis(50);
/// A rail that accepts nothing for this long is replaced.
const STUCK: Duration = Duration::from_millis(50);
/// How long an offered link is waited for. On an emulated machine the answer takes longer than
/// [`STUCK`], and a peer that offers another link meanwhile never gets one.
const UNANSWERED: Duration = Duration::from_secs(2);

/// The answer of the peer when its grant is revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It answers that it has stopped, when its writes in flight are done. It has not stopped.
    AtOnce,
    /// No answer.
    Never,
}

/// The peer, in a thread of this process.
pub(crate) struct Rogue {
    tally: Arc<Tally>,
    thread: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Tally {
    writes: AtomicU64,
    late: AtomicU64,
    is_over: AtomicBool,
}

impl Rogue {
    pub(crate) fn start(survivor: SocketAddr, answer: Answer, open: fn() -> Box<dyn Rail>) -> Self {
        let tally = Arc::new(Tally::default());
        let counted = Arc::clone(&tally);
        let thread = std::thread::spawn(move || Writer::connect(survivor, answer, open, counted).write_on());
        Self { tally, thread }
    }

    /// Waits until it has written with its key for a while, so that it is known to be able to.
    #[track_caller]
    pub(crate) fn has_written_to(&self, grant: &Grant) {
        let mut byte = [0];
        wait_for("write of the peer's", || {
            grant.read_at(0, &mut byte);
            (byte == [BYTE] && self.tally.writes.load(Ordering::SeqCst) > 20).then_some(())
        });
    }

    /// Returns how many writes it has posted since its key was revoked.
    pub(crate) fn posts_by_a_dead_key(&self) -> u64 {
        self.tally.late.load(Ordering::SeqCst)
    }

    /// Checks that it has not stopped: it posts more writes, possibly after connecting a new link.
    #[track_caller]
    pub(crate) fn goes_on(&self, before: u64) {
        let posts = wait_for("post by a dead key", || {
            Some(self.posts_by_a_dead_key()).filter(|posts| *posts > before)
        });
        eprintln!("{} posts by a dead key since the memory was back", posts - before);
    }

    pub(crate) fn finish(self) {
        self.tally.is_over.store(true, Ordering::SeqCst);
        self.thread.join().expect("it went on to the end");
    }
}

struct Writer {
    stream: TcpStream,
    decoder: Decoder,
    open: fn() -> Box<dyn Rail>,
    rail: Box<dyn Rail>,
    link: LinkKey,
    /// The survivor's end of the link, for connecting to it again.
    end: Vec<u8>,
    is_end_lost: bool,
    /// How many links it has offered, after the first.
    links: u64,
    answer: Answer,
    /// The address, key and length of the memory that it may write to.
    target: Option<(u64, u64, u64)>,
    /// The grant that is being revoked and was not answered for.
    owed: Option<GrantId>,
    is_told: bool,
    source: Shared,
    tally: Arc<Tally>,
    spoke_at: Instant,
    posted_at: Instant,
}

impl Writer {
    fn connect(survivor: SocketAddr, answer: Answer, open: fn() -> Box<dyn Rail>, tally: Arc<Tally>) -> Self {
        let mut stream = TcpStream::connect(survivor).unwrap();
        stream.write_all(&preamble()).unwrap();
        let mut theirs = [0; PREAMBLE_LEN];
        stream.read_exact(&mut theirs).unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut rail = open();
        let source = source(rail.as_mut());
        let (link, end) = rail.open_link(farreach_rail::PeerKey(0)).unwrap();
        let kind = rail.properties().kind.clone();
        let (decoder, spoke_at) = (Decoder::new(), Instant::now());
        let mut writer = Self {
            stream,
            decoder,
            open,
            rail,
            link,
            end: Vec::new(),
            is_end_lost: false,
            links: 0,
            answer,
            target: None,
            owed: None,
            is_told: false,
            source,
            tally,
            spoke_at,
            posted_at: spoke_at,
        };
        writer.say(&Frame::Hello(Hello {
            incarnation: 1,
            name: "rogue".to_owned(),
            rails: vec![kind],
            messages: 8,
            grants: 64,
            counters: 64,
        }));
        writer.say(&Frame::Link(LinkOffer { link: LinkId(0), from: 0, to: 0, address: end }));
        writer
    }

    fn say(&mut self, frame: &Frame) {
        let mut bytes = Vec::new();
        encode(frame, &mut bytes).unwrap();
        // The survivor may have closed the connection.
        let _ = self.stream.write_all(&bytes);
        self.spoke_at = Instant::now();
    }

    /// Writes until the test is over, regardless of the survivor's frames.
    fn write_on(mut self) {
        let mut offset = 0;
        while !self.tally.is_over.load(Ordering::SeqCst) {
            self.listen();
            if self.spoke_at.elapsed() > HEARTBEAT {
                self.say(&Frame::Ping { nonce: 1 });
            }
            // Failures are expected here.
            let _ = self.rail.poll(&mut |_| {});
            if self.owed.is_some() && self.answer == Answer::AtOnce && self.rail.in_flight() == 0 {
                let grant = self.owed.take().expect("it was looked at");
                self.say(&Frame::Revoked { grant });
                self.is_told = true;
            }
            // Before it promises to stop, it lets its writes in flight end.
            let is_waiting = self.owed.is_some() && self.answer == Answer::AtOnce;
            match self.target {
                _ if is_waiting => {}
                Some(_) if self.is_end_lost => self.begin_anew_after(STUCK),
                Some(_) if self.end.is_empty() => self.begin_anew_after(UNANSWERED),
                Some(target) => self.write(target, &mut offset),
                None => {}
            }
        }
    }

    fn write(&mut self, (address, key, len): (u64, u64, u64), offset: &mut u64) {
        let target = RemoteSegment { address: address + *offset, key, len: CHUNK as u64 };
        let request = WorkRequest::Write { target, immediate: None };
        match self.rail.post(self.link, 1, request, self.source.clone().into()) {
            Ok(()) => {
                *offset = (*offset + CHUNK as u64) % len;
                let counter = if self.is_told { &self.tally.late } else { &self.tally.writes };
                counter.fetch_add(1, Ordering::SeqCst);
                self.posted_at = Instant::now();
            }
            // A write with an ended key may leave the link as it is, without any completion.
            Err((Refusal::Full, _)) if !self.is_told => {}
            Err(_) => self.begin_anew_after(STUCK),
        }
    }

    fn begin_anew_after(&mut self, patience: Duration) {
        if self.posted_at.elapsed() > patience {
            self.begin_anew();
            // Opening a rail takes time too.
            self.posted_at = Instant::now();
        }
    }

    /// Opens another rail and connects it to the same end of the survivor, which does not check the
    /// peer. If that end is gone, offers a new link.
    fn begin_anew(&mut self) {
        let mut rail = (self.open)();
        let (link, end) = rail.open_link(farreach_rail::PeerKey(0)).unwrap();
        self.source = source(rail.as_mut());
        (self.rail, self.link) = (rail, link);
        // The end of a connection accepts only the peer that it was connected to.
        let is_open = !self.is_end_lost && !self.end.is_empty() && !self.rail.properties().links_end_alone;
        if is_open && self.rail.connect(self.link, &self.end).is_ok() {
            return;
        }
        let (link, reason) = (LinkId(self.links), "it does not suit me".to_owned());
        self.say(&Frame::LinkLost { link, is_quiet: false, reason });
        self.end.clear();
        self.is_end_lost = false;
        self.links += 1;
        self.say(&Frame::Link(LinkOffer { link: LinkId(self.links), from: 0, to: 0, address: end }));
    }

    fn listen(&mut self) {
        let mut bytes = [0; 4096];
        match self.stream.read(&mut bytes) {
            Ok(count) => self.decoder.feed(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // Without a connection it continues to write.
            Err(_) => {}
        }
        while let Ok(Some(frame)) = self.decoder.next() {
            match frame {
                Frame::LinkLost { link, .. } if link == LinkId(self.links) => self.is_end_lost = true,
                Frame::Link(offer) if self.end.is_empty() && offer.link == LinkId(self.links) => {
                    self.rail.connect(self.link, &offer.address).unwrap();
                    (self.end, self.is_end_lost) = (offer.address, false);
                    self.say(&Frame::LinkReady {
                        link: offer.link,
                        mark: 1,
                        needs_names: true,
                        binds_keys: false,
                    });
                }
                Frame::Grant(offer) => {
                    let (address, key) = offer.keys[0].expect("the survivor has one rail");
                    self.target = Some((address, key, offer.len));
                }
                Frame::Revoke { grant } => {
                    self.owed = Some(grant);
                    self.is_told = self.answer == Answer::Never;
                }
                _ => {}
            }
        }
    }
}

fn source(rail: &mut dyn Rail) -> Shared {
    let mut slice = Memory::allocate(CHUNK).unwrap();
    slice.fill(BYTE);
    rail.register(slice.memory()).unwrap();
    slice.share()
}
