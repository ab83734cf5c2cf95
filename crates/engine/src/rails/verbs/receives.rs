//! Receive buffers, shared by all links.

use farreach_memory::Slice;
use farreach_rail::RailError;
use farreach_verbs::pd::ProtectionDomain;
use farreach_verbs::srq::SharedReceiveQueue;
use farreach_verbs::wr::RecvRequest;

use super::error::told;

/// A shared receive queue and its buffers. Each buffer is posted again after its content was
/// reported.
#[derive(Debug)]
pub(super) struct Receives {
    srq: SharedReceiveQueue,
    /// Buffers to be posted.
    ready: Vec<RecvRequest>,
    count: u32,
    message_max: usize,
    /// Replacements for buffers that ended links have kept.
    spares: Vec<Slice>,
    spares_used: u32,
}

/// The number of links that may end and keep a buffer, while others stay, before there are fewer
/// receive buffers.
const SPARES: u32 = 1024;

/// More than return in one poll.
const AT_ONCE: usize = 128;

impl Receives {
    /// Returns the depth of a queue for `count` receives.
    ///
    /// A link that ends in the middle of a message keeps the buffer that was being filled: it does
    /// not complete, and cannot be distinguished from the others. Therefore a spare buffer is
    /// posted for each link that ends. When the last link has ended, the queue is created anew.
    pub(super) fn depth(count: u32) -> u32 {
        count.saturating_add(SPARES)
    }

    pub(super) fn new(pd: &ProtectionDomain, count: u32, message_max: usize) -> Result<Self, RailError> {
        let failed = |error| {
            told(format!("create a shared receive queue on {}", pd.context().device().name()), &error)
        };
        // One segment for each receive: a buffer is one slice.
        let srq = pd.create_srq(Self::depth(count), 1).map_err(failed)?;
        // Buffers of one poll come back before they are posted, so that it need not grow then.
        let mut ready = Vec::with_capacity(AT_ONCE.max(count as usize));
        ready.extend(buffers(pd, count, message_max)?.into_iter().map(RecvRequest::new));
        let mut receives = Self { srq, ready, count, message_max, spares: Vec::new(), spares_used: 0 };
        receives.post()?;
        Ok(receives)
    }

    pub(super) fn srq(&self) -> &SharedReceiveQueue {
        &self.srq
    }

    /// Takes a buffer back. The next [`post`](Self::post) posts it.
    #[inline]
    pub(super) fn put(&mut self, buffer: Slice) {
        self.ready.push(RecvRequest::new(buffer));
    }

    /// Posts the buffers that were returned.
    #[inline]
    pub(super) fn post(&mut self) -> Result<(), RailError> {
        if self.ready.is_empty() {
            return Ok(());
        }
        self.srq
            .post_recv_list(&mut self.ready)
            .map_err(|refusal| RailError::new("post receive buffers", refusal.to_string(), refusal.fix()))
    }

    /// Posts a spare buffer for a link that has ended and may have kept one.
    pub(super) fn replace_one(&mut self) -> Result<(), RailError> {
        // The queue has no room for another one. It has fewer buffers then.
        if self.spares_used == SPARES {
            return Ok(());
        }
        if self.spares.is_empty() {
            // Several at once, because memory is registered by the page.
            let count = self.count.min(SPARES - self.spares_used);
            self.spares = buffers(self.srq.pd(), count, self.message_max)?;
        }
        self.spares_used += 1;
        if let Some(spare) = self.spares.pop() {
            self.put(spare);
        }
        self.post()
    }

    /// Creates the queue anew after the last link has ended.
    pub(super) fn renew(&mut self) -> Result<(), RailError> {
        // No queue pair uses the old queue any more, so all of its buffers are freed with it.
        *self = Self::new(self.srq.pd(), self.count, self.message_max)?;
        Ok(())
    }
}

/// Allocates buffers, all in one allocation.
fn buffers(pd: &ProtectionDomain, count: u32, len: usize) -> Result<Vec<Slice>, RailError> {
    let bytes = len.saturating_mul(count as usize).max(1);
    let mut whole = pd.allocate(bytes).map_err(|error| told("allocate receive buffers", &error))?;
    Ok((0..count).map(|_| whole.split_to(len)).collect())
}
