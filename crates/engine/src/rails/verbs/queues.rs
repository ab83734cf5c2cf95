//! Completion queues: one for the first links, more as links are opened.

use farreach_rail::RailError;
use farreach_verbs::context::Context;
use farreach_verbs::cq::{CompletionChannel, CompletionQueue, CompletionQueueBuilder, WorkCompletion};

use super::error::told;

/// The completion queues of a rail. Invariant: no queue can overflow.
#[derive(Debug)]
pub(super) struct Queues {
    context: Context,
    channel: CompletionChannel,
    all: Vec<Queue>,
    /// The queue to poll next.
    turn: usize,
    plan: Plan,
}

#[derive(Debug)]
struct Queue {
    cq: CompletionQueue,
    links: u32,
    links_max: u32,
    /// Whether a notification was requested and its event was not taken yet.
    is_armed: bool,
}

/// The sizes of the queues.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    /// The number of links of the first queue.
    pub(super) links_at_first: u32,
    /// Completions that one link may have.
    pub(super) window: u32,
    /// Completions of receives, over all links.
    pub(super) receives: u32,
    /// The card's limit of a queue's depth.
    pub(super) depth_max: u32,
}

impl Plan {
    /// Returns the number of links of the queue with this index: twice that of the one before, as
    /// far as the card allows. Returns `None` if there is no room for even one.
    fn links_of(&self, index: usize) -> Option<u32> {
        // 32 bits, shifted by at most 32, fit into 64.
        let wanted = u64::from(self.links_at_first.max(1)) << index.min(32);
        let possible = self.depth_max.checked_sub(self.receives)? / self.window.max(1);
        let links = wanted.min(possible.into()) as u32;
        (links > 0).then_some(links)
    }

    fn depth(&self, links: u32) -> u32 {
        // The receives count for each queue, because its links may use all of the shared buffers.
        links * self.window + self.receives
    }
}

/// Completions after which a poll stops.
const TOLD_AT_ONCE: usize = 64;

impl Queues {
    pub(super) fn new(context: &Context, channel: CompletionChannel, plan: Plan) -> Self {
        Self { context: context.clone(), channel, all: Vec::new(), turn: 0, plan }
    }

    /// Returns a queue with room for one more link, and reserves it.
    pub(super) fn enter(&mut self) -> Result<usize, RailError> {
        let index = match self.all.iter().position(|queue| queue.links < queue.links_max) {
            Some(index) => index,
            None => self.add()?,
        };
        self.all[index].links += 1;
        Ok(index)
    }

    /// Releases the room of one link.
    pub(super) fn leave(&mut self, index: usize) {
        self.all[index].links -= 1;
    }

    pub(super) fn cq(&self, index: usize) -> &CompletionQueue {
        &self.all[index].cq
    }

    fn add(&mut self) -> Result<usize, RailError> {
        let name = self.context.device().name();
        let index = self.all.len();
        let links_max = self.plan.links_of(index).ok_or_else(|| {
            let Plan { window, receives, depth_max, .. } = self.plan;
            RailError::new(
                format!("create a completion queue on {name}"),
                format!(
                    "the card's limit of {depth_max} completions is less than {window} for one link \
                         and {receives} for receives"
                ),
                "choose a smaller window, or fewer receives",
            )
        })?;
        let vectors = self.context.completion_vector_count().max(1);
        let cq = CompletionQueueBuilder::new(self.plan.depth(links_max))
            .vector(index as u32 % vectors)
            .channel(&self.channel)
            .build(&self.context)
            .map_err(|error| told(format!("create completion queue {} on {name}", index + 1), &error))?;
        self.all.push(Queue { cq, links: 0, links_max, is_armed: false });
        Ok(index)
    }

    /// Hands completions to `take`. A call begins with the queue at which the last one stopped.
    /// Returns how many completions there were.
    pub(super) fn poll(&mut self, mut take: impl FnMut(WorkCompletion<'_>)) -> Result<usize, RailError> {
        let mut count = 0;
        for _ in 0..self.all.len() {
            let queue = &self.all[self.turn];
            // Before the queue is polled, so that a busy one is not the first again.
            self.turn = if self.turn + 1 == self.all.len() { 0 } else { self.turn + 1 };
            // A queue without links has nothing to report, and is kept for later links.
            if queue.links == 0 {
                continue;
            }
            let mut poller = queue.cq.poller();
            let completions = poller.poll().map_err(|error| told("poll for completions", &error))?;
            completions.for_each(|completion| {
                count += 1;
                take(completion);
            });
            // A busy card must not keep the leader from the other rails and the sockets.
            if count >= TOLD_AT_ONCE {
                break;
            }
        }
        Ok(count)
    }

    /// Hands all completions of a queue to `take`. It takes no more than the queue can hold, so it
    /// ends, however busy its links are.
    pub(super) fn drain(
        &self,
        index: usize,
        mut take: impl FnMut(WorkCompletion<'_>),
    ) -> Result<(), RailError> {
        let cq = &self.all[index].cq;
        let failed = |error| told("poll for completions", &error);
        let mut left = cq.depth() as usize + 1;
        let mut poller = cq.poller();
        while left > 0 && poller.has_completions().map_err(failed)? {
            // Counted even if no completion follows: those of a destroyed queue pair are not handed
            // on.
            left -= 1;
            poller.poll().map_err(failed)?.for_each(|completion| {
                left = left.saturating_sub(1);
                take(completion);
            });
        }
        Ok(())
    }

    /// Requests a notification for the next completion. Returns `false` if there are completions
    /// already.
    pub(super) fn arm(&mut self) -> Result<bool, RailError> {
        let failed = |error| told("request a completion notification", &error);
        // Consumes the events of earlier requests: each has ended a sleep, or arrived while no
        // thread slept. A request raises one event at most, so none is looked for beyond those: that
        // would be a system call.
        while self.all.iter().any(|queue| queue.is_armed)
            && let Some(cq) = self.channel.get_event().map_err(failed)?
        {
            self.all.iter_mut().filter(|queue| queue.cq == cq).for_each(|queue| queue.is_armed = false);
        }
        let mut is_idle = true;
        for queue in self.all.iter_mut().filter(|queue| queue.links > 0) {
            if !queue.is_armed {
                queue.cq.req_notify(false).map_err(failed)?;
                queue.is_armed = true;
            }
            // A completion before the request raises no event.
            is_idle &= !queue.cq.poller().has_completions().map_err(failed)?;
        }
        Ok(is_idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: Plan = Plan { links_at_first: 64, window: 128, receives: 1280, depth_max: 32_767 };

    #[test]
    fn each_queue_is_for_twice_as_many_links_as_far_as_the_card_allows() {
        let links: Vec<_> = (0..5).map(|index| PLAN.links_of(index)).collect();
        assert_eq!(links, [64, 128, 245, 245, 245].map(Some));
        assert!(PLAN.depth(245) <= PLAN.depth_max);
        let a_real_card = Plan { depth_max: 4_194_303, ..PLAN };
        let queues = (0..).scan(0, |links, index| {
            *links += a_real_card.links_of(index).unwrap();
            Some(*links)
        });
        assert_eq!(queues.take_while(|links| *links < 4096).count() + 1, 7, "for 4,096 peers");
    }

    #[test]
    fn a_card_without_room_for_one_link_is_told_of() {
        assert_eq!(Plan { depth_max: 1279, ..PLAN }.links_of(0), None);
        assert_eq!(Plan { depth_max: 1407, ..PLAN }.links_of(0), None);
        assert_eq!(Plan { depth_max: 1408, ..PLAN }.links_of(7), Some(1));
    }
}
