//! The bodies of the fuzz targets, as plain functions.
//!
//! libFuzzer calls [`run`] with inputs of its own (`cargo xtask fuzz --seconds N`); the test
//! `replay` calls it with the corpora, with a stable compiler (`cargo xtask fuzz --replay`). A
//! target panics if a promise is broken. Each also has a budget of memory: an input must not
//! allocate more than a constant and a multiple of its length.
//!
//! | target | input |
//! |---|---|
//! | `frames` | bytes of a control connection, in arbitrary chunks |
//! | `machine` | a history of the simulation: the requests of users, and what a peer that lies sends and posts |
//! | `tls` | what an attacker between two control connections does with their records |
//! | `orders` | an order of a client, its later messages, and the answers of a server |
//! | `packs` | a pack of `farreach doctor`, of a host or a pair |
//! | `firewall` | the output of `nft -j list ruleset` and of `iptables-save` |
//! | `sysfs` | files of `/sys`, and answers of netlink |
//! | `names` | tokens, secrets, GIDs and addresses as text |
//! | `pages` | page maps, and the limits of links |
//! | `ends` | ends of links over verbs and libfabric |

use farreach_sim::histories;

pub mod allocations;
#[cfg(feature = "engine")]
mod ends;
#[cfg(feature = "doctor")]
mod firewall;
mod frames;
#[cfg(feature = "command")]
mod names;
#[cfg(feature = "command")]
mod orders;
#[cfg(feature = "doctor")]
mod packs;
mod pages;
pub mod seeds;
#[cfg(feature = "doctor")]
mod sysfs;
#[cfg(feature = "engine")]
mod tls;

/// A fuzz target.
pub struct Target {
    /// Its name, and that of its corpus.
    pub name: &'static str,
    body: fn(&[u8]),
    /// The bytes that an input may allocate at a time: a constant, and for each byte of the input.
    memory: (usize, usize),
}

/// The targets that this build has.
pub const TARGETS: &[Target] = &[
    Target { name: "frames", body: frames::run, memory: (512 << 10, 64) },
    Target { name: "machine", body: histories::run_input, memory: (8 << 20, 256) },
    #[cfg(feature = "engine")]
    Target { name: "tls", body: tls::run, memory: (16 << 20, 64) },
    #[cfg(feature = "command")]
    Target { name: "orders", body: orders::run, memory: (256 << 10, 256) },
    #[cfg(feature = "doctor")]
    Target { name: "packs", body: packs::run, memory: (4 << 20, 1024) },
    #[cfg(feature = "doctor")]
    Target { name: "firewall", body: firewall::run, memory: (512 << 10, 512) },
    #[cfg(feature = "doctor")]
    Target { name: "sysfs", body: sysfs::run, memory: (256 << 10, 128) },
    #[cfg(feature = "command")]
    Target { name: "names", body: names::run, memory: (64 << 10, 32) },
    Target { name: "pages", body: pages::run, memory: (256 << 10, 128) },
    #[cfg(feature = "engine")]
    Target { name: "ends", body: ends::run, memory: (64 << 10, 32) },
];

/// Runs a target with one input.
///
/// # Panics
///
/// If a promise is broken.
pub fn run(name: &str, input: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("the target exists");
    let (constant, each) = target.memory;
    let peak = allocations::peak_of(|| (target.body)(input));
    let max = constant + each * input.len();
    assert!(peak <= max, "{} bytes of input made {name} allocate {peak} bytes, more than {max}", input.len());
}
