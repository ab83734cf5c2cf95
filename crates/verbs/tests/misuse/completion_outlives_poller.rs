//! A completion does not outlive its poller.

use farreach_verbs::cq::{CompletionQueue, WorkCompletion};

fn misuse(cq: &CompletionQueue) -> WorkCompletion<'_> {
    let mut poller = cq.poller();
    poller.poll().unwrap().next().unwrap()
}

fn main() {}
