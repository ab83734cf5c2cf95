//! `farreach serve`: the other side of every test, for many clients at once.
//!
//! It does the handshake with each client, and lets clients wait if there are too many. Each client
//! is served by an [agent](crate::agent), a process of its own, which gets the connection with the
//! order. So no client can block another one, or crash the server.

mod agents;
mod budget;
mod connection;
mod handshakes;
mod journal;
mod queue;
mod refusal;
mod scout;
mod server;

use std::net::{AddrParseError, IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::str::FromStr;

use anyhow::{Context, Result};

use crate::exit::{Exit, Failure};
use crate::rails::{Found, RailArgs};
use crate::session::{PeerAddress, Security, SecurityArgs};
use crate::{interrupt, terminal};

use agents::Agents;
use budget::{Budget, BudgetArgs};
use server::{Server, ServerSecurity};

pub(crate) use scout::run as scout;

/// `farreach serve`
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// Port to listen on; 0 for any free port
    #[arg(short, long, value_name = "PORT", default_value_t = PeerAddress::DEFAULT_PORT)]
    port: u16,

    /// Listen on this address only. A port after it is used instead of -p
    #[arg(short, long, value_name = "ADDRESS[:PORT]")]
    listen: Option<ListenAddress>,

    #[command(flatten)]
    rails: RailArgs,

    #[command(flatten)]
    security: SecurityArgs,

    /// Serve clients on other hosts without TLS. Anyone who reaches the port can run tests on this host. Only for
    /// networks that you trust
    #[arg(long, conflicts_with_all = ["tls", "secret_file"])]
    insecure: bool,

    /// Serve one client, then exit: with 0 if its test succeeded, else with 1. Connections that start no test do not count
    #[arg(long)]
    once: bool,

    #[command(flatten)]
    budget: BudgetArgs,

    /// Offer these rails without looking for them: for tests of the handshake on hosts without libraries
    #[arg(long, hide = true, value_delimiter = ',')]
    offer: Vec<String>,
}

const EXAMPLES: &str = "\
Examples:
  farreach serve --secret-file farreach.secret   on all addresses, all rails
  farreach serve --tls farreach-tls -d mlx5_0    with certificates, one card
  farreach serve --listen 127.0.0.1              clients on this host only

The server takes no test parameters: the client sends them. Clients on other
hosts need TLS: the secret, or a certificate of the CA. farreach secret and
farreach tls make both. Ctrl-C or SIGTERM stops the server.
Exit code: 0 stopped by a signal; 1 cannot listen, or with --once the test
failed; 2 TLS is needed; 3 no rail to offer.";

/// Serves until a signal ends the process, or with `--once` until its client is served.
pub(crate) fn run(args: &ServeArgs) -> Result<Exit> {
    interrupt::watch().context("cannot set up signal handling")?;
    // Errors are reported now, not to the first client. Rails come last, because enumerating them
    // is slow.
    let security = ServerSecurity::open(Security::of(&args.security, args.insecure))?;
    let listener = listen(args, security.choice())?;
    security.warn();
    let rails = match &args.offer[..] {
        [] => scout::send(&args.rails)?,
        names => names.iter().map(|name| assumed(name)).collect(),
    };
    let address = listener.local_addr().context("cannot read the address of the listener")?;
    let budget = Budget::new(&args.budget, args.once);
    terminal::print(&startup_lines(address, &rails))?;
    let names = rails.into_iter().map(|rail| rail.name).collect();
    let RailArgs { gid_index, shm_dir, .. } = args.rails.clone();
    let agents = Agents::new(names, gid_index, shm_dir, security.choice().clone(), budget.test_time);
    Server::new(listener, security, budget, args.once, agents)?.run()
}

/// The value of `--listen`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ListenAddress {
    ip: IpAddr,
    port: Option<u16>,
}

impl FromStr for ListenAddress {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Self, AddrParseError> {
        match text.parse::<SocketAddr>() {
            Ok(address) => Ok(Self { ip: address.ip(), port: Some(address.port()) }),
            Err(_) => Ok(Self { ip: text.parse()?, port: None }),
        }
    }
}

fn listen(args: &ServeArgs, security: &Security) -> Result<TcpListener, Failure> {
    let port = args.listen.and_then(|address| address.port).unwrap_or(args.port);
    let addresses: Vec<SocketAddr> = match args.listen {
        Some(address) => vec![(address.ip, port).into()],
        // The first address serves both families, if the kernel has IPv6.
        None => vec![(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()],
    };
    let place = args
        .listen
        .map_or_else(|| format!("port {port}"), |address| SocketAddr::new(address.ip, port).to_string());
    security.check_listener(addresses[0].ip(), &place, args.listen.is_some())?;
    let listener = TcpListener::bind(&addresses[..]).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listener.map_err(|error| {
        let failure = Failure::new(Exit::Failed, format!("cannot listen on {place}")).cause(error.to_string());
        match error.kind() {
            std::io::ErrorKind::AddrInUse => failure.fix(format!(
                "choose another port with -p, or stop the program that listens there; to find it:\nss -tlnp sport = :{port}"
            )),
            std::io::ErrorKind::PermissionDenied => {
                failure.fix("ports below 1024 need root: choose another port with -p")
            }
            _ => failure.fix("choose an address of this host; to list them:\nip addr"),
        }
    })
}

/// Returns a rail that was not looked for.
fn assumed(name: &str) -> Found {
    Found { name: name.to_owned(), through: "not looked for".to_owned(), is_rdma: false }
}

fn startup_lines(address: SocketAddr, rails: &[Found]) -> String {
    let place = if address.ip().is_unspecified() {
        let which = if address.is_ipv4() { "every IPv4 address" } else { "every address" };
        format!("port {}, {which}", address.port())
    } else {
        address.to_string()
    };
    let rows = rails.iter().map(|rail| {
        let is_rdma = if rail.is_rdma { "yes" } else { "no" };
        vec![rail.name.clone(), is_rdma.to_owned(), rail.through.clone()]
    });
    let table = terminal::table(&["RAIL", "RDMA", "VIA"], rows, terminal::width());
    format!("listening on {place}\n{table}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If another process has the IPv6 port, the server listens on IPv4 only.
    #[test]
    fn an_address_to_listen_on_may_have_a_port() {
        let parsed = |text: &str| text.parse::<ListenAddress>().map(|it| (it.ip.to_string(), it.port));
        assert_eq!(parsed("192.0.2.1"), Ok(("192.0.2.1".to_owned(), None)));
        assert_eq!(parsed("192.0.2.1:7777"), Ok(("192.0.2.1".to_owned(), Some(7777))));
        assert_eq!(parsed("::1"), Ok(("::1".to_owned(), None)));
        assert_eq!(parsed("[::1]:7777"), Ok(("::1".to_owned(), Some(7777))));
        assert!(parsed("storage-7").is_err() && parsed("192.0.2.1:").is_err());
    }

    #[test]
    fn it_says_of_which_addresses_it_has_all() {
        for (address, told) in [
            ("[::]:99", "listening on port 99, every address\n"),
            ("0.0.0.0:99", "listening on port 99, every IPv4 address\n"),
            ("127.0.0.1:99", "listening on 127.0.0.1:99\n"),
        ] {
            assert!(startup_lines(address.parse().expect(address), &[]).starts_with(told), "{address}");
        }
    }
}
