//! One side: an endpoint, with incoming and outgoing messages.

use std::time::Instant;

use farreach_fabric::{
    Domain, Driver, Endpoint, EndpointBuilder, Event, Fabric, Hints, Info, Peer, ReceiveRequest,
    RemoteRegion, TransmitRequest,
};
use farreach_memory::{Buffers, Slice};

use crate::args::Args;
use crate::failure::Failure;
use crate::message::{Message, Region, SIZE_MAX};

/// The tags of receives and of sent messages. Writes have the number of their job.
pub(crate) const RECEIVE: u64 = u64::MAX;
const SEND: u64 = u64::MAX - 1;

/// The number of completions that a queue holds: all writes of a client's request may be reported
/// at once.
const COMPLETIONS: usize = 1 << 14;

pub(crate) struct Node {
    pub(crate) domain: Domain,
    pub(crate) endpoint: Endpoint,
    pub(crate) driver: Driver,
    /// Free slices for outgoing messages.
    outgoing: Vec<Slice>,
}

/// An event that the node does not handle by itself.
pub(crate) enum Heard {
    Message(Message),
    /// A message that cannot be decoded: its sender uses another version.
    Garbled,
    /// The immediate of a peer's write.
    Written(u64),
    /// A write of this side is completed.
    Done {
        job: u64,
        outcome: Result<(), farreach_fabric::Failure>,
    },
    /// A message was not sent, or something else failed.
    Failed(farreach_fabric::Failure),
}

impl Node {
    /// Opens the provider's endpoint, and posts receives for so many messages.
    pub(crate) fn open(args: &Args, receives: usize) -> Result<Self, Failure> {
        let info = choose(args)?;
        let domain = Fabric::open(&info)?.open_domain(&info)?;
        let (cq, av) = (domain.open_cq_of(COMPLETIONS)?, domain.open_av()?);
        let endpoint = EndpointBuilder::new(&cq, &av).build(&domain)?;
        let mut room = domain.allocate(receives * SIZE_MAX)?;
        for _ in 0..receives {
            endpoint.post_receive(ReceiveRequest::new(room.split_to(SIZE_MAX)).tag(RECEIVE))?;
        }
        Ok(Self { driver: Driver::new(&cq), domain, endpoint, outgoing: Vec::new() })
    }

    /// Sends a message, waiting for room until `deadline`.
    pub(crate) fn send(&mut self, message: &Message, peer: &Peer, deadline: Instant) -> Result<(), Failure> {
        let mut slice = match self.outgoing.pop() {
            Some(slice) => slice,
            None => self.domain.allocate(SIZE_MAX)?,
        };
        let len = message.encode(&mut slice).expect("every message fits");
        // The rest of the slice comes back with it.
        let part = slice.share().get(..len).expect("the slice has `len` bytes");
        Ok(self.driver.post(&self.endpoint, TransmitRequest::send(part, peer).tag(SEND), deadline)?)
    }

    /// Returns the next event, or `None` if there is none until `deadline`.
    pub(crate) fn hear(&mut self, deadline: Instant) -> Result<Option<Heard>, Failure> {
        while let Some(event) = self.driver.next(deadline)? {
            let completion = match event {
                Event::Completed(completion) => completion,
                Event::Written(written) => return Ok(Some(Heard::Written(written.immediate))),
                Event::Unattributed(failure) => return Ok(Some(Heard::Failed(*failure))),
            };
            let tag = completion.tag();
            let (outcome, buffers) = completion.into_parts();
            match tag {
                RECEIVE => {
                    let slice = buffers.into_slice().expect("a receive has one slice");
                    let heard = outcome.map(|success| match Message::decode(&slice[..success.len]) {
                        Some(message) => Heard::Message(message),
                        None => Heard::Garbled,
                    });
                    let request = ReceiveRequest::new(slice).tag(RECEIVE);
                    self.endpoint.post_receive(request)?;
                    return Ok(Some(heard.unwrap_or_else(Heard::Failed)));
                }
                SEND => {
                    if let Buffers::One(farreach_memory::Buffer::Shared(shared)) = buffers {
                        self.outgoing.extend(shared.try_unshare());
                    }
                    if let Err(failure) = outcome {
                        return Ok(Some(Heard::Failed(failure)));
                    }
                }
                job => return Ok(Some(Heard::Done { job, outcome: outcome.map(drop) })),
            }
        }
        Ok(None)
    }

    /// Returns a client's region, for writes.
    pub(crate) fn remote(&self, region: &Region) -> RemoteRegion {
        let remote = RemoteRegion::new(region.address, region.len, region.key);
        if self.domain.profile().keys_enforced {
            return remote;
        }
        // SAFETY: the client exposes its regions before it announces them, and keeps them until it
        // says goodbye or is gone. If keys are not enforced, both processes belong to one user on
        // one host, and could access each other in any case.
        unsafe { remote.vouched() }
    }
}

/// Returns the offer of the provider that was named, or the first one.
fn choose(args: &Args) -> Result<Info, Failure> {
    let mut hints = Hints::rdm();
    if let Some(provider) = &args.provider {
        hints = hints.provider(provider);
    }
    if let Some(node) = &args.node {
        hints = hints.node(node).source();
    }
    let mut offers = Info::query(&hints)?;
    // When asked for one, the library also returns what is layered over it.
    let exact = offers.iter().position(|info| Some(info.provider()) == args.provider.as_deref());
    Ok(offers.swap_remove(exact.unwrap_or(0)))
}
