//! The table of checks. To add one: write a function of a [`Pack`] in the file of its subject, give it a row here, and say in
//! tests/packs how a host looks on which it passes, fails, and cannot tell: a test asks for all three.
//!
//! A check looks at nothing but the pack. What it needs is put there by `collect`: a file by its pattern in `collect/patterns.rs`.

mod cards;
mod cgroup;
mod library;
mod memory;
mod stack;

pub(super) use cards::has_rdma;

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
        name: "modules",
        why: "User space gets at a device through ib_uverbs, and at the connection manager through rdma_ucm.",
        look: stack::modules,
    },
    Check {
        name: "drivers",
        why: "A card without its RDMA driver is a network card at best.",
        look: cards::drivers,
    },
    Check {
        name: "namespaces",
        why: "An RDMA device may be in another network namespace, where this process does not see it.",
        look: stack::namespaces,
    },
    Check {
        name: "nodes",
        why: "A program opens a device by its node in /dev/infiniband.",
        look: stack::nodes,
    },
    Check {
        name: "provider",
        why: "libibverbs drives each card by a library that is for it alone.",
        look: library::provider,
    },
    Check {
        name: "memlock",
        why: "A card reaches memory behind the kernel's back, so registered memory is locked, and a process may lock only so much.",
        look: memory::memlock,
    },
    Check {
        name: "cgroup",
        why: "A control group may leave a process no contexts or queue pairs.",
        look: cgroup::cgroup,
    },
    Check {
        name: "queue pairs",
        why: "A card has a number of queue pairs, and what was left behind holds some.",
        look: library::queue_pairs,
    },
    Check {
        name: "maps",
        why: "Regions are mappings, and a process has a number of those.",
        look: memory::maps,
    },
    Check {
        name: "huge pages",
        why: "A card looks up fewer of them, and they are faster to register.",
        look: memory::huge_pages,
    },
    Check {
        name: "fork",
        why: "After a fork, a page that a card writes to may be the child's.",
        look: library::fork,
    },
    Check {
        name: "gpu",
        why: "A card that reaches a GPU's memory itself saves the way through the host's.",
        look: stack::gpu,
    },
    Check {
        name: "on-chip memory",
        why: "A card's own memory answers faster than the host's.",
        look: library::on_chip_memory,
    },
    Check { name: "libfabric", why: "EFA, tcp and shm are libfabric's.", look: library::libfabric },
    Check {
        name: "efa",
        why: "An Elastic Fabric Adapter is used through libfabric's provider efa alone.",
        look: library::efa,
    },
    Check { name: "transfer", why: "Only bytes that arrive prove that it works.", look: library::transfer },
];
