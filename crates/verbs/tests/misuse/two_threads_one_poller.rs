//! Only one thread at a time may poll.

use farreach_verbs::cq::CompletionQueue;

fn misuse(cq: &CompletionQueue) {
    let mut poller = cq.poller();
    std::thread::scope(|scope| {
        scope.spawn(|| poller.poll().unwrap().count());
    });
}

fn main() {}
