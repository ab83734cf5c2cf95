//! Faults in the middle of a stream, made for real: a peer that is killed, a link that is cut, a device that is removed.
//!
//! One side of the stream is a test and has an account of its buffers; the other is the example program `blast`, in a process of its
//! own and on a host of its own where the guest has two. What each test shows: the wait ends in under five seconds, with an error that names the
//! cause in words, and every buffer that was handed in is back, or counted as leaked.
//!
//! A device is one for all: these tests run one at a time (`--test-threads=1`, as the device tests do), and give link and device
//! back as they were, also when they fail.

mod cut;
mod inject;
mod killed;
mod peer;
mod removed;
mod stream;
mod two_hosts;
