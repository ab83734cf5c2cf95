//! Command-line arguments.

use std::time::Duration;

use clap::Parser;

/// Pages of random bytes, written by a server into a client's memory, scattered, and checked by the
/// client.
///
/// Without an address it is the server, which prints its own.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// The server's address, as it printed it; without one, this is the server.
    pub(crate) address: Option<String>,

    /// The libfabric provider, such as tcp, shm, efa or "verbs;ofi_rxm"; otherwise the first that
    /// serves.
    #[arg(long, value_name = "P")]
    pub(crate) provider: Option<String>,

    /// The local address to be at, for providers that have such.
    #[arg(long, value_name = "HOST")]
    pub(crate) node: Option<String>,

    /// Bytes of a page.
    #[arg(long, value_name = "N", default_value_t = 1 << 20, requires = "address")]
    pub(crate) page_size: u64,

    /// Pages in each of the two regions.
    #[arg(long, value_name = "N", default_value_t = 8, requires = "address")]
    pub(crate) pages: u32,

    /// How often to ask.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "address")]
    pub(crate) requests: u32,

    /// Where the random bytes begin; otherwise drawn.
    #[arg(long, value_name = "N", requires = "address")]
    pub(crate) seed: Option<u64>,

    /// Seconds to wait for the server, at each step.
    #[arg(long, value_name = "S", default_value_t = 30, requires = "address")]
    deadline: u64,

    /// For tests: the server alters one byte of each request.
    #[arg(long, hide = true, conflicts_with = "address")]
    pub(crate) alter_byte: bool,

    /// For tests: the client asks once more after so many requests, and then does nothing, not even
    /// poll.
    #[arg(long, hide = true, requires = "address")]
    pub(crate) rest_after: Option<u32>,

    /// For tests: the client names one page too many.
    #[arg(long, hide = true, requires = "address")]
    pub(crate) add_index: Option<AddIndex>,
}

/// Which page is one too many.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum AddIndex {
    /// The first one, again.
    Repeated,
    /// The one behind the last that a region has.
    Outside,
}

impl Args {
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_secs(self.deadline)
    }
}
