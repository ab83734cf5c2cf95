//! The arguments that all tests have in common.

use clap::{Args as ClapArgs, value_parser};

use crate::rails::RailArgs;
use crate::session::{PeerAddress, Security, SecurityArgs, Wait};

/// What all tests have in common.
#[derive(Debug, Clone, ClapArgs)]
#[command(next_help_heading = "For all tests")]
pub(crate) struct ClientArgs {
    /// Address of the server: host, host:port or [IPv6]:port
    #[arg(value_name = "PEER", help_heading = None)]
    pub(crate) peer: PeerAddress,

    #[command(flatten)]
    pub(crate) rails: RailArgs,

    /// Port of the server, unless PEER includes one
    #[arg(short, long, value_name = "PORT", default_value_t = PeerAddress::DEFAULT_PORT, value_parser = value_parser!(u16).range(1..))]
    pub(crate) port: u16,

    /// How both sides wait for completions: busy (poll: lowest latency, uses a whole core), event (sleep: least CPU) or
    /// adaptive (poll briefly, then sleep)
    #[arg(long, value_name = "HOW", default_value = "adaptive", hide_possible_values = true)]
    pub(crate) wait: Wait,

    #[command(flatten)]
    pub(crate) security: SecurityArgs,

    /// Name in the server's certificate, if it differs from the host in PEER
    #[arg(long, value_name = "NAME", requires = "tls")]
    pub(crate) tls_name: Option<String>,

    /// Connect to another host without TLS, in a network that you trust. The server needs --insecure, too
    #[arg(long, conflicts_with_all = ["tls", "secret_file"])]
    pub(crate) insecure: bool,

    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Print the chosen rails, and why they were chosen
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

impl ClientArgs {
    /// Returns how the connection to the server is secured.
    pub(crate) fn security(&self) -> Security {
        Security::of(&self.security, self.insecure)
    }
}
