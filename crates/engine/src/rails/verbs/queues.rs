//! Completion queues: one for the first links, more as links come.

use farreach_rail::RailError;
use farreach_verbs::context::Context;
use farreach_verbs::cq::{CompletionChannel, CompletionQueue, CompletionQueueBuilder, WorkCompletion};

use super::error::told;

/// The completion queues of a rail. None is ever asked to hold more than it can.
#[derive(Debug)]
pub(super) struct Queues {
    context: Context,
    channel: CompletionChannel,
    all: Vec<Queue>,
    /// The queue that is polled next.
    turn: usize,
    plan: Plan,
}

#[derive(Debug)]
struct Queue {
    cq: CompletionQueue,
    links: u32,
    links_max: u32,
}

/// How large they are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    /// Links of the first one.
    pub(super) links_at_first: u32,
    /// Completions that one link may have.
    pub(super) window: u32,
    /// Completions of what peers have sent, over whichever links.
    pub(super) receives: u32,
    /// The most that the card lets a queue hold.
    pub(super) depth_max: u32,
}

impl Plan {
    /// Links of the queue that comes after so many others; none where there is no room even for one.
    fn links_of(&self, index: usize) -> Option<u32> {
        let wanted = u64::from(self.links_at_first.max(1)) << index.min(32);
        let possible = self.depth_max.checked_sub(self.receives)? / self.window.max(1);
        let links = wanted.min(possible.into()) as u32;
        (links > 0).then_some(links)
    }

    fn depth(&self, links: u32) -> u32 {
        links * self.window + self.receives
    }
}

/// Completions that are told of in one poll, about.
const TOLD_AT_ONCE: usize = 64;

impl Queues {
    pub(super) fn new(context: &Context, channel: CompletionChannel, plan: Plan) -> Self {
        Self { context: context.clone(), channel, all: Vec::new(), turn: 0, plan }
    }

    /// A queue with room for one more link, which has it from now on.
    pub(super) fn enter(&mut self) -> Result<usize, RailError> {
        let index = match self.all.iter().position(|queue| queue.links < queue.links_max) {
            Some(index) => index,
            None => self.add()?,
        };
        self.all[index].links += 1;
        Ok(index)
    }

    /// A link is gone.
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
                format!("completion queue of {name}"),
                format!("it holds {depth_max} completions, and {window} of one link with {receives} of receives are more"),
                "choose a smaller window, or fewer receives",
            )
        })?;
        let vectors = self.context.completion_vector_count().max(1);
        let cq = CompletionQueueBuilder::new(self.plan.depth(links_max))
            .vector(index as u32 % vectors)
            .channel(&self.channel)
            .build(&self.context)
            .map_err(|error| told(format!("completion queue {} of {name}", index + 1), &error))?;
        self.all.push(Queue { cq, links: 0, links_max });
        Ok(index)
    }

    /// Hands on what has completed, of each queue in turn. How many.
    pub(super) fn poll(&mut self, mut take: impl FnMut(WorkCompletion<'_>)) -> Result<usize, RailError> {
        let mut count = 0;
        for _ in 0..self.all.len() {
            let queue = &self.all[self.turn];
            self.turn = if self.turn + 1 == self.all.len() { 0 } else { self.turn + 1 };
            if queue.links == 0 {
                continue;
            }
            let mut poller = queue.cq.poller();
            let completions = poller.poll().map_err(|error| told("poll for completions", &error))?;
            completions.for_each(|completion| {
                count += 1;
                take(completion);
            });
            if count >= TOLD_AT_ONCE {
                break;
            }
        }
        Ok(count)
    }

    /// Hands on all that a queue holds now. More than it can hold is not there, so that this ends, however busy its links are.
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
            // At least one: what is of a queue pair that is gone is not handed on.
            left -= 1;
            poller.poll().map_err(failed)?.for_each(|completion| {
                left = left.saturating_sub(1);
                take(completion);
            });
        }
        Ok(())
    }

    /// Sees to it that the next completion wakes who sleeps; `false` where there are some already.
    pub(super) fn arm(&mut self) -> Result<bool, RailError> {
        let failed = |error| told("sleep until a completion", &error);
        // The events of earlier armings: each was the end of a sleep, or came while nobody slept.
        while self.channel.get_event().map_err(failed)?.is_some() {}
        let mut is_idle = true;
        for queue in self.all.iter().filter(|queue| queue.links > 0) {
            queue.cq.req_notify(false).map_err(failed)?;
            // What completed before the arming raises no event.
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
