//! Exchanges messages over the connection manager: a client, a listener, and a thread for each
//! client.
//!
//! ```console
//! $ ping_pong serve
//! $ ping_pong HOST --wait poll --events nonblocking
//! ```
//!
//! A program waits for two kinds of things: completions (`--wait`) and events of the connection
//! (`--events`). Each has three ways to wait; all nine combinations do the same.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::thread;

use common::end::{End, Events, Wait};
use common::{Arguments, Failure, check, deadline, fill, is_filled, resolve};
use farreach_verbs::cm::{
    CmEvent, CmId, CmParameters, ConnectionRequest, Error, EventChannel, EventKind, Listener, PortSpace,
};

mod common;

const USAGE: &str = "usage: ping_pong serve [--port P] [--count-clients N]
       ping_pong HOST [--port P] [--size N] [--count N] [--wait busy|channel|poll]
                 [--events blocking|thread|nonblocking]";
const OPTIONS: [&str; 6] = ["--port", "--count-clients", "--size", "--count", "--wait", "--events"];
const PORT: u16 = 18531;
/// The largest message, which limits the memory that a client can make the server allocate.
const SIZE_MAX: u32 = 1 << 20;

fn main() -> ExitCode {
    common::run(USAGE, &OPTIONS, |arguments| {
        let port = arguments.option("--port")?.unwrap_or(PORT);
        match arguments.needed()? {
            "serve" => serve(port, arguments.option("--count-clients")?),
            host => visit(resolve(host, port)?, arguments),
        }
    })
}

/// The parameters that both sides must agree on. The connect request carries them in network order.
#[derive(Clone, Copy)]
struct Plan {
    size: u32,
    count: u32,
}

impl Plan {
    fn to_bytes(self) -> Vec<u8> {
        [self.size.to_be_bytes(), self.count.to_be_bytes()].concat()
    }

    /// Decodes the parameters. Returns `None` if the size is not allowed.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let plan = Self { size: word(0)?, count: word(4)? };
        (1..=SIZE_MAX).contains(&plan.size).then_some(plan)
    }
}

/// Listens, and starts a thread for each request; for ever, unless a number of clients is given.
fn serve(port: u16, clients: Option<usize>) -> Result<(), Failure> {
    let listener = Listener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))?;
    let mut agents = Vec::new();
    while clients.is_none_or(|clients| agents.len() < clients) {
        let request = match listener.wait_request(deadline()) {
            Err(Error::TimedOut { .. }) if clients.is_none() => continue,
            other => other?,
        };
        // Each thread prints its own failure, while others are served.
        agents.push(thread::spawn(move || serve_one(request).map_err(|failure| failure.tell()).is_ok()));
        if clients.is_none() {
            agents.retain(|agent| !agent.is_finished());
        }
    }
    // Joins all threads, even after a failure.
    let served = agents.into_iter().filter_map(|agent| agent.join().ok().filter(|is_served| *is_served));
    match clients.unwrap_or(0) - served.count() {
        0 => Ok(()),
        count => Err(Failure::new(
            format!("{count} clients were not served"),
            "see the messages above",
            "resolve the causes above",
        )),
    }
}

/// Serves one client. The thread owns the connection, and a channel for its events.
fn serve_one(request: ConnectionRequest) -> Result<(), Failure> {
    let Some(plan) = Plan::from_bytes(request.private_data()) else {
        request.reject(b"no such size")?;
        return Err(Failure::wrong_bytes("the connect request"));
    };
    let mut end = End::new(&request.context()?, plan.size as usize, Wait::Channel)?;
    request.prepare(&end.qp)?;
    // Before accepting: the client may send as soon as it has the response.
    end.post_recv()?;
    let connection = request.accept(&end.qp, &CmParameters::new(), deadline())?;
    for message in 0..plan.count {
        check(is_filled(end.recv(&Events::NotNow)?, message), "a ping")?;
        // The receive for the next ping is posted before the pong that the client answers.
        end.post_recv()?;
        end.send(&Events::NotNow, |bytes| fill(bytes, !message))?;
    }
    end.finish_sending(&Events::NotNow)?;
    connection.wait_disconnected(deadline())?;
    println!("served {} messages of {} bytes", plan.count, plan.size);
    Ok(())
}

/// The client.
fn visit(server: SocketAddr, arguments: &Arguments) -> Result<(), Failure> {
    let size = arguments.number("--size", 64, 1..=SIZE_MAX)?;
    let plan = Plan { size, count: arguments.number("--count", 100, 0..=u32::MAX)? };
    let channel = EventChannel::new()?;
    let events = match arguments.one_of("--events", &["blocking", "thread", "nonblocking"])? {
        "blocking" => Events::Blocking(channel.clone()),
        "thread" => Events::on_a_thread(&channel)?,
        _ => Events::NonBlocking(channel.clone()),
    };
    let wait = match arguments.one_of("--wait", &["channel", "busy", "poll"])? {
        "busy" => Wait::Busy,
        "channel" => Wait::Channel,
        _ => Wait::Poll,
    };

    // Every step is started by a call, and answered by an event.
    let id = channel.create_id(PortSpace::Tcp)?;
    id.resolve_addr(None, server, deadline())?;
    expect(&events, EventKind::AddressResolved)?;
    id.resolve_route(deadline())?;
    expect(&events, EventKind::RouteResolved)?;
    // Only now is the device known.
    let mut end = End::new(&id.context()?, plan.size as usize, wait)?;
    id.init_qp(&end.qp)?;
    end.post_recv()?;
    let hello = CmParameters::new().with_private_data(plan.to_bytes());
    id.connect(&CmParameters { qp_num: end.qp.qp_num(), ..hello })?;
    expect(&events, EventKind::ConnectResponse)?;
    id.ready_qp(&end.qp, &CmParameters::new())?;
    id.establish()?;

    for message in 0..plan.count {
        end.send(&events, |bytes| fill(bytes, message))?;
        check(is_filled(end.recv(&events)?, !message), "a pong")?;
        // The server answers only what was sent, so this is early enough for the next pong.
        end.post_recv()?;
    }
    end.finish_sending(&events)?;
    disconnect(&id, &events)?;
    println!("{} round trips of {} bytes", plan.count, plan.size);
    Ok(())
}

fn disconnect(id: &CmId, events: &Events) -> Result<(), Failure> {
    id.disconnect()?;
    expect(events, EventKind::Disconnected).map(drop)
}

/// Returns the next event, which must be of this kind. Any other one is a failure.
fn expect(events: &Events, kind: EventKind) -> Result<CmEvent, Failure> {
    let event = events.wait(deadline())?;
    if event.kind() == kind {
        return Ok(event);
    }
    Err(event.failure().map_or_else(
        || Failure::new(format!("{} instead of {kind}", event.kind()), "the handshake failed", "try again"),
        Failure::from,
    ))
}
