//! A completion lies in the table of its endpoint: it is let go, or taken out, before the next poll.

use farreach_fabric::{CompletionQueue, Event};

fn misuse(cq: &CompletionQueue) {
    let mut poller = cq.poller();
    let Some(Event::Completed(completion)) = poller.poll().unwrap().next() else { return };
    poller.poll().unwrap();
    completion.into_buffers();
}

fn main() {}
