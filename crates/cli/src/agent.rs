//! The agent: a process that serves one client of `farreach serve`.
//!
//! Each client has a process of its own. A library that crashes ends only that process, and all
//! resources of a test (queue pairs, regions, descriptors) are released when the process ends.
//!
//! The server has done the handshake and checked the order. The agent gets both, with the client's
//! connection, over its standard input ([`handover`]).

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use farreach::Engine;
use rustix::process::{
    Pid, Resource, Rlimit, Signal, getppid, getrlimit, set_parent_process_death_signal, setrlimit, setsid,
};
use serde::Deserialize;

use crate::cmd::{bench, blast, chip, doctor, fill, ping};
use crate::exit::{Exit, Failure};
use crate::native::Cards;
use crate::session::{Channel, Line, Order, Security, SecurityArgs, host_name};
use crate::units::parse;
use crate::{bounds, handover, interrupt, measure, terminal};

/// The arguments that `farreach serve` passes to an agent.
#[derive(Debug, clap::Args)]
pub(crate) struct AgentArgs {
    /// The rails that the server offers
    #[arg(long, value_delimiter = ',')]
    pub(crate) rails: Vec<String>,

    /// The GID index of the server
    #[arg(long)]
    pub(crate) gid_index: Option<u32>,

    /// The directory of the server for shm
    #[arg(long)]
    pub(crate) shm_dir: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) security: SecurityArgs,

    /// Allow clear text beyond this host
    #[arg(long)]
    pub(crate) insecure: bool,

    /// The process id of the server
    #[arg(long)]
    pub(crate) server: Option<i32>,

    /// The memory that the order needs, in bytes
    #[arg(long)]
    pub(crate) memory: Option<u64>,

    /// The longest time of a test
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = parse::seconds_of)]
    pub(crate) test_time: Duration,
}

/// Longer than any test.
const YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// What an agent needs besides the time of its test: for its rails, the warm-up, and the results.
const BESIDES_MAX: Duration = Duration::from_secs(30);

/// Returns the time of an agent whose test may take so long.
pub(crate) fn time_of(test_time: Duration) -> Duration {
    test_time.saturating_add(test_time.min(BESIDES_MAX))
}

impl AgentArgs {
    fn security(&self) -> Security {
        Security::of(&self.security, self.insecure)
    }
}

/// The task of a client, by the name of its command.
#[derive(Debug, Deserialize)]
pub(crate) enum Task {
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

    /// Returns an error unless every number is within its bound.
    fn check(&self) -> Result<(), Failure> {
        match self {
            Self::Bench(_) => Ok(()),
            Self::Blast(task) => task.check(),
            Self::Fill(task) => task.check(),
            Self::Chip(task) => task.check(),
            Self::Doctor(task) => task.check(),
            Self::Ping(task) => task.check(),
        }
    }

    /// Returns the memory that the agent needs for the task, besides its engine.
    fn memory_bytes(&self) -> u64 {
        match self {
            Self::Bench(task) => task.memory_bytes(),
            Self::Blast(task) => task.memory_bytes(),
            Self::Fill(task) => task.memory_bytes(),
            Self::Chip(task) => task.memory_bytes(),
            Self::Doctor(task) => task.memory_bytes(),
            Self::Ping(task) => task.memory_bytes(),
        }
    }
}

impl Order<Task> {
    /// Checks every number of an order against its bound, and returns the memory that the order
    /// needs. `rails` are those of the server; `memory_max` is the memory that a client may have.
    ///
    /// The server calls this before anything else is done with an order.
    pub(crate) fn check(&self, rails: &[String], memory_max: u64) -> Result<u64, Failure> {
        self.check_frame()?;
        self.task.check()?;
        if !self.rails.has_any(rails) && !self.is_without_engine() {
            // An engine without names would open every rail of the host.
            return Err(Failure::new(Exit::Unavailable, "the order names no rail of the server")
                .cause(format!("the rails of the server are {}", rails.join(", ")))
                .fix("name one of them with -d"));
        }
        let messages = self.engine.memory_bytes(self.rails.receive_buffers(rails));
        let needed = AGENT_BYTES.saturating_add(messages).saturating_add(self.task.memory_bytes());
        bounds::check_memory(needed, memory_max)?;
        Ok(needed)
    }

    /// Returns whether the task is done on the connection itself.
    fn is_without_engine(&self) -> bool {
        matches!(&self.task, Task::Doctor(task) if task.is_without_engine())
    }
}

/// The memory of an agent without its messages and its task: libraries, stacks, queues.
pub(crate) const AGENT_BYTES: u64 = 48 << 20;

/// What an agent may map beyond twice the memory of its order: address space that libraries reserve
/// and hardly touch, such as stacks of threads and arenas of the allocator. Twice, because a card's
/// receive buffers exist as old and new ones for a moment after a lost link. The server limits the
/// memory that is in use.
const RESERVED_BYTES: u64 = 1 << 30;

/// The descriptors of an agent. A test over 128 queue pairs has one for each, and a rail has some
/// dozen.
const DESCRIPTORS_MAX: u64 = 2048;

/// The kernel prefers processes with a high value when memory is short, so that an agent ends before
/// the server or another program of the host.
const OOM_SCORE_ADJ: &str = "500";

/// How long the client's rails may take to be ready.
const RAIL_PATIENCE: Duration = Duration::from_secs(20);

/// The exit code of an agent that did not begin a test: its client has left, or the TLS handshake
/// failed.
pub(crate) const WITHOUT_TEST: Exit = Exit::PeerLost;

/// Serves a client, and logs one line.
pub(crate) fn run(args: &AgentArgs) -> Result<Exit> {
    if !confine(args)? {
        return Ok(WITHOUT_TEST);
    }
    interrupt::watch().context("cannot set up signal handling")?;
    measure::sleep_exactly();
    let Ok((order, stream)) = handover::recv_order(std::io::stdin()) else {
        return Err(Failure::new(WITHOUT_TEST, "standard input is not a server")
            .cause("no order and no connection came from it")
            .fix("start the server, which starts the agents:\nfarreach serve")
            .into());
    };
    let Ok(client) = stream.peer_addr() else { return Ok(WITHOUT_TEST) };
    let client = SocketAddr::new(client.ip().to_canonical(), client.port());
    let begun = Instant::now();
    let (ended, exit) = match prepare(args, &order, stream) {
        Ok(prepared) => (serve(args, prepared, client, begun), Exit::Failed),
        Err(error) => (Err(error), WITHOUT_TEST),
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

/// Limits what this process may use, before it reads anything of a client. Returns `false` if the
/// server has already ended.
fn confine(args: &AgentArgs) -> Result<bool> {
    // The agent ends with its server, also if it is stopped at that time. The call cannot fail
    // here: the signal is valid.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    if args.server.is_some() && getppid().map(Pid::as_raw_nonzero).map(i32::from) != args.server {
        return Ok(false);
    }
    // In a session of its own, a signal from the server's terminal does not reach the agent, and the
    // scheduler gives each agent one share of the CPUs, however many threads it has (autogroup).
    // This fails if the process leads a group, as when a shell has started it.
    let _ = setsid();
    // Not every container has the file.
    let _ = fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJ);
    let limit = |resource, most: u64| {
        let hard = getrlimit(resource).maximum.unwrap_or(u64::MAX).min(most);
        setrlimit(resource, Rlimit { current: Some(hard), maximum: Some(hard) })
            .with_context(|| format!("cannot limit {resource:?} to {most}"))
    };
    // Clients could fill the disk with dumps.
    limit(Resource::Core, 0)?;
    limit(Resource::Nofile, DESCRIPTORS_MAX)?;
    if let Some(memory) = args.memory {
        limit(Resource::Data, memory.saturating_mul(2).saturating_add(RESERVED_BYTES))?;
    }
    Ok(true)
}

/// An order that an engine was opened for, if it needs one, with the client's connection.
struct Prepared {
    order: Order<Task>,
    line: Line,
    engine: Option<Result<Engine>>,
}

/// Opens the engine, and does the TLS handshake.
///
/// The engine is first, because it does not depend on the client: the server starts few agents at a
/// time, and a client must not delay others.
fn prepare(args: &AgentArgs, order: &[u8], stream: TcpStream) -> Result<Prepared> {
    let order: Order<Task> = serde_json::from_slice(order).context("cannot parse the order")?;
    let here = stream.local_addr().context("cannot read the address of the connection")?;
    let engine = (!order.is_without_engine()).then(|| open(args, &order, here));
    // If the server is gone, this process ends with it.
    let _ = handover::tell_opened(std::io::stdin());
    let mut line = Line::new(stream).context("cannot configure the connection")?;
    let security = args.security();
    if let Some(tls) = security.open()?
        && let Err(failure) = line.secure_as_server(&tls, &security)
    {
        // The client learns why from the alert that was sent last.
        line.linger();
        return Err(failure.into());
    }
    Ok(Prepared { order, line, engine })
}

/// Serves the order. Returns the result for the log.
fn serve(args: &AgentArgs, prepared: Prepared, client: SocketAddr, begun: Instant) -> Result<String> {
    let Prepared { order, mut line, engine } = prepared;
    if let Task::Doctor(task) = &order.task
        && task.is_without_engine()
    {
        log(client, &format!("doctor from {}: {}", order.host, task.words()));
        doctor::answer(&mut line, task, &args.rails, args.gid_index, args.shm_dir.as_deref())?;
        return Ok("doctor finished".to_owned());
    }
    let engine = match engine.context("the order has no engine")? {
        Ok(engine) => engine,
        Err(error) => {
            let failure = Failure::of(&error);
            line.send(&Err::<(), _>(&failure))?;
            return Err(error);
        }
    };
    line.send(&Ok::<_, Failure>(()))?;
    let peer = engine.accept_over(line.into_control())?.wait(RAIL_PATIENCE)?;
    // No clock counts to the end of the longest times.
    let deadline = begun.checked_add(time_of(args.test_time)).unwrap_or(begun + YEARS);
    let channel = Channel::of_agent(peer, deadline, args.test_time);
    let over = channel.peer.rails().join(", ");
    log(client, &format!("{} from {} over {over}", order.task.name(), order.host));
    match perform(args, &engine, &channel, &order) {
        Ok(()) => {
            channel.linger();
            Ok(format!("{} finished", order.task.name()))
        }
        Err(error) => {
            let error = channel.explained(error);
            // The peer may be lost, and then nothing can be sent.
            let _ = channel.send_failure(&error);
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
    if let Some(path) = &args.shm_dir {
        settings = settings.shm_dir(path);
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
    use serde_json::{Value, json};

    use super::*;

    const MEMORY: u64 = 8 << 30;

    fn order(task: Value) -> Value {
        json!({
            "version": "0.1.0",
            "host": "storage-7",
            "rails": { "cards": false, "providers": ["tcp"] },
            "engine": { "wait": "adaptive", "depth": 128, "messages": 256, "message_bytes_max": 4096 },
            "test": 7,
            "connections": 1,
            "task": task,
        })
    }

    fn tasks() -> Vec<Value> {
        vec![
            json!({ "Ping": { "operation": "write", "sizes": [64], "seed": 1, "alter_byte": false } }),
            json!({ "Fill": { "page_bytes": 4096, "pages": 8, "regions": 2, "seed": 1, "alter_byte": false } }),
            json!({ "Blast": {
                "operation": "write", "direction": "to_server", "message_bytes": 4096, "depth": 16,
                "count": null, "seed": 1, "alter_byte": false,
            } }),
            json!({ "Chip": {
                "host_memory": true, "size_bytes": 4096, "clients": 8, "wait": "adaptive", "seed": 1,
            } }),
            json!({ "Bench": { "memory_bytes": 4096 } }),
            json!({ "Doctor": "Look" }),
            json!({ "Doctor": "Engine" }),
            json!({ "Doctor": { "Cards": { "server": "rxe0", "client": "rxe0" } } }),
        ]
    }

    fn check(order: &Value) -> Result<u64, Failure> {
        let order: Order<Task> = serde_json::from_value(order.clone()).expect("an order");
        order.check(&["tcp".to_owned()], MEMORY)
    }

    #[test]
    fn orders_of_every_command_are_within_the_bounds() {
        for task in tasks() {
            let memory = check(&order(task.clone())).unwrap_or_else(|failure| panic!("{task}: {failure:?}"));
            assert!((AGENT_BYTES..AGENT_BYTES + (80 << 20)).contains(&memory), "{task}: {memory}");
        }
    }

    /// Every number of an order, at its limit and one past it. None of them panics, whatever it is.
    #[test]
    fn each_number_of_an_order_has_a_bound() {
        let tasks = tasks();
        let cases: [(usize, &str, u64, &str); 12] = [
            (0, "/engine/depth", 4096, "a depth of"),
            (0, "/engine/messages", 256, "a number of message slots of"),
            (0, "/engine/message_bytes_max", 1 << 20, "a message size in bytes of"),
            (0, "/connections", 256, "a number of connections of"),
            (0, "/task/Ping/sizes/0", 1 << 30, "a size in bytes of"),
            (1, "/task/Fill/page_bytes", 1 << 40, "a transfer size in bytes of"),
            (1, "/task/Fill/pages", 1 << 28, "a number of pages of"),
            (1, "/task/Fill/regions", 64, "a number of regions of"),
            (2, "/task/Blast/message_bytes", 1 << 40, "a transfer size in bytes of"),
            (2, "/task/Blast/depth", 4096, "a depth of"),
            (3, "/task/Chip/size_bytes", 1 << 30, "a memory size in bytes of"),
            (3, "/task/Chip/clients", 128, "a number of lock clients of"),
        ];
        for (task, place, limit, told) in cases {
            let with = |number: u64| {
                let mut order = order(tasks[task].clone());
                *order.pointer_mut(place).expect(place) = number.into();
                // A number that does not fit its field is no order at all.
                let order = serde_json::from_value::<Order<Task>>(order);
                order.ok().map(|order| order.check(&["tcp".to_owned()], u64::MAX))
            };
            assert!(matches!(with(limit), Some(Ok(_))), "{place} {limit}");
            for number in [0, limit + 1, u32::MAX.into(), 1 << 62, u64::MAX] {
                let Some(checked) = with(number).filter(|_| !(1..=limit).contains(&number)) else { continue };
                let failure = checked.expect_err(place);
                assert!(failure.error.ends_with(&format!("{told} {number}")), "{place}: {failure:?}");
                assert!(failure.cause.is_some_and(|cause| cause.contains(&limit.to_string())));
                assert_eq!(failure.exit, Exit::Usage);
            }
        }
    }

    #[test]
    fn the_memory_of_an_order_has_a_limit() {
        let rails = ["tcp".to_owned()];
        for task in tasks() {
            let order: Order<Task> = serde_json::from_value(order(task)).expect("an order");
            let needed = order.check(&rails, MEMORY).expect("little");
            assert_eq!(order.check(&rails, needed), Ok(needed), "at the limit");
            let failure = order.check(&rails, needed - 1).expect_err("one past it");
            assert_eq!(failure.exit, Exit::Unavailable);
            assert!(failure.error.contains("of the server's memory"), "{failure:?}");
        }
        // The largest numbers that are allowed do not overflow.
        for (task, places) in [
            (1, &["/task/Fill/page_bytes", "/task/Fill/pages", "/task/Fill/regions"][..]),
            (2, &["/task/Blast/message_bytes", "/task/Blast/depth"]),
            (4, &["/task/Bench/memory_bytes"]),
        ] {
            let mut order = order(tasks().remove(task));
            for (place, largest) in places.iter().zip([1_u64 << 40, 64, 64]) {
                *order.pointer_mut(place).expect(place) = largest.into();
            }
            assert!(check(&order).expect_err("a lot").error.contains("of the server's memory"));
        }
    }

    #[test]
    fn lists_and_names_of_an_order_have_bounds() {
        let ping = tasks().remove(0);
        let cases: [(&str, Value, Value, &str); 5] = [
            ("/host", "h".repeat(255).into(), "h".repeat(256).into(), "name length"),
            ("/version", "1".repeat(255).into(), "1".repeat(256).into(), "name length"),
            ("/rails/providers", vec!["tcp"; 64].into(), vec!["tcp"; 65].into(), "rail kinds"),
            ("/task/Ping/sizes", vec![8; 256].into(), vec![8; 257].into(), "number of sizes"),
            ("/task/Ping/sizes", vec![8].into(), Vec::<u64>::new().into(), "number of sizes"),
        ];
        for (place, allowed, beyond, told) in cases {
            let with = |value: Value| {
                let mut order = order(ping.clone());
                *order.pointer_mut(place).expect(place) = value;
                order
            };
            check(&with(allowed)).unwrap_or_else(|failure| panic!("{place}: {failure:?}"));
            let failure = check(&with(beyond)).expect_err(place);
            assert!(failure.error.contains(told), "{failure:?}");
        }
        let mut marked = order(ping.clone());
        marked["rails"]["tuning"] = json!({ "tclass": null, "sl": 16, "cpu": null });
        assert!(check(&marked).expect_err("four bits").error.contains("service level of 16"));
        let card = json!({ "Doctor": { "Cards": { "server": "r".repeat(256), "client": "" } } });
        assert!(check(&order(card)).is_err());
    }

    /// An engine without names would open every rail of the host, those too that the server does
    /// not offer.
    #[test]
    fn an_order_names_a_rail_of_the_server() {
        for rails in
            [json!({ "cards": false, "providers": [] }), json!({ "cards": true, "providers": ["efa"] })]
        {
            let mut order = order(tasks().remove(0));
            order["rails"] = rails;
            let failure = check(&order).expect_err("no rail");
            assert_eq!(failure.exit, Exit::Unavailable);
            assert!(failure.error.contains("names no rail of the server"), "{failure:?}");
        }
    }
}
