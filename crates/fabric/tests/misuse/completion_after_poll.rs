//! A completion refers to its endpoint's table: it must be dropped or moved before the next poll.

use farreach_fabric::{CompletionQueue, Event};

fn misuse(cq: &CompletionQueue) {
    let mut poller = cq.poller();
    let Some(Event::Completed(completion)) = poller.poll().unwrap().next() else { return };
    poller.poll().unwrap();
    completion.into_buffers();
}

fn main() {}
