//! Reads a host: nothing is changed, and no secret is kept. Files by their patterns, the kernel by netlink, and the libraries by a process of their own.

mod patterns;
mod walk;

use std::time::{SystemTime, UNIX_EPOCH};

use super::pack::{Pack, SCHEMA_VERSION};
use super::probes::Probes;
use crate::session::Host;

/// Everything that the checks look at, of this host.
pub(crate) fn host() -> Pack {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Pack {
        schema_version: SCHEMA_VERSION,
        farreach: env!("CARGO_PKG_VERSION").to_owned(),
        host: Host::this().name,
        recorded_unix_seconds: now.as_secs(),
        constructed: None,
        looked_for: patterns::PATTERNS.iter().map(|pattern| (*pattern).to_owned()).collect(),
        files: walk::read(patterns::PATTERNS),
        probes: Probes::default(),
    }
}
