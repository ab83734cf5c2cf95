//! The event loop of a server: one thread, which never blocks on a client.
//!
//! ```text
//! accept ──▶ Handshakes ──order──▶ Queue ──place free──▶ Agents
//! ```
//!
//! Invariant: every connection is in exactly one of the three, under the number that it got when it
//! was accepted. Each of them has its budget ([`Budget`]).

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use farreach::{Origin, Tls};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl};

use super::agents::{Agents, REAP_EVERY};
use super::budget::Budget;
use super::connection::{Connection, Progress, message};
use super::handshakes::{Handshakes, Reached};
use super::journal::Journal;
use super::queue::{Group, Key, Queue};
use super::refusal::{self, Load};
use crate::agent::Task;
use crate::exit::{Exit, Failure};
use crate::interrupt::{self, GLANCE};
use crate::session::{Notice, Order, Security, Welcome, garbled, host_name, stopped};

/// A server that accepts clients.
#[derive(Debug)]
pub(super) struct Server {
    listener: TcpListener,
    epoll: OwnedFd,
    /// The welcome, as it is sent.
    welcome: Vec<u8>,
    security: ServerSecurity,
    budget: Budget,
    is_for_one: bool,
    handshakes: Handshakes<Connection>,
    queue: Queue<Waiting>,
    agents: Agents,
    journal: Journal,
    /// The number of the next connection.
    next: u64,
    /// A descriptor that is released to refuse a client when there is no other.
    spare: Option<OwnedFd>,
    /// Whether a client may have become the next to be served.
    is_dirty: bool,
    /// When the clients that wait were told their places.
    notified_at: Instant,
    /// When connections could not be accepted, and are left alone for a moment.
    paused_at: Option<Instant>,
}

/// A client that has sent its order.
#[derive(Debug)]
struct Waiting {
    connection: Connection,
    order: Vec<u8>,
    notified_at: Instant,
    /// The place that it was told.
    ahead: usize,
}

/// How the server's process secures its connections. Agents read certificates and secrets again when
/// they start.
#[derive(Debug)]
pub(super) struct ServerSecurity {
    choice: Security,
    /// What was read last; none for clear text.
    tls: Option<Tls>,
    read_at: Instant,
}

/// The interval at which certificates and secrets are read again, so that renewed ones come into use.
/// It is short because agents have the new ones at once.
const READ_EVERY: Duration = Duration::from_secs(1);

impl ServerSecurity {
    /// Reads the certificates or the secret.
    pub(super) fn open(choice: Security) -> Result<Self> {
        let tls = choice.open()?;
        Ok(Self { choice, tls, read_at: Instant::now() })
    }

    pub(super) fn choice(&self) -> &Security {
        &self.choice
    }

    /// Warns of a certificate that expires soon.
    pub(super) fn warn(&self) {
        if let Some(tls) = &self.tls {
            Security::warn_of_certificate(tls);
        }
    }

    /// Reads the certificates or the secret again if it is time. The old ones stay if that fails.
    fn refresh(&mut self, now: Instant) -> Result<()> {
        if self.tls.is_none() || now.saturating_duration_since(self.read_at) < READ_EVERY {
            return Ok(());
        }
        self.read_at = now;
        self.tls = self.choice.open()?;
        Ok(())
    }
}

/// What an event is about. The number of the connection is in the upper bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Listener,
    Connection(u64),
    /// The socket to an agent.
    Agent(u64),
    /// The connection of an agent's client.
    Client(u64),
}

impl Source {
    fn data(self) -> EventData {
        EventData::new_u64(match self {
            Self::Listener => 0,
            Self::Connection(number) => number << 2 | 1,
            Self::Agent(number) => number << 2 | 2,
            Self::Client(number) => number << 2 | 3,
        })
    }

    fn of(data: EventData) -> Self {
        let data = data.u64();
        match (data >> 2, data & 3) {
            (number, 1) => Self::Connection(number),
            (number, 2) => Self::Agent(number),
            (number, 3) => Self::Client(number),
            _ => Self::Listener,
        }
    }
}

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 1024;

/// Connections that are accepted before other events are handled.
const ACCEPTED_MAX: usize = 64;

/// Events that are handled at once.
const EVENTS_MAX: usize = 256;

/// The interval at which clients are told that their place has changed.
const NOTIFY_EVERY: Duration = Duration::from_secs(1);

/// The interval at which clients are told their place although it has not changed, which shows that
/// the server is there.
const REMIND_EVERY: Duration = Duration::from_secs(5);

/// How long nothing is accepted after that has failed.
const PAUSE: Duration = Duration::from_millis(100);

/// When the kernel asks whether a silent client is still there. Clients whose host has failed are
/// noticed after a minute, also if the agent is stopped.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);
const KEEPALIVE_COUNT: u32 = 3;

impl Server {
    pub(super) fn new(
        listener: TcpListener,
        security: ServerSecurity,
        budget: Budget,
        is_for_one: bool,
        agents: Agents,
    ) -> Result<Self> {
        // `bind` of the standard library has chosen a shorter one.
        rustix::net::listen(&listener, BACKLOG).context("cannot listen")?;
        let epoll = epoll::create(CreateFlags::CLOEXEC).context("cannot create an epoll descriptor")?;
        epoll::add(&epoll, &listener, Source::Listener.data(), EventFlags::IN)
            .context("cannot watch the listener")?;
        let welcome = Welcome {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: host_name(),
            offers: agents.offers(),
            connections_max: budget.clients_of_origin(),
        };
        let now = Instant::now();
        Ok(Self {
            listener,
            epoll,
            welcome: message(&Ok::<_, Failure>(welcome)),
            security,
            is_for_one,
            handshakes: Handshakes::new(
                budget.handshakes_max,
                budget.handshakes_of_origin(),
                budget.handshake_time,
            ),
            queue: Queue::new(),
            agents,
            journal: Journal::new(),
            next: 1,
            spare: spare(),
            is_dirty: false,
            notified_at: now,
            paused_at: None,
            budget,
        })
    }

    /// Serves until the process is told to end, or until the only client was served. Ends all agents
    /// then. Returns the exit code.
    pub(super) fn run(mut self) -> Result<Exit> {
        let exit = self.serve();
        // No client can connect while the last agents end.
        drop(self.listener);
        for group in self.queue.drain() {
            for (_, mut waiting) in group.members {
                waiting.connection.refuse(&stopped());
            }
        }
        self.agents.end();
        self.journal.end();
        exit
    }

    fn serve(&mut self) -> Result<Exit> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        while !interrupt::is_asked() {
            events.clear();
            let timeout = self.timeout();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).context("cannot wait for clients"),
            }
            for event in &events {
                match Source::of(event.data) {
                    Source::Listener => self.accept(),
                    Source::Connection(number) => self.advance(number),
                    Source::Agent(number) => self.hear(number),
                    Source::Client(number) => self.agents.client_gone(number),
                }
            }
            let now = Instant::now();
            if let Some(exit) = self.run_timers(now) {
                return Ok(exit);
            }
        }
        Ok(Exit::Ok)
    }

    /// Reads the message of an agent.
    fn hear(&mut self, number: u64) {
        if let Some(ended) = self.agents.hear(number) {
            // It is waited for; its socket would be an event until then.
            let _ = epoll::delete(&self.epoll, ended);
        }
        self.is_dirty = true;
    }

    /// Returns how long to wait for events. Nothing here needs to be exact, and a signal has to be
    /// noticed.
    fn timeout(&self) -> Timespec {
        let mut timeout = if self.agents.are_ending() { REAP_EVERY } else { GLANCE };
        if let Some(deadline) = self.handshakes.deadline() {
            timeout = timeout.min(deadline.saturating_duration_since(Instant::now()));
        }
        // A fraction of a millisecond would be no wait at all.
        let timeout = timeout.max(Duration::from_millis(1));
        Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() }
    }

    /// Does what is due. Returns the exit code when the only client was served.
    fn run_timers(&mut self, now: Instant) -> Option<Exit> {
        for connection in self.handshakes.expire(now) {
            if !connection.is_refused() {
                let failure = refusal::too_slow(self.budget.handshake_time);
                self.journal.tell(connection.client, &failure.sentence());
                self.close(connection, &failure);
            }
        }
        self.agents.watch(now);
        let before = self.agents.count();
        let ended = self.agents.are_ending().then(|| self.agents.reap()).flatten();
        self.is_dirty |= self.agents.count() != before;
        if self.is_for_one && ended.is_some() {
            return ended;
        }
        self.expire(now);
        if std::mem::take(&mut self.is_dirty) {
            self.start_agents();
        }
        self.notify(now);
        self.journal.flush(now);
        if self.paused_at.is_some_and(|at| now.saturating_duration_since(at) >= PAUSE) {
            self.paused_at = None;
            self.watch_listener(EventFlags::IN);
        }
        None
    }

    /// Accepts connections.
    fn accept(&mut self) {
        for _ in 0..ACCEPTED_MAX {
            match self.listener.accept() {
                Ok((stream, client)) => self.admit(stream, client),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if is_out_of_descriptors(&error) => {
                    self.refuse_without_descriptor(&error);
                    return;
                }
                // The client was gone before it was accepted.
                Err(error)
                    if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(error) => {
                    self.pause(&error);
                    return;
                }
            }
        }
    }

    /// Begins the handshake with a client.
    fn admit(&mut self, stream: TcpStream, client: SocketAddr) {
        let client = SocketAddr::new(client.ip().to_canonical(), client.port());
        keep_alive(&stream);
        if let Err(error) = self.security.refresh(Instant::now()) {
            let sentence = Failure::of(&error).sentence();
            self.journal.note(&format!("the certificates or the secret of before are used: {sentence}"));
        }
        let connection = match Connection::new(stream, client, self.security.tls.as_ref()) {
            Ok(connection) => connection,
            Err(failure) => return self.journal.tell(client, &failure.sentence()),
        };
        let number = self.next;
        self.next += 1;
        let source = Source::Connection(number);
        let watched =
            epoll::add(&self.epoll, connection.stream(), source.data(), EventFlags::IN | EventFlags::RDHUP);
        if let Err(error) = watched {
            return self.journal.tell(client, &format!("cannot watch the connection: {error}"));
        }
        let origin = Origin::from(client.ip());
        let removed = self.handshakes.insert(number, origin, Instant::now(), connection);
        if let Some(removed) = removed.filter(|removed| !removed.is_refused()) {
            let failure = refusal::crowded_out(&self.budget);
            self.journal.tell(removed.client, &failure.sentence());
            self.close(removed, &failure);
        }
        if let Some(failure) = refusal::not_in_clear_text(&self.security.choice, client.ip()) {
            self.refuse(number, &failure);
        }
    }

    /// Tells a connection why it is closed, and closes it at once. What it has sent and nobody has
    /// read may discard the reason.
    fn close(&self, mut connection: Connection, failure: &Failure) {
        connection.refuse(failure);
    }

    /// Reads from a connection.
    fn advance(&mut self, number: u64) {
        let Some(connection) = self.handshakes.get_mut(number) else {
            // A client that waits sends nothing: it has left, or is none.
            if let Some(waiting) = self.queue.remove(number) {
                self.journal.tell(waiting.connection.client, "the client left the queue");
                self.is_dirty = true;
            }
            return;
        };
        match connection.advance(&self.welcome, &self.security.choice) {
            Progress::Pending => {
                let reached = connection.reached();
                self.handshakes.set_reached(number, reached);
            }
            Progress::Order(order) => self.ordered(number, order),
            Progress::Left => drop(self.handshakes.remove(number)),
            Progress::Failed(Some(failure)) => {
                connection.dismiss(&failure);
                let client = connection.client;
                self.handshakes.set_reached(number, Reached::Nothing);
                self.journal.tell(client, &failure.sentence());
            }
            Progress::Failed(None) => drop(self.handshakes.remove(number)),
        }
    }

    /// Checks an order, and puts the client into the queue.
    fn ordered(&mut self, number: u64, bytes: Vec<u8>) {
        let Some(connection) = self.handshakes.get_mut(number) else { return };
        let (client, is_tls) = (connection.client, connection.is_tls());
        let (key, memory) = match self.check(client, is_tls, &bytes) {
            Ok(checked) => checked,
            Err(failure) => return self.refuse(number, &failure),
        };
        if let Err(failure) = self.make_room(key) {
            return self.refuse(number, &failure);
        }
        let Some(mut connection) = self.handshakes.remove(number) else { return };
        let (ahead, now) = (self.queue.len(), Instant::now());
        let notice = Notice::Waiting { ahead, served: self.agents.count() };
        // A client that waits sends nothing. Whatever comes now ends its wait, and does not fill the
        // buffers of the kernel.
        let source = Source::Connection(number);
        let watched = epoll::modify(
            &self.epoll,
            connection.stream(),
            source.data(),
            EventFlags::IN | EventFlags::RDHUP | EventFlags::ONESHOT,
        );
        if connection.notify(&notice).is_err() || watched.is_err() {
            return self.journal.tell(client, "the client left after its order");
        }
        let waiting = Waiting { connection, order: bytes, notified_at: now, ahead };
        self.queue.push(number, key, memory, now, waiting);
        self.is_dirty = true;
    }

    /// Returns the group of an order, and the memory that it needs.
    fn check(&self, client: SocketAddr, is_tls: bool, bytes: &[u8]) -> Result<(Key, u64), Failure> {
        let order: Order<Task> = serde_json::from_slice(bytes).map_err(|error| garbled(error.to_string()))?;
        if let Task::Doctor(_) = &order.task
            && let Some(refusal) = refusal::not_examined(is_tls, client.ip())
        {
            return Err(refusal);
        }
        let origin = Origin::from(client.ip());
        let memory = order.check(self.agents.rails(), self.budget.memory_of_origin())?;
        if order.time() > self.budget.test_time {
            return Err(refusal::too_long(order.time(), self.budget.test_time));
        }
        let size = order.connections as usize;
        let key = Key { origin, test: order.test, size };
        let total = memory.saturating_mul(size as u64);
        crate::bounds::check_memory(total, self.budget.memory_of_origin())?;
        if size > self.budget.clients_of_origin() {
            return Err(refusal::too_many_connections(size, &self.budget));
        }
        Ok((key, memory))
    }

    /// Returns an error if there is no room in the queue. An origin with fewer clients takes the
    /// room of one with more.
    fn make_room(&mut self, key: Key) -> Result<(), Failure> {
        let load = self.load();
        let free = self.budget.clients_max.saturating_sub(self.agents.count());
        if self.is_for_one && (self.agents.count() > 0 || self.queue.len() > 0) {
            return Err(refusal::one_client(load));
        }
        // Clients that can be served at once do not count as waiting.
        let waiting_max = self.budget.queue_max + free;
        let origin_free = self.budget.clients_of_origin().saturating_sub(self.agents.count_of(key.origin));
        if self.queue.count_of(key.origin) >= self.budget.queue_of_origin() + origin_free.min(free) {
            return Err(refusal::queue_full(load, &self.budget));
        }
        let is_full = self.queue.len() >= waiting_max;
        let has_descriptor = self.budget.has_descriptor(self.queue.len(), self.agents.count());
        if !is_full && has_descriptor {
            return Ok(());
        }
        let failure = match is_full {
            true => refusal::queue_full(load, &self.budget),
            false => refusal::no_descriptors(load, self.budget.descriptors_max),
        };
        let Some(group) = self.queue.drop_longest(key.origin) else { return Err(failure) };
        self.refuse_group(group, &failure);
        Ok(())
    }

    /// Refuses a client whose handshake is done.
    fn refuse(&mut self, number: u64, failure: &Failure) {
        let Some(connection) = self.handshakes.get_mut(number) else { return };
        connection.refuse(failure);
        let client = connection.client;
        self.handshakes.set_reached(number, Reached::Nothing);
        self.journal.tell(client, &refusal::logged(failure));
    }

    fn refuse_group(&mut self, group: Group<Waiting>, failure: &Failure) {
        for (_, mut waiting) in group.members {
            waiting.connection.refuse(failure);
            self.journal.tell(waiting.connection.client, &refusal::logged(failure));
        }
    }

    /// Refuses the clients that have waited for too long.
    fn expire(&mut self, now: Instant) {
        let (time, gathering) = (self.budget.queue_time, self.budget.handshake_time);
        for group in self.queue.expire(now, time, gathering) {
            let failure = match group.is_complete() {
                true => refusal::waited_too_long(self.load(), time),
                false => refusal::incomplete(group.members.len(), group.key.size),
            };
            self.refuse_group(group, &failure);
        }
    }

    /// Starts agents for the clients whose turn it is.
    fn start_agents(&mut self) {
        loop {
            let (agents, budget, waiting) = (&self.agents, &self.budget, self.queue.len());
            let (count, memory) = (agents.count(), agents.memory());
            if waiting == 0 || count >= budget.clients_max || agents.starting() >= budget.starting_max {
                return;
            }
            let fits = |group: &Group<Waiting>| {
                let (size, origin) = (group.members.len(), group.key.origin);
                let needed = group.memory.saturating_mul(size as u64);
                count + size <= budget.clients_max
                    && agents.count_of(origin) + size <= budget.clients_of_origin()
                    && memory.saturating_add(needed) <= budget.memory_max
                    && agents.memory_of(origin).saturating_add(needed) <= budget.memory_of_origin()
                    && budget.has_descriptors_to_start(waiting, count, size)
            };
            let Some(group) = self.queue.next(fits) else { return };
            let (origin, memory) = (group.key.origin, group.memory);
            for (number, waiting) in group.members {
                self.start_agent(number, waiting, origin, memory);
            }
        }
    }

    fn start_agent(&mut self, number: u64, waiting: Waiting, origin: Origin, memory: u64) {
        let Waiting { mut connection, order, .. } = waiting;
        let client = connection.client;
        let new = match self.agents.start(memory) {
            Ok(new) => new,
            Err(error) => {
                let failure = refusal::no_agent(&error);
                connection.refuse(&failure);
                return self.journal.tell(client, &failure.sentence());
            }
        };
        let stream = match connection.into_served() {
            Ok(stream) => stream,
            Err(failure) => {
                self.agents.abandon(new);
                return self.journal.tell(client, &failure.sentence());
            }
        };
        let watched = self.agents.hand_over(number, new, &order, stream, (client, origin)).and_then(
            |(control, connection)| {
                epoll::add(&self.epoll, control, Source::Agent(number).data(), EventFlags::IN)?;
                // The agent reads from it. Only its end is an event, and only once.
                let end = EventFlags::RDHUP | EventFlags::ONESHOT;
                Ok(epoll::modify(&self.epoll, connection, Source::Client(number).data(), end)?)
            },
        );
        if let Err(error) = watched {
            self.journal.tell(client, &format!("cannot hand the connection to an agent: {error}"));
        }
    }

    /// Tells the clients that wait their places.
    fn notify(&mut self, now: Instant) {
        if self.queue.len() == 0 || now.saturating_duration_since(self.notified_at) < NOTIFY_EVERY {
            return;
        }
        self.notified_at = now;
        let (served, mut gone) = (self.agents.count(), Vec::new());
        self.queue.for_each(|number, ahead, waiting| {
            let is_old = now.saturating_duration_since(waiting.notified_at) >= REMIND_EVERY;
            if ahead == waiting.ahead && !is_old {
                return;
            }
            (waiting.ahead, waiting.notified_at) = (ahead, now);
            if waiting.connection.notify(&Notice::Waiting { ahead, served }).is_err() {
                gone.push(number);
            }
        });
        for number in gone {
            if let Some(waiting) = self.queue.remove(number) {
                self.journal.tell(waiting.connection.client, "the client left the queue");
            }
        }
    }

    fn load(&self) -> Load {
        Load { served: self.agents.count(), waiting: self.queue.len() }
    }

    /// Refuses the next client by the descriptor that is kept for this.
    fn refuse_without_descriptor(&mut self, error: &io::Error) {
        self.spare = None;
        if let Ok((stream, client)) = self.listener.accept() {
            let client = SocketAddr::new(client.ip().to_canonical(), client.port());
            let failure = refusal::no_descriptors(self.load(), self.budget.descriptors_max);
            // A TLS client cannot read this, and takes it for an error of the connection.
            if let Ok(mut connection) = Connection::new(stream, client, None) {
                connection.refuse(&failure);
            }
            self.journal.tell(client, &format!("refused, {}: {error}", failure.error));
        }
        self.spare = spare();
        // Descriptors are freed when a client disconnects.
        self.pause(error);
    }

    /// Stops accepting for a moment.
    fn pause(&mut self, error: &io::Error) {
        self.journal.note(&format!("cannot accept a connection: {error}"));
        self.paused_at = Some(Instant::now());
        self.watch_listener(EventFlags::empty());
    }

    fn watch_listener(&self, flags: EventFlags) {
        // The listener is registered, so this cannot fail.
        let _ = epoll::modify(&self.epoll, &self.listener, Source::Listener.data(), flags);
    }
}

fn spare() -> Option<OwnedFd> {
    io::stderr().as_fd().try_clone_to_owned().ok()
}

/// The errors that last until a descriptor is freed.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(
        rustix::io::Errno::from_io_error(error),
        Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE)
    )
}

/// Lets the kernel find out whether a silent client is still there. Without it, a client whose host
/// has failed is noticed by its agent only.
fn keep_alive(stream: &TcpStream) {
    let _ = set_socket_keepalive(stream, true);
    let _ = set_tcp_keepidle(stream, KEEPALIVE_IDLE);
    let _ = set_tcp_keepintvl(stream, KEEPALIVE_EVERY);
    let _ = set_tcp_keepcnt(stream, KEEPALIVE_COUNT);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_names_its_source() {
        for source in [Source::Listener, Source::Connection(1), Source::Agent(77), Source::Client(1 << 60)] {
            assert_eq!(Source::of(source.data()), source);
        }
    }
}
