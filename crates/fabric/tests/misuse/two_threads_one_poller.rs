//! One thread at a time has the right to poll.

use farreach_fabric::CompletionQueue;

fn misuse(cq: &CompletionQueue) {
    let mut poller = cq.poller();
    std::thread::scope(|scope| {
        scope.spawn(|| poller.poll().unwrap().count());
    });
}

fn main() {}
