//! What every report begins with: over what it was measured, so that nobody has to ask whether RDMA was really used.

use serde::Serialize;

use crate::measure::Usage;
use crate::session::{Session, Wait};

/// The version of the shape of all reports. A field is only ever added; one that changes its meaning or goes away raises it.
pub(crate) const SCHEMA_VERSION: u32 = 1;

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Head {
    pub(crate) schema_version: u32,
    pub(crate) command: &'static str,
    /// Of the command on this side.
    pub(crate) version: &'static str,
    pub(crate) server: Server,
    /// The rails that were ready when it began.
    pub(crate) rails: Vec<Rail>,
    /// Why these.
    pub(crate) rails_why: String,
    pub(crate) wait: Wait,
    /// Whether it was ended before its time: the figures are those until then.
    pub(crate) interrupted: bool,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Server {
    pub(crate) address: String,
    pub(crate) host: String,
    pub(crate) version: String,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Rail {
    pub(crate) name: String,
    pub(crate) is_rdma: bool,
    pub(crate) native_address: String,
}

/// What both sides have used of their processors.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Processors {
    pub(crate) client: Usage,
    pub(crate) server: Usage,
}

impl Processors {
    pub(crate) fn words(&self) -> String {
        let percent = |usage: &Usage| format!("{:.0} %", usage.share() * 100.0);
        format!("client {} of a core, server {}", percent(&self.client), percent(&self.server))
    }
}

impl Head {
    pub(crate) fn new(command: &'static str, session: &Session, wait: Wait) -> Self {
        let ready = session.rails();
        let rails = session.engine.rails().iter().filter(|rail| ready.contains(&rail.name));
        let rail = |rail: &farreach::provider::Properties| Rail {
            name: rail.name.clone(),
            is_rdma: rail.is_rdma,
            native_address: rail.native.clone(),
        };
        Self {
            schema_version: SCHEMA_VERSION,
            command,
            version: env!("CARGO_PKG_VERSION"),
            server: Server {
                address: session.address.clone(),
                host: session.welcome.host.name.clone(),
                version: session.welcome.version.clone(),
            },
            rails: rails.map(rail).collect(),
            rails_why: session.choice.why.clone(),
            wait,
            interrupted: false,
        }
    }

    /// `storage-7:18520 over rxe0 (RDMA)`
    pub(crate) fn over(&self) -> String {
        let words = |rail: &Rail| format!("{} ({})", rail.name, if rail.is_rdma { "RDMA" } else { "no RDMA" });
        let rails: Vec<String> = self.rails.iter().map(words).collect();
        format!("{} over {}", self.server.address, rails.join(", "))
    }
}
