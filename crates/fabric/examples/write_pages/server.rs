//! The server: stays up, and fills the pages that clients request.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::io::Write;
use std::time::{Duration, Instant};

use farreach_fabric::{Address, Peer, PostError, Refusal, RemoteRegion, TransmitRequest};
use farreach_memory::{Shared, Slice};

use crate::args::Args;
use crate::data::Bytes;
use crate::failure::Failure;
use crate::message::{Fill, Message, REGIONS, Region, VERSION};
use crate::node::{Heard, Node};
use crate::plan::{BYTES_MAX, Order, Plan};

/// The number of messages that clients may send before the server polls.
const RECEIVES: usize = 64;
/// The number of requests that are served at the same time; more wait. Each has memory for the
/// largest request.
const JOBS_MAX: usize = 8;
/// The number of requests of one client that may wait.
const REQUESTS_MAX: usize = 4;
/// The maximum number of clients at the same time.
const CLIENTS_MAX: usize = 1024;
/// The maximum time that a client which does not receive messages may cost the others.
const REPLY_MAX: Duration = Duration::from_secs(2);
/// The time after which a request's client counts as lost.
const JOB_MAX: Duration = Duration::from_secs(60);
/// How long the loop sleeps if nothing happens.
const IDLE: Duration = Duration::from_millis(500);

struct Server {
    node: Node,
    clients: HashMap<u32, Client>,
    next_client: u32,
    /// Accepted, and not begun.
    waiting: VecDeque<Job>,
    jobs: Vec<Job>,
    next_job: u64,
    /// Memory of finished jobs.
    slabs: Vec<Slice>,
    order: Order,
    alters_byte: bool,
}

struct Client {
    peer: Peer,
    /// As the client described them.
    described: [Region; REGIONS],
    regions: [RemoteRegion; REGIONS],
    /// Requests that are not done. The client may know that its pages have arrived before the
    /// server knows that its writes are done.
    requests: usize,
}

/// A request that is being served.
struct Job {
    number: u64,
    client: u32,
    fill: Fill,
    plan: Plan,
    bytes: Option<Shared>,
    /// The index of the next write.
    next: usize,
    in_flight: usize,
    has_failed: bool,
    /// The time at which its client counts as lost; set when it is begun.
    deadline: Option<Instant>,
}

pub(crate) fn serve(args: &Args) -> Result<(), Failure> {
    let node = Node::open(args, RECEIVES)?;
    let info = node.domain.info();
    let order = Order { write_size_max: info.writes_ordered().then(|| info.ordered_write_size()) };
    println!("{}", node.endpoint.address().to_hex());
    // The reader may be behind a pipe; without a reader, a failure does not matter.
    let _ = std::io::stdout().flush();
    let mut server = Server {
        node,
        clients: HashMap::new(),
        next_client: 1,
        waiting: VecDeque::new(),
        jobs: Vec::new(),
        next_job: 1,
        slabs: Vec::new(),
        order,
        alters_byte: args.alter_byte,
    };
    loop {
        server.turn()?;
    }
}

impl Server {
    /// Posts as far as there is room, then takes events.
    fn turn(&mut self) -> Result<(), Failure> {
        self.begin_jobs()?;
        let is_posting = self.post_writes();
        // Only the first event is waited for: it may be work.
        let mut wait = if is_posting { Duration::ZERO } else { IDLE };
        // A budget: remaining events come in the next turn.
        for _ in 0..RECEIVES {
            match self.node.hear(Instant::now() + wait)? {
                Some(heard) => self.handle(heard),
                None => break,
            }
            wait = Duration::ZERO;
        }
        Ok(())
    }

    fn handle(&mut self, heard: Heard) {
        match heard {
            Heard::Message(Message::Connect { version, address, regions }) => {
                self.connect(version, &address, regions);
            }
            Heard::Message(Message::Fill { client, fill }) => self.fill(client, fill),
            Heard::Message(Message::Goodbye { client }) => self.forget(client),
            Heard::Done { job, outcome } => self.done(job, outcome),
            Heard::Failed(failure) => eprintln!("{failure}: {}", failure.cause()),
            Heard::Message(_) | Heard::Garbled | Heard::Written(_) => {
                eprintln!("a message that makes no sense here")
            }
        }
    }

    fn connect(&mut self, version: u8, address: &[u8], described: [Region; REGIONS]) {
        let address = Address::new(self.node.domain.info().address_format(), address);
        let peer = match self.node.endpoint.av().insert(&address) {
            Ok(peer) => peer,
            Err(error) => return eprintln!("{error}: {}", error.cause()),
        };
        if self.clients.len() >= CLIENTS_MAX {
            // A killed client has sent no goodbye.
            let idle =
                self.clients.iter().filter(|(_, client)| client.requests == 0).map(|(number, _)| *number);
            idle.min().map(|number| self.clients.remove(&number));
        }
        let refused = |reason: String| Message::Refused { number: 0, reason };
        let reply = if version != VERSION {
            refused(format!("this server speaks version {VERSION}, and the client {version}"))
        } else if self.clients.len() >= CLIENTS_MAX {
            refused(format!("{CLIENTS_MAX} clients are here already"))
        } else {
            let client = self.next_client;
            self.next_client += 1;
            let regions = [self.node.remote(&described[0]), self.node.remote(&described[1])];
            self.clients.insert(client, Client { peer: peer.clone(), described, regions, requests: 0 });
            Message::Welcome { client }
        };
        self.reply(&reply, &peer);
    }

    fn fill(&mut self, number: u32, fill: Fill) {
        let Some(client) = self.clients.get_mut(&number) else {
            return eprintln!("a request of client {number}, which is not known");
        };
        let peer = client.peer.clone();
        let plan = match client.requests >= REQUESTS_MAX {
            true => Err(format!("{REQUESTS_MAX} requests of this client are not done yet")),
            false => Plan::new(&fill, &client.described, self.order),
        };
        let reply = match plan {
            Ok(plan) => {
                client.requests += 1;
                let told = plan.told;
                let accepted = Message::Accepted { number: fill.number, told };
                let job = self.next_job;
                self.next_job += 1;
                self.waiting.push_back(Job {
                    number: job,
                    client: number,
                    fill,
                    plan,
                    bytes: None,
                    next: 0,
                    in_flight: 0,
                    has_failed: false,
                    deadline: None,
                });
                accepted
            }
            Err(reason) => Message::Refused { number: fill.number, reason },
        };
        self.reply(&reply, &peer);
    }

    fn reply(&mut self, message: &Message, peer: &Peer) {
        if let Err(failure) = self.node.send(message, peer, Instant::now() + REPLY_MAX) {
            eprintln!("{failure}");
        }
    }

    /// Gives waiting jobs memory, and generates their bytes.
    fn begin_jobs(&mut self) -> Result<(), Failure> {
        while self.jobs.len() < JOBS_MAX {
            let Some(mut job) = self.waiting.pop_front() else { break };
            let mut slab = match self.slabs.pop() {
                Some(slab) => slab,
                None => self.node.domain.allocate(BYTES_MAX as usize)?,
            };
            let mut bytes = Bytes::new(job.fill.seed);
            for write in &job.plan.writes {
                bytes.fill(&mut slab[write.source.clone()]);
            }
            if self.alters_byte {
                slab[job.plan.len - 1] ^= 1;
            }
            job.bytes = Some(slab.share());
            job.deadline = Some(Instant::now() + JOB_MAX);
            self.jobs.push(job);
        }
        Ok(())
    }

    /// Posts one write of each job in turn, until none is left or there is no room. Returns `true`
    /// if there was something to post.
    fn post_writes(&mut self) -> bool {
        let mut is_posting = false;
        for _ in 0..RECEIVES {
            let mut has_posted = false;
            for job in &mut self.jobs {
                let Some(client) = self.clients.get(&job.client) else { continue };
                let Some(request) = job.next_write(client) else { continue };
                is_posting = true;
                match self.node.endpoint.post(request) {
                    Ok(()) => {
                        job.next += 1;
                        job.in_flight += 1;
                        has_posted = true;
                    }
                    Err(PostError { reason: Refusal::QueueFull { .. }, .. }) => {}
                    Err(error) => {
                        eprintln!("{error}");
                        job.has_failed = true;
                    }
                }
            }
            if !has_posted {
                break;
            }
        }
        self.end_jobs();
        is_posting
    }

    fn done(&mut self, number: u64, outcome: Result<(), farreach_fabric::Failure>) {
        let Some(job) = self.jobs.iter_mut().find(|job| job.number == number) else { return };
        job.in_flight -= 1;
        if let Err(failure) = outcome {
            // Only the first failure is reported.
            if !job.has_failed {
                eprintln!("client {}: {failure}: {}", job.client, failure.cause());
            }
            job.has_failed = true;
        }
        self.end_jobs();
    }

    /// Takes back the memory of jobs whose writes are all done. A client whose writes fail, or take
    /// too long, is gone.
    fn end_jobs(&mut self) {
        let now = Instant::now();
        while let Some(index) = self.jobs.iter().position(|job| job.is_done() || job.is_overdue(now)) {
            let job = self.jobs.swap_remove(index);
            if job.has_failed || !job.is_done() {
                self.clients.remove(&job.client);
            } else if let Some(client) = self.clients.get_mut(&job.client) {
                client.requests -= 1;
            }
            // If every part has come back, this is the last reference. Otherwise the writes keep
            // it.
            self.slabs.extend(job.bytes.and_then(|bytes| bytes.try_unshare().ok()));
        }
    }

    /// Forgets a client, which no longer keeps its memory.
    fn forget(&mut self, client: u32) {
        for job in self.jobs.iter_mut().filter(|job| job.client == client) {
            job.has_failed = true;
        }
        self.waiting.retain(|job| job.client != client);
        self.clients.remove(&client);
    }
}

impl Job {
    fn next_write(&self, client: &Client) -> Option<TransmitRequest> {
        if self.has_failed {
            return None;
        }
        let write = self.plan.writes.get(self.next)?;
        let page = self.bytes.as_ref()?.get(write.source.clone())?;
        let place = client.regions[write.region].get(write.offset, self.fill.page_size)?;
        let request = TransmitRequest::write(page, &client.peer, place).tag(self.number);
        Some(if write.is_told { request.immediate(u64::from(self.fill.number)) } else { request })
    }

    fn is_overdue(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| now >= deadline)
    }

    fn is_done(&self) -> bool {
        self.in_flight == 0 && (self.has_failed || self.next == self.plan.writes.len())
    }
}
