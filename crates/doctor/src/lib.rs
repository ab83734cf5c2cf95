//! Diagnoses the RDMA setup of a host, or of a pair of hosts, and suggests fixes.
//!
//! ```text
//! collect ──▶ Pack ──▶ checks ──▶ HostReport: findings with verdict, sources and fixes
//!            ▲    │
//!        Dump, from JSON and to JSON
//! ```
//!
//! A [`Pack`] is plain data read from a host. Checks read nothing but a pack, so they give the same
//! result on the host, on another host and in a test.
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
//!             println!("  fix: {}", fix.what);
//!             fix.commands.iter().for_each(|command| println!("    {command}"));
//!         }
//!     }
//! }
//! ```
//!
//! # What it does
//!
//! - [`collect`] reads this host: files of the kernel, netlink, and the two libraries. It changes
//!   nothing.
//! - [`checks`] judges a pack. Each [`Check`](checks::Check) answers one question. Together they
//!   cover the host from the kernel up to the wire.
//! - [`pair`] judges the results of trials between two hosts, together with the packs of both.
//! - [`Dump`] is a pack as a file, for analysis on another host. It contains addresses, but no
//!   secrets.
//!
//! # What it does not do
//!
//! It prints nothing and starts no process. A [`Runner`](collect::Runner) may do so: the command
//! `farreach doctor` queries each library in a process of its own, moves bytes over every rail, and
//! tries every rail with the rails of a peer.
#![forbid(unsafe_code)]

pub mod checks;
pub mod collect;
mod dump;
pub mod figures;
mod filter;
pub mod finding;
mod kernel_names;
pub mod pack;
pub mod pair;
pub mod probes;
#[cfg(test)]
#[path = "../tests/host/prose.rs"]
mod prose;
pub mod report;
mod survey;

pub use dump::{Dump, DumpError};
pub use filter::CONTROL_PORT;
pub use finding::{Answer, CommandLine, Finding, Fix, Verdict};
pub use pack::Pack;
pub use report::{CheckReport, HostReport, NotHere};
