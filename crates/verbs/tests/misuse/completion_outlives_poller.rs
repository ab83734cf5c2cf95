//! A completion is taken before its poller goes.

use farreach_verbs::cq::{CompletionQueue, WorkCompletion};

fn misuse(cq: &CompletionQueue) -> WorkCompletion<'_> {
    let mut poller = cq.poller();
    poller.poll().unwrap().next().unwrap()
}

fn main() {}
