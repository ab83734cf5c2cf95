//! The table of checks. To add one: write a function of a [`Pack`] in the file of its subject, give it a row here, and say in
//! tests/packs how a host looks on which it passes, fails, and cannot tell: a test asks for all three.
//!
//! A check looks at nothing but the pack. What it needs is put there by `collect`: a file by its pattern in `collect/patterns.rs`.

mod memory;
mod stack;

use super::finding::Answer;
use super::pack::Pack;

/// One question to a host.
pub(crate) struct Check {
    /// What it is called, in JSON and on the screen.
    pub(crate) name: &'static str,
    /// Why it matters, in one sentence.
    pub(crate) why: &'static str,
    pub(crate) look: fn(&Pack) -> Answer,
}

/// All of them, from the kernel up to the wire: who reads from the top finds what is missing first.
pub(crate) const CHECKS: &[Check] = &[
    Check {
        name: "kernel",
        why: "Every RDMA device is the kernel's: without its RDMA core there is none.",
        look: stack::kernel,
    },
    Check {
        name: "memlock",
        why: "A card writes to memory behind the kernel's back, so registered memory is locked, and the limit is per user.",
        look: memory::memlock,
    },
];
