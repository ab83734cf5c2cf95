//! Tests with real faults during a stream: a peer that is killed, a link that is cut, a device that
//! is removed.
//!
//! One side of the stream is the test, which tracks its buffers. The other is the example program
//! `blast`, in a process of its own, and on a host of its own if the guest has two. Each test shows
//! that the wait ends in under five seconds, with an error that names the cause, and that every
//! buffer is returned, or counted as leaked.
//!
//! All tests share one device: they run one at a time (`--test-threads=1`, like all device tests),
//! and restore link and device, even on failure.

mod cut;
mod inject;
mod killed;
mod peer;
mod removed;
mod stream;
mod two_hosts;
