//! Posting with retries: a convenience layer over endpoint and completion queue.

use std::collections::VecDeque;
use std::time::Instant;

use crate::backoff::Backoff;
use crate::{
    CompletionQueue, Endpoint, Error, Event, Peer, PostError, ReceiveRequest, Refusal, TransmitRequest,
};

/// Posts operations, waits for room if the queue is full, and returns events in order.
///
/// A full queue empties only while it is polled, so waiting for room also yields events. They are
/// kept here until [`next`](Self::next) returns them. Every wait ends at its deadline.
///
/// ```no_run
/// # use farreach_fabric::{Endpoint, Peer};
/// # use farreach_memory::Slice;
/// use std::time::{Duration, Instant};
/// use farreach_fabric::{Driver, Event, TransmitRequest};
///
/// # fn send(endpoint: &Endpoint, peer: &Peer, slice: Slice) -> Result<(), Box<dyn std::error::Error>> {
/// let mut driver = Driver::new(endpoint.transmit_cq());
/// let deadline = Instant::now() + Duration::from_secs(5);
/// driver.post(endpoint, TransmitRequest::send(slice, peer), deadline).map_err(|error| error.reason.to_string())?;
/// match driver.next(deadline)? {
///     Some(Event::Completed(completion)) => println!("{:?}", completion.outcome()),
///     Some(other) => println!("{other:?}"),
///     None => println!("nothing within five seconds"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Driver {
    cq: CompletionQueue,
    waiting: VecDeque<Event<'static>>,
}

impl Driver {
    /// Creates a driver of this queue.
    pub fn new(cq: &CompletionQueue) -> Self {
        Self { cq: cq.clone(), waiting: VecDeque::new() }
    }

    /// Posts an operation. Retries while the queue is full, until `deadline`. The last refusal
    /// returns the request.
    #[expect(
        clippy::result_large_err,
        reason = "the whole request is returned, and boxing it would allocate"
    )]
    pub fn post(
        &mut self,
        endpoint: &Endpoint,
        request: TransmitRequest,
        deadline: Instant,
    ) -> Result<(), PostError<TransmitRequest>> {
        self.patiently(request, deadline, |request| {
            endpoint.post(request).map_err(|PostError { reason, request }| (reason, request))
        })
        .map_err(|(reason, request)| PostError { reason, request })
    }

    /// As [`post`](Self::post), for receives.
    pub fn post_receive(
        &mut self,
        endpoint: &Endpoint,
        request: ReceiveRequest,
        deadline: Instant,
    ) -> Result<(), PostError<ReceiveRequest>> {
        self.patiently(request, deadline, |request| {
            endpoint.post_receive(request).map_err(|PostError { reason, request }| (reason, request))
        })
        .map_err(|(reason, request)| PostError { reason, request })
    }

    /// As [`post`](Self::post), for [injected](Endpoint::inject) messages.
    pub fn inject(
        &mut self,
        endpoint: &Endpoint,
        bytes: &[u8],
        peer: &Peer,
        immediate: Option<u64>,
        deadline: Instant,
    ) -> Result<(), Refusal> {
        let inject = |()| endpoint.inject(bytes, peer, immediate).map_err(|reason| (reason, ()));
        self.patiently((), deadline, inject).map_err(|(reason, ())| reason)
    }

    /// Returns the next event, or `None` if there is none until `deadline`.
    pub fn next(&mut self, deadline: Instant) -> Result<Option<Event<'static>>, Error> {
        if let Some(event) = self.waiting.pop_front() {
            return Ok(Some(event));
        }
        let mut poller = self.cq.poller();
        loop {
            // A wait may end with an event that is of no operation.
            let is_there = poller.wait(deadline)?;
            self.waiting.extend(poller.poll()?.map(Event::into_owned));
            match self.waiting.pop_front() {
                Some(event) => return Ok(Some(event)),
                None if !is_there || Instant::now() >= deadline => return Ok(None),
                None => {}
            }
        }
    }

    /// Lets the provider make progress once, without waiting.
    pub fn progress(&mut self) -> Result<(), Error> {
        let mut poller = self.cq.poller();
        self.waiting.extend(poller.poll()?.map(Event::into_owned));
        Ok(())
    }

    fn patiently<R>(
        &mut self,
        mut request: R,
        deadline: Instant,
        mut post: impl FnMut(R) -> Result<(), (Refusal, R)>,
    ) -> Result<(), (Refusal, R)> {
        let mut backoff = Backoff::new();
        loop {
            let (reason, back) = match post(request) {
                Ok(()) => return Ok(()),
                Err(refused) => refused,
            };
            request = back;
            let left = deadline.saturating_duration_since(Instant::now());
            if !matches!(reason, Refusal::QueueFull { .. }) || left.is_zero() {
                return Err((reason, request));
            }
            let before = self.waiting.len();
            if let Err(error) = self.progress() {
                return Err((Refusal::Engine(error), request));
            }
            // One provider answers "try again" to operations that it never supports, and reports
            // the reason by an unattributed error.
            let unattributed =
                self.waiting.iter().skip(before).position(|event| matches!(event, Event::Unattributed(_)));
            if let Some(Event::Unattributed(failure)) =
                unattributed.and_then(|index| self.waiting.remove(before + index))
            {
                return Err((Refusal::Failed(*failure), request));
            }
            if self.waiting.len() == before {
                backoff.pause(left);
            }
        }
    }
}
