//! The agent: a process that serves one client of `farreach serve`. The client's connection is its
//! standard input.
//!
//! Each client has a process of its own. A library that crashes ends only that process, and all
//! resources of a test (queue pairs, regions, descriptors) are released when the process ends.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result};
use farreach::Engine;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::Deserialize;

use crate::cmd::{bench, blast, chip, doctor, fill, ping};
use crate::exit::{Exit, Failure};
use crate::native::Cards;
use crate::rails::Wish;
use crate::session::{
    self, Channel, Line, Order, SECRET_FILE, Security, SecurityArgs, Welcome, host_name, is_loopback,
};
use crate::{interrupt, measure, terminal};

/// The arguments that `farreach serve` passes to an agent.
#[derive(Debug, clap::Args)]
pub(crate) struct AgentArgs {
    /// The rails that the server offers
    #[arg(long, value_delimiter = ',')]
    pub(crate) rails: Vec<String>,

    /// The GID index of the server
    #[arg(long)]
    pub(crate) gid_index: Option<u32>,

    #[command(flatten)]
    pub(crate) security: SecurityArgs,

    /// Allow clear text beyond this host
    #[arg(long)]
    pub(crate) insecure: bool,
}

impl AgentArgs {
    fn security(&self) -> Security {
        Security::of(&self.security, self.insecure)
    }
}

/// The task of a client, by the name of its command.
#[derive(Debug, Deserialize)]
enum Task {
    Bench(bench::Task),
    Blast(blast::Task),
    Fill(fill::Task),
    Chip(chip::Task),
    Doctor(doctor::Task),
    Ping(ping::Task),
}

impl Task {
    /// Returns the name of the command, for the log.
    fn name(&self) -> &'static str {
        match self {
            Self::Bench(_) => "bench",
            Self::Blast(_) => "blast",
            Self::Fill(_) => "fill",
            Self::Chip(_) => "chip",
            Self::Doctor(_) => "doctor",
            Self::Ping(_) => "ping",
        }
    }
}

/// How long the client's rails may take to be ready.
const RAIL_PATIENCE: Duration = Duration::from_secs(20);

/// The exit code of an agent without an order: the connection was not a client, or closed before.
pub(crate) const WITHOUT_ORDER: Exit = Exit::PeerLost;

/// Serves a client, and logs one line.
pub(crate) fn run(args: &AgentArgs) -> Result<Exit> {
    // The agent ends with its server. The call cannot fail here: the signal is valid.
    let _ = set_parent_process_death_signal(Some(Signal::TERM));
    interrupt::watch().context("cannot set up signal handling")?;
    measure::sleep_exactly();
    let stdin = std::io::stdin();
    let stream =
        TcpStream::from(stdin.as_fd().try_clone_to_owned().context("cannot duplicate standard input")?);
    let Ok(client) = stream.peer_addr() else {
        return Err(Failure::new(
            WITHOUT_ORDER,
            "standard input is not a socket, or its connection is closed",
        )
        .fix("start the server, which starts the agents:\nfarreach serve")
        .into());
    };
    let client = SocketAddr::new(client.ip().to_canonical(), client.port());
    let mut line = Line::new(stream).context("cannot configure the connection")?;
    let (ended, exit) = match handshake(args, &mut line) {
        Ok(order) => (serve(args, line, &order, client), Exit::Failed),
        Err(error) => {
            // The client learns why from the alert or the message that was sent last.
            line.linger();
            (Err(error), WITHOUT_ORDER)
        }
    };
    match &ended {
        Ok(what) => log(client, what),
        Err(error) => log(client, &Failure::of(error).sentence()),
    }
    Ok(if ended.is_ok() { Exit::Ok } else { exit })
}

fn log(client: SocketAddr, what: &str) {
    terminal::log(&format!("{client}: {what}"));
}

/// Does the handshake, and returns the client's order.
fn handshake(args: &AgentArgs, line: &mut Line) -> Result<Order<Task>> {
    let welcome = Welcome {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host: host_name(),
        offers: Wish::of(&args.rails),
    };
    let security = args.security();
    if let Some(tls) = security.open()? {
        line.secure_as_server(&tls, &security)?;
    }
    Ok(session::handshake(line, &welcome)?)
}

/// Returns why a client may not examine this host, if it may not.
///
/// A diagnosis is an inventory of the host: its devices, routes and firewall. It is given over TLS,
/// where the client has shown who it is, and to clients on this host. `--insecure` allows tests, not
/// this.
fn not_examined(is_tls: bool, client: SocketAddr) -> Option<Failure> {
    (!is_tls && !is_loopback(client.ip())).then(|| {
        Failure::new(Exit::PeerLost, "it can be examined over TLS only")
            .cause(format!(
                "a diagnosis is an inventory of the host, and the connection with {} is in clear text; --insecure does \
                 not allow it",
                client.ip()
            ))
            .fix(format!(
                "make a secret, copy it, and start both sides with it:\n\
                 farreach secret new {SECRET_FILE}\n\
                 farreach serve --secret-file {SECRET_FILE}\n\
                 farreach doctor PEER --secret-file {SECRET_FILE}"
            ))
    })
}

/// Serves the order. Returns the result for the log.
fn serve(args: &AgentArgs, mut line: Line, order: &Order<Task>, client: SocketAddr) -> Result<String> {
    let here = line.stream().local_addr().context("cannot read the address of the connection")?;
    if let Task::Doctor(task) = &order.task
        && let Some(refusal) = not_examined(line.is_tls(), client)
    {
        doctor::refuse(&mut line, task, &refusal)?;
        line.linger();
        return Err(refusal.into());
    }
    if let Task::Doctor(task) = &order.task
        && task.is_without_engine()
    {
        log(client, &format!("doctor from {}: {}", order.host, task.words()));
        doctor::answer(&mut line, task, &args.rails, args.gid_index)?;
        return Ok("doctor finished".to_owned());
    }
    let engine = match open(args, order, here) {
        Ok(engine) => engine,
        Err(error) => {
            let failure = Failure::of(&error);
            line.send(&Err::<(), _>(&failure))?;
            return Err(error);
        }
    };
    line.send(&Ok::<_, Failure>(()))?;
    let peer = engine.accept_over(line.into_control())?.wait(RAIL_PATIENCE)?;
    let channel = Channel::of_agent(peer);
    let over = channel.peer.rails().join(", ");
    log(client, &format!("{} from {} over {over}", order.task.name(), order.host));
    match perform(args, &engine, &channel, order) {
        Ok(()) => {
            channel.linger();
            Ok(format!("{} finished", order.task.name()))
        }
        Err(error) => {
            let error = channel.explained(error);
            // The peer may be lost, and then nothing can be sent.
            let _ = channel.send_failure(&Failure::of(&error));
            Err(error.context(format!("{} failed", order.task.name())))
        }
    }
}

/// Opens the engine that the client's engine connects to.
fn open(args: &AgentArgs, order: &Order<Task>, here: SocketAddr) -> Result<Engine> {
    order.rails.tuning.pin_server()?;
    let rails = order.rails.among(&args.rails, here);
    let mut settings = order.engine.settings().rails(rails).name(host_name());
    if let Some(index) = args.gid_index {
        settings = settings.gid_index(index);
    }
    if args.security().allows_clear_text() {
        settings = settings.insecure();
    }
    Ok(Engine::with(order.rails.tuning.apply(settings))?)
}

fn perform(args: &AgentArgs, engine: &Engine, channel: &Channel, order: &Order<Task>) -> Result<()> {
    let cards = || Cards::of(engine, args.gid_index).tuned(order.rails.tuning);
    match &order.task {
        Task::Bench(task) => bench::serve(engine, &cards(), channel, task),
        Task::Blast(task) => blast::serve(engine, channel, task),
        Task::Fill(task) => fill::serve(engine, channel, task),
        Task::Chip(task) => chip::serve(engine, &cards(), channel, task),
        Task::Ping(task) => ping::serve(engine, channel, task),
        // All other tasks of `doctor` are done without an engine.
        Task::Doctor(_) => doctor::serve(engine, channel),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_examined_over_tls_or_from_itself() {
        for (client, is_examined) in [
            ("127.0.0.1:7", true),
            ("[::1]:7", true),
            ("10.0.0.8:7", false),
            ("[fe80::8]:7", false),
            ("0.0.0.0:7", false),
        ] {
            let client = client.parse().expect("an address");
            assert_eq!(not_examined(false, client).is_none(), is_examined, "{client}");
            assert_eq!(not_examined(true, client), None);
        }
        let refusal = not_examined(false, ([10, 0, 0, 8], 7).into()).expect("it is refused");
        let fix = refusal.fix.unwrap_or_default();
        let commands: Vec<&str> = fix.lines().filter(|line| line.starts_with("farreach ")).collect();
        assert_eq!(commands.len(), 3, "each command is alone on its line: {fix}");
    }
}
