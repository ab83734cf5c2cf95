//! One side of an exchange of single messages, with three ways to wait for completions and for
//! events.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use farreach_memory::Slice;
use farreach_verbs::cm::{CmEvent, EventChannel, EventThread};
use farreach_verbs::context::Context;
use farreach_verbs::cq::{CompletionChannel, CompletionQueue, CompletionQueueBuilder, WorkKind};
use farreach_verbs::qp::{QueuePair, QueuePairBuilder, QueuePairType};
use farreach_verbs::wr::{RecvRequest, SendRequest};

use super::{Failure, deadline, take};

/// The interval at which a side that sleeps on one descriptor checks the other.
const GLANCE: Duration = Duration::from_millis(100);

/// A way to wait for completions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Polls without pause: the lowest latency, and a whole core.
    Busy,
    /// Sleeps on the completion channel.
    Channel,
    /// Sleeps in `poll(2)`, on the completion channel's descriptor and others.
    Poll,
}

/// A way to wait for events of the connection manager.
pub(crate) enum Events {
    /// Sleeps on the channel when an event is expected, and does not check otherwise.
    Blocking(EventChannel),
    /// A thread takes the events, and sends them over a queue.
    Thread(Receiver<CmEvent>, EventThread),
    /// Checks whenever an event is possible; sleeps only in `poll(2)`.
    NonBlocking(EventChannel),
    /// No event is expected, and another thread checks.
    NotNow,
}

impl Events {
    pub(crate) fn on_a_thread(channel: &EventChannel) -> Result<Self, Failure> {
        let (sender, events) = mpsc::channel();
        // If the receiver is gone, the events are discarded.
        let thread = channel.spawn(move |event| drop(sender.send(event)))?;
        Ok(Self::Thread(events, thread))
    }

    /// Waits for the expected event.
    pub(crate) fn wait(&self, end: Instant) -> Result<CmEvent, Failure> {
        match self {
            Self::Blocking(channel) => Ok(channel.wait_event(end)?),
            Self::Thread(events, _) => {
                let left = end.saturating_duration_since(Instant::now());
                events.recv_timeout(left).map_err(|error| match error {
                    RecvTimeoutError::Timeout => Failure::timed_out("event"),
                    RecvTimeoutError::Disconnected => Failure::timed_out("event: its thread ended"),
                })
            }
            Self::NonBlocking(channel) => loop {
                if let Some(event) = channel.get_event()? {
                    return Ok(event);
                }
                poll(&[channel.as_fd()], end)?;
            },
            Self::NotNow => Err(Failure::timed_out("event is expected")),
        }
    }

    /// Checks for unexpected events. During the exchange of messages, they report failures.
    fn look(&self) -> Result<(), Failure> {
        let event = match self {
            Self::Blocking(_) | Self::NotNow => None,
            Self::Thread(events, _) => events.try_recv().ok(),
            Self::NonBlocking(channel) => channel.get_event()?,
        };
        match event.and_then(|event| event.failure()) {
            Some(failure) => Err(failure.into()),
            None => Ok(()),
        }
    }
}

/// A queue pair, with one buffer for sending and one for receiving.
pub(crate) struct End {
    pub(crate) qp: QueuePair,
    cq: CompletionQueue,
    channel: CompletionChannel,
    wait: Wait,
    /// `true` if the next completion will raise an event.
    is_armed: bool,
    /// `None` while the buffer is in flight.
    outgoing: Option<Slice>,
    incoming: Option<Slice>,
}

impl End {
    pub(crate) fn new(context: &Context, size: usize, wait: Wait) -> Result<Self, Failure> {
        let channel = context.create_comp_channel()?;
        let cq = CompletionQueueBuilder::new(16).channel(&channel).build(context)?;
        let pd = context.alloc_pd()?;
        let qp =
            QueuePairBuilder::new(QueuePairType::Rc, &cq, &cq).max_send_wr(2).max_recv_wr(2).build(&pd)?;
        let (outgoing, incoming) = (Some(pd.allocate(size)?), Some(pd.allocate(size)?));
        Ok(Self { qp, cq, channel, wait, is_armed: false, outgoing, incoming })
    }

    /// Posts the receive buffer for the next message. The last message is discarded.
    pub(crate) fn post_recv(&mut self) -> Result<(), Failure> {
        let slice = self.incoming.take().expect("the last message was received");
        Ok(self.qp.post_recv(RecvRequest::new(slice))?)
    }

    /// Returns the next message, for which a buffer was posted.
    pub(crate) fn recv(&mut self, events: &Events) -> Result<&[u8], Failure> {
        self.wait_until(events, |end| end.incoming.is_some())?;
        Ok(self.incoming.as_ref().expect("it was waited for"))
    }

    /// Sends a message, once the previous one has completed.
    pub(crate) fn send(&mut self, events: &Events, fill: impl FnOnce(&mut [u8])) -> Result<(), Failure> {
        self.finish_sending(events)?;
        let mut slice = self.outgoing.take().expect("it was waited for");
        fill(&mut slice);
        Ok(self.qp.post_send(SendRequest::send(slice))?)
    }

    /// Waits until the previous message has arrived.
    pub(crate) fn finish_sending(&mut self, events: &Events) -> Result<(), Failure> {
        self.wait_until(events, |end| end.outgoing.is_some())
    }

    fn wait_until(&mut self, events: &Events, is_there: impl Fn(&Self) -> bool) -> Result<(), Failure> {
        let end = deadline();
        while !is_there(self) {
            if let Some(done) = take(&self.cq)? {
                let slice = done.buffers.into_slice().ok();
                match done.kind {
                    WorkKind::Recv => self.incoming = slice,
                    _ => self.outgoing = slice,
                }
                continue;
            }
            events.look()?;
            if Instant::now() >= end {
                return Err(Failure::timed_out("message"));
            }
            self.rest(events, end)?;
        }
        Ok(())
    }

    /// Waits until there may be a completion or an event.
    fn rest(&mut self, events: &Events, end: Instant) -> Result<(), Failure> {
        if self.wait == Wait::Busy {
            thread::yield_now();
            return Ok(());
        }
        // Completions before the arming raise no event: arm the queue, poll once more, and only
        // then sleep.
        if !self.is_armed {
            self.cq.req_notify(false)?;
            self.is_armed = true;
            return Ok(());
        }
        let event = match (self.wait, events) {
            (Wait::Channel, _) => self.channel.wait_event(Some(GLANCE))?,
            (_, Events::NonBlocking(of_connection)) => {
                // One sleep for both descriptors, which either of them ends.
                poll(&[self.channel.as_fd(), of_connection.as_fd()], end)?;
                self.channel.get_event()?
            }
            _ => {
                poll(&[self.channel.as_fd()], end.min(Instant::now() + GLANCE))?;
                self.channel.get_event()?
            }
        };
        // An event disarms its queue.
        self.is_armed = event.is_none();
        Ok(())
    }
}

/// Sleeps until one of the descriptors is readable, or fails at the deadline.
fn poll(fds: &[BorrowedFd<'_>], end: Instant) -> Result<(), Failure> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(Failure::timed_out("event"));
    }
    let timeout_ms = i32::try_from(left.as_millis()).unwrap_or(i32::MAX).max(1);
    let mut polled: Vec<_> =
        fds.iter().map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }).collect();
    // SAFETY: the list is valid for its length. The descriptors are borrowed, so they are open.
    let ready = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout_ms) };
    match ready {
        // An interrupt counts as a wake-up: the caller checks again.
        -1 if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted => {
            Err(std::io::Error::last_os_error().into())
        }
        _ => Ok(()),
    }
}
