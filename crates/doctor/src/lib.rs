//! What is wrong with a host, or a pair of hosts, that should speak RDMA, and what to do about it.
//!
//! ```text
//! collect ──▶ Pack ──▶ checks ──▶ HostReport: findings, each with a verdict, where it was read, and fixes
//!            ▲    │
//!        Dump, from JSON and to JSON
//! ```
//!
//! A [`Pack`] is what was read of a host: plain data. Checks look at nothing but a pack, so they say the same on the host, far from it, and in a test.
//!
//! ```
//! use farreach_doctor::collect::{self, InProcess};
//! use farreach_doctor::{Verdict, checks};
//!
//! let pack = collect::host(&InProcess);
//! let report = checks::run(&pack);
//! println!("{}: {:?}", report.host, report.verdict());
//! for check in report.checks.iter().filter(|check| check.verdict > Verdict::Pass) {
//!     for finding in &check.findings {
//!         println!("{:?} {}: {}", finding.verdict, check.check, finding.found);
//!         for fix in &finding.fixes {
//!             println!("  fix: {}", fix.how);
//!         }
//!     }
//! }
//! ```
//!
//! # What it does
//!
//! - [`collect`] reads this host: files of the kernel, netlink, the two libraries. It changes nothing.
//! - [`checks`] judges a pack: one [`Check`](checks::Check) for each question, from the kernel up to the wire.
//! - [`pair`] judges what was tried between two hosts, with the packs of both.
//! - [`Dump`] is a pack as a file, for someone who cannot reach the host. It has addresses in it, and no secrets.
//!
//! # What it does not do
//!
//! It prints nothing and starts no process. What a [`Runner`](collect::Runner) is asked for may: the command `farreach doctor` asks each library in a process
//! of its own, moves bytes over every rail, and tries every rail with those of a peer.
#![forbid(unsafe_code)]

pub mod checks;
pub mod collect;
mod dump;
pub mod figures;
mod filter;
pub mod finding;
pub mod pack;
pub mod pair;
pub mod probes;
pub mod report;
mod survey;

pub use dump::{Dump, DumpError};
pub use filter::CONTROL_PORT;
pub use finding::{Answer, Finding, Fix, Verdict};
pub use pack::Pack;
pub use report::{CheckReport, HostReport, NotHere};
