//! This side of the stream, which tracks its buffers.

use std::io::Write;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use farreach_memory::{Slice, leaked_bytes};
use farreach_testkit::{Device, WAIT_MAX, wait_for};
use farreach_verbs::cm::{self, CmParameters, Connection, Connector, Listener, PortSpace};
use farreach_verbs::context::Context;
use farreach_verbs::cq::{self, CompletionQueue, Success, WorkKind};
use farreach_verbs::event::{AsyncEvent, AsyncEvents, EventType};
use farreach_verbs::leak::leaked;
use farreach_verbs::qp::{QueuePair, QueuePairBuilder, QueuePairType};
use farreach_verbs::wr::{Buffers, PostError, RecvRequest, Refusal, SendRequest};

use super::peer::{Peer, far_address};

/// As in `blast`: the number of posted receives, and of receives per credit message.
const WINDOW: u32 = 32;
const GRANT: u32 = WINDOW / 2;
const SIZE: u32 = 4096;

/// Credits that a sender saves for after the fault, so that some work requests in flight can never
/// be acknowledged.
pub(crate) const SAVED: u32 = 8;

/// The maximum time until a fault is reported.
pub(crate) const TOLD_MAX: Duration = Duration::from_secs(5);

/// 4.096 µs × 2^15 is 134 ms, and seven attempts take 0.9 s; Soft-RoCE takes up to twice as long.
/// The connection manager's default adds up to half a minute.
const ACK_TIMEOUT: u8 = 15;

/// The report that ended a stream.
#[derive(Debug)]
pub(crate) enum Told {
    /// A failed work request.
    Completion(cq::Failure),
    /// An event of the connection manager.
    Connection(cm::Error),
    /// An event of the device.
    Device(AsyncEvent),
}

impl Told {
    /// Checks that a sender was told that its peer is gone: by the connection, or by a work request
    /// that nobody acknowledged.
    pub(crate) fn assert_peer_is_gone(self) {
        match self {
            Self::Connection(error @ cm::Error::Disconnected { .. }) => {
                assert!(error.cause().contains("ended the connection"), "{}", error.cause());
            }
            Self::Completion(failure) => {
                assert_eq!(failure.status, cq::WorkStatus::RetryExceeded);
                assert!(failure.cause().contains("no acknowledgement from the peer"), "{}", failure.cause());
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A stream with the peer, and the state of its buffers.
pub(crate) struct Stream {
    qp: QueuePair,
    cq: CompletionQueue,
    connection: Connection,
    events: AsyncEvents,
    is_sender: bool,
    /// The buffers that are not in flight.
    home: Vec<Slice>,
    /// Messages that were received, or whose arrival was acknowledged.
    moved: u32,
    sent: u32,
    credits: u32,
    room: u32,
    /// Work requests with a buffer that failed.
    failed: u32,
    /// Work requests that a broken device may or may not have. They are returned when the queue
    /// pair is destroyed.
    in_doubt: u32,
    is_stopped: bool,
}

impl Stream {
    /// Receives from a peer that sends without end.
    pub(crate) fn receiver() -> (Self, Peer) {
        let listener = Listener::bind((Device::find().address, 0).into()).unwrap();
        let address = listener.local_address().unwrap();
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        let (size, count) = (SIZE.to_string(), u32::MAX.to_string());
        let peer = Peer::start(&[&host, "--port", &port, "--size", &size, "--count", &count]);
        let request = listener.wait_request(deadline()).unwrap();
        request.id().set_ack_timeout(ACK_TIMEOUT).unwrap();
        let (qp, cq, mut home) = parts(&request.context().unwrap());
        request.prepare(&qp).unwrap();
        for slice in home.drain(..) {
            qp.post_recv(RecvRequest::new(slice)).unwrap();
        }
        let connection = request.accept(&qp, &CmParameters::new(), deadline()).unwrap();
        (Self::new(qp, cq, connection, home, false), peer)
    }

    /// Sends to a peer that receives.
    pub(crate) fn sender() -> (Self, Peer) {
        const PORT: u16 = 18533;
        let peer = Peer::start(&["serve", "--port", &PORT.to_string()]);
        let stream = wait_for("peer that listens", || {
            let address = SocketAddr::from((far_address(), PORT));
            let set = |id: &cm::CmId| id.set_ack_timeout(ACK_TIMEOUT);
            let connector = Connector::resolve_with(PortSpace::Tcp, address, deadline(), set).unwrap();
            let (qp, cq, home) = parts(&connector.context().unwrap());
            connector.prepare(&qp).unwrap();
            for _ in 0..4 {
                qp.post_recv(RecvRequest::empty()).unwrap();
            }
            let plan = [SIZE.to_be_bytes(), u32::MAX.to_be_bytes()].concat();
            match connector.connect(&qp, &CmParameters::new().with_private_data(plan), deadline()) {
                Ok(connection) => Some(Self::new(qp, cq, connection, home, true)),
                Err(cm::Error::Rejected { .. }) => None,
                Err(error) => panic!("{error}"),
            }
        });
        (stream, peer)
    }

    fn new(
        qp: QueuePair,
        cq: CompletionQueue,
        connection: Connection,
        home: Vec<Slice>,
        is_sender: bool,
    ) -> Self {
        let events = qp.context().async_events().unwrap();
        Self {
            qp,
            cq,
            connection,
            events,
            is_sender,
            home,
            moved: 0,
            sent: 0,
            credits: WINDOW - SAVED,
            room: 0,
            failed: 0,
            in_doubt: 0,
            is_stopped: false,
        }
    }

    /// Streams until so many messages have been moved, without any failure.
    pub(crate) fn run(&mut self, messages: u32) {
        let goal = self.moved + messages;
        wait_for("so many messages", || {
            if let Some(told) = self.step() {
                panic!("{told:?} after {} messages", self.moved);
            }
            (self.moved >= goal).then_some(())
        });
    }

    /// Continues the stream after a fault at `since`, until a report for which `is_news` returns
    /// `true`, within [`TOLD_MAX`].
    pub(crate) fn wait_told(&mut self, since: Instant, is_news: impl Fn(&Told) -> bool) -> Told {
        if self.is_sender {
            self.credits += SAVED;
        }
        let mut passed_over = Vec::new();
        loop {
            match self.step() {
                Some(told) if is_news(&told) => {
                    let elapsed = since.elapsed();
                    assert!(elapsed < TOLD_MAX, "{told:?} only after {elapsed:?}");
                    let how = format!("reported after {elapsed:.1?}: {told:?}; ignored: {passed_over:?}\n");
                    std::io::stderr().write_all(how.as_bytes()).unwrap();
                    return told;
                }
                other => passed_over.extend(other),
            }
            assert!(since.elapsed() < TOLD_MAX, "no report within {TOLD_MAX:?}; others: {passed_over:?}");
            thread::yield_now();
        }
    }

    /// Stops the queue pair: every work request of the device completes, and the buffers are
    /// returned.
    pub(crate) fn stop(&mut self) {
        // Nothing is posted from here on: Soft-RoCE does not flush a receive that is posted to a
        // queue pair in the error state.
        self.is_stopped = true;
        // This call succeeds whatever happened to link and device: it only involves the kernel.
        self.qp.to_error().unwrap();
        wait_for("end of every request", || {
            self.step();
            let (sends, receives) = self.qp.in_flight();
            (sends + receives == self.in_doubt).then_some(())
        });
    }

    /// Ends the stream, and checks that each buffer is returned exactly once and nothing has
    /// leaked. Returns the number of buffers in failed work requests.
    pub(crate) fn finish(mut self) -> u32 {
        self.stop();
        let Self { qp, cq, connection, events, mut home, failed, in_doubt, .. } = self;
        let left = qp.destroy().unwrap();
        assert_eq!(left.len(), in_doubt as usize, "all others have completed");
        home.extend(left.into_iter().flat_map(Buffers::into_slice));
        drop((cq, connection, events));
        // As many as were posted, none of them leaked.
        assert_eq!(home.len(), WINDOW as usize, "{failed} failed");
        // No two of them are the same: joined, they are the allocation that they were split from.
        home.sort_by_key(Slice::offset);
        let mut slices = home.into_iter();
        let mut whole = slices.next().expect("the window is not empty");
        for slice in slices {
            whole.unsplit(slice).expect("they are neighbours");
        }
        assert_eq!(whole.len(), (WINDOW * SIZE) as usize);
        drop(whole);
        assert_eq!((leaked().total(), leaked_bytes()), (0, 0), "nothing was leaked: {:?}", leaked());
        failed
    }

    /// Posts as much as possible, and takes at most one completion or event.
    fn step(&mut self) -> Option<Told> {
        while self.is_sender && self.credits > 0 && self.failed + self.in_doubt == 0 && !self.is_stopped {
            let Some(mut slice) = self.home.pop() else { break };
            fill(&mut slice, self.sent);
            self.post_send(SendRequest::send(slice));
            (self.sent, self.credits) = (self.sent + 1, self.credits - 1);
        }
        if let Some((kind, outcome, buffers)) = take(&self.cq) {
            return match outcome {
                Ok(success) => {
                    self.succeed(kind, success, buffers);
                    None
                }
                Err(failure) => {
                    self.failed += buffers.count() as u32;
                    self.home.extend(buffers.into_slice());
                    (!failure.is_flush()).then_some(Told::Completion(failure))
                }
            };
        }
        if let Some(failure) =
            self.connection.channel().get_event().unwrap().and_then(|event| event.failure())
        {
            return Some(Told::Connection(failure));
        }
        let event = self.events.get().unwrap()?;
        matches!(event.kind(), EventType::PortError | EventType::DeviceFatal).then_some(Told::Device(event))
    }

    /// Posts a work request. A device that is gone may or may not have it.
    fn post_send(&mut self, request: SendRequest) {
        match self.qp.post_send(request) {
            Ok(()) => {}
            Err(PostError { reason: Refusal::InDoubt(_), .. }) => self.in_doubt += 1,
            Err(refused) => panic!("{refused}"),
        }
    }

    fn succeed(&mut self, kind: WorkKind, success: Success, buffers: Buffers) {
        match (self.is_sender, kind) {
            _ if self.is_stopped => self.home.extend(buffers.into_slice()),
            (true, WorkKind::Recv) => {
                self.credits += success.immediate.expect("a credit message has a number").0;
                self.qp.post_recv(RecvRequest::empty()).unwrap();
            }
            (true, _) => {
                self.moved += 1;
                self.home.extend(buffers.into_slice());
            }
            (false, WorkKind::Recv) => {
                let slice = buffers.into_slice().unwrap();
                assert!(is_filled(&slice, self.moved), "wrong bytes");
                self.moved += 1;
                self.room += 1;
                self.qp.post_recv(RecvRequest::new(slice)).unwrap();
                if self.room == GRANT {
                    self.room = 0;
                    self.post_send(SendRequest::send(Vec::new()).immediate(GRANT));
                }
            }
            // The completion of a credit message.
            (false, _) => {}
        }
    }
}

pub(crate) fn deadline() -> Instant {
    Instant::now() + WAIT_MAX
}

/// Creates a queue pair, and buffers from one allocation.
fn parts(context: &Context) -> (QueuePair, CompletionQueue, Vec<Slice>) {
    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(4 * WINDOW).unwrap());
    let builder = QueuePairBuilder::new(QueuePairType::Rc, &cq, &cq);
    let qp = builder.max_send_wr(WINDOW).max_recv_wr(WINDOW).build(&pd).unwrap();
    let mut whole = pd.allocate((WINDOW * SIZE) as usize).unwrap();
    (qp, cq, (0..WINDOW).map(|_| whole.split_to(SIZE as usize)).collect())
}

fn take(cq: &CompletionQueue) -> Option<(WorkKind, Result<Success, cq::Failure>, Buffers)> {
    let mut poller = cq.poller();
    let completion = poller.poll().unwrap().next()?;
    Some((completion.kind(), completion.outcome(), completion.into_buffers()))
}

/// The bytes of a message, as `blast` makes and checks them.
fn fill(bytes: &mut [u8], message: u32) {
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = pattern(message, index);
    }
}

fn is_filled(bytes: &[u8], message: u32) -> bool {
    bytes.iter().enumerate().all(|(index, byte)| *byte == pattern(message, index))
}

fn pattern(message: u32, index: usize) -> u8 {
    (index as u8).wrapping_mul(31) ^ (index >> 8) as u8 ^ (message as u8).wrapping_mul(7)
}
