//! Room for what peers send, of all links together.

use farreach_memory::Slice;
use farreach_rail::RailError;
use farreach_verbs::pd::ProtectionDomain;
use farreach_verbs::srq::SharedReceiveQueue;
use farreach_verbs::wr::RecvRequest;

use super::error::told;

/// A shared receive queue and its buffers: each goes back into the queue when what came in it has been told.
#[derive(Debug)]
pub(super) struct Receives {
    srq: SharedReceiveQueue,
    /// Buffers that wait to be posted.
    ready: Vec<RecvRequest>,
    count: u32,
    message_max: usize,
    /// For links that took one along.
    spares: Vec<Slice>,
    spares_used: u32,
}

/// So many links may end and take a buffer along, while others stay, before there is less room for what peers send.
const SPARES: u32 = 1024;

/// More than come back in one poll.
const AT_ONCE: usize = 128;

impl Receives {
    /// How many receives there may be in a queue for `count`.
    ///
    /// A link that ends in the middle of a message takes the buffer along that was being filled: it neither completes nor can be told from
    /// the others. So each link that ends gets a spare one posted for it. With the last link the queue is made anew.
    pub(super) fn depth(count: u32) -> u32 {
        count.saturating_add(SPARES)
    }

    pub(super) fn new(pd: &ProtectionDomain, count: u32, message_max: usize) -> Result<Self, RailError> {
        let failed =
            |error| told(format!("shared receive queue of {}", pd.context().device().name()), &error);
        let srq = pd.create_srq(Self::depth(count), 1).map_err(failed)?;
        let mut ready = Vec::with_capacity(AT_ONCE.max(count as usize));
        ready.extend(buffers(pd, count, message_max)?.into_iter().map(RecvRequest::new));
        let mut receives = Self { srq, ready, count, message_max, spares: Vec::new(), spares_used: 0 };
        receives.post()?;
        Ok(receives)
    }

    pub(super) fn srq(&self) -> &SharedReceiveQueue {
        &self.srq
    }

    /// A buffer comes back. It is posted with the next [`post`](Self::post).
    #[inline]
    pub(super) fn put(&mut self, buffer: Slice) {
        self.ready.push(RecvRequest::new(buffer));
    }

    /// Posts what came back.
    #[inline]
    pub(super) fn post(&mut self) -> Result<(), RailError> {
        if self.ready.is_empty() {
            return Ok(());
        }
        self.srq
            .post_recv_list(&mut self.ready)
            .map_err(|refusal| RailError::new("room for what peers send", refusal.to_string(), refusal.fix()))
    }

    /// A link has ended, and may have taken a buffer along.
    pub(super) fn replace_one(&mut self) -> Result<(), RailError> {
        if self.spares_used == SPARES {
            return Ok(());
        }
        if self.spares.is_empty() {
            // Several at once: memory is registered by the page.
            let count = self.count.min(SPARES - self.spares_used);
            self.spares = buffers(self.srq.pd(), count, self.message_max)?;
        }
        self.spares_used += 1;
        if let Some(spare) = self.spares.pop() {
            self.put(spare);
        }
        self.post()
    }

    /// The last link has ended: begins anew with what there was at first.
    pub(super) fn renew(&mut self) -> Result<(), RailError> {
        *self = Self::new(self.srq.pd(), self.count, self.message_max)?;
        Ok(())
    }
}

/// So many, of one piece of memory.
fn buffers(pd: &ProtectionDomain, count: u32, len: usize) -> Result<Vec<Slice>, RailError> {
    let bytes = len.saturating_mul(count as usize).max(1);
    let mut whole = pd.allocate(bytes).map_err(|error| told("memory for what peers send", &error))?;
    Ok((0..count).map(|_| whole.split_to(len)).collect())
}
