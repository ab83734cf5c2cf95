//! Measures what perftest measures: the rate of writes and of messages, and the latency of a message.
//!
//! ```console
//! $ perf serve
//! $ perf HOST --op write --size 65536 --depth 16 --wait event
//! $ perf HOST --op ping
//! ```
//!
//! `write` and `send` keep `--depth` work requests in flight, each with a completion of its own, as
//! `ib_write_bw` and `ib_send_bw` do with `-t DEPTH -Q 1`. `ping` sends one message there and back,
//! inline, as `ib_send_lat` does. Both sides wait as `--wait` says: `event` sleeps (`-e` of
//! perftest), `busy` polls. The result is one line of JSON.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use common::{Arguments, Failure, check, deadline, fill, is_filled, resolve};
use farreach_memory::Slice;
use farreach_verbs::cm::{CmParameters, Connector, Listener};
use farreach_verbs::context::Context;
use farreach_verbs::cq::{CompletionQueue, CompletionQueueBuilder, Wait, WorkKind};
use farreach_verbs::mr::{AccessFlags, RemoteKey};
use farreach_verbs::pd::ProtectionDomain;
use farreach_verbs::qp::{QueuePair, QueuePairBuilder, QueuePairType};
use farreach_verbs::wr::{RecvRequest, RemoteRange, SendRequest};

mod common;

const USAGE: &str = "usage: perf serve [--port P]
       perf HOST [--port P] [--op write|send|ping] [--size N] [--depth N] [--count N]
            [--wait event|busy]";
const OPTIONS: [&str; 6] = ["--port", "--op", "--size", "--depth", "--count", "--wait"];
const PORT: u16 = 18533;

/// Bounds of what a client may ask for.
const SIZE_MAX: u32 = 1 << 20;
const DEPTH_MAX: u32 = 128;
const COUNT_MAX: u32 = 1 << 30;

/// Posted receives of a server that receives a stream: as many as perftest posts.
const RECEIVES: u32 = 512;
/// Messages of a ping up to this length are inline, as those of `ib_send_lat`.
const INLINE_MAX: u32 = 236;
/// The longest measurement.
const LONG: Duration = Duration::from_secs(600);

/// The round trips that are timed singly.
const TRIPS_MAX: usize = 1 << 20;

/// The pattern of all messages and writes.
const PATTERN: u32 = 5;

fn main() -> ExitCode {
    common::run(USAGE, &OPTIONS, |arguments| {
        let port = arguments.option("--port")?.unwrap_or(PORT);
        match arguments.needed()? {
            "serve" => serve(port),
            host => measure(resolve(host, port)?, &Plan::of(arguments)?),
        }
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Test {
    Write,
    Send,
    Ping,
}

/// The parameters that both sides must agree on. The connect request carries them.
#[derive(Debug, Clone, Copy)]
struct Plan {
    test: Test,
    size: u32,
    depth: u32,
    count: u32,
    wait: Wait,
}

impl Plan {
    fn of(arguments: &Arguments) -> Result<Self, Failure> {
        let test = match arguments.one_of("--op", &["write", "send", "ping"])? {
            "write" => Test::Write,
            "send" => Test::Send,
            _ => Test::Ping,
        };
        let size = if test == Test::Write { 64 << 10 } else { 64 };
        Ok(Self {
            test,
            size: arguments.number("--size", size, 1..=SIZE_MAX)?,
            depth: arguments.number("--depth", 16, 1..=DEPTH_MAX)?,
            count: arguments.number("--count", 1000, 1..=COUNT_MAX)?,
            wait: match arguments.one_of("--wait", &["event", "busy"])? {
                "event" => Wait::Event,
                _ => Wait::Busy,
            },
        })
    }

    fn to_bytes(self) -> Vec<u8> {
        let test = match self.test {
            Test::Write => 0,
            Test::Send => 1,
            Test::Ping => 2,
        };
        let words = [test, self.size, self.depth, self.count, u32::from(self.wait == Wait::Busy)];
        words.into_iter().flat_map(u32::to_be_bytes).collect()
    }

    /// Decodes the parameters. Returns `None` if one of them is not allowed.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_be_bytes(bytes.get(4 * at..4 * at + 4)?.try_into().ok()?));
        let test = match word(0)? {
            0 => Test::Write,
            1 => Test::Send,
            2 => Test::Ping,
            _ => return None,
        };
        let (size, depth, count) = (word(1)?, word(2)?, word(3)?);
        let wait = if word(4)? == 0 { Wait::Event } else { Wait::Busy };
        let is_allowed = (1..=SIZE_MAX).contains(&size)
            && (1..=DEPTH_MAX).contains(&depth)
            && (1..=COUNT_MAX).contains(&count);
        is_allowed.then_some(Self { test, size, depth, count, wait })
    }

    /// Returns the number of receives that the server posts.
    fn receives(&self) -> u32 {
        match self.test {
            Test::Write => 1,
            Test::Send => RECEIVES,
            Test::Ping => 2,
        }
    }
}

/// Serves one client.
fn serve(port: u16) -> Result<(), Failure> {
    let listener = Listener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))?;
    println!("listening on port {port}");
    let request = listener.wait_request(deadline())?;
    let Some(plan) = Plan::from_bytes(request.private_data()) else {
        request.reject(b"no such plan")?;
        return Err(Failure::wrong_bytes("the connect request"));
    };
    let mut end = End::new(&request.context()?, &plan, plan.receives())?;
    request.prepare(&end.qp)?;
    for slice in end.slices(plan.receives(), plan.size)? {
        end.qp.post_recv(RecvRequest::new(slice))?;
    }
    let target = end
        .pd
        .expose(end.pd.allocate(plan.size as usize)?, AccessFlags::REMOTE_WRITE)
        .map_err(|(error, _slice)| error)?;
    let remote = target.remote();
    let told = [&remote.address().to_be_bytes()[..], &remote.key().0.to_be_bytes()].concat();
    let connection = request.accept(&end.qp, &CmParameters::new().with_private_data(told), deadline())?;
    match plan.test {
        Test::Write => {}
        Test::Send => end.receive(&plan)?,
        Test::Ping => drop(end.ping(&plan, false)?),
    }
    connection.wait_disconnected(Instant::now() + LONG)?;
    if plan.test == Test::Write {
        let mut bytes = vec![0; plan.size as usize];
        target.bytes().read_at(0, &mut bytes);
        check(is_filled(&bytes, PATTERN), "the memory that the client wrote")?;
    }
    Ok(())
}

/// Measures as a client, and prints the result.
fn measure(server: SocketAddr, plan: &Plan) -> Result<(), Failure> {
    let connector = Connector::resolve(server, deadline())?;
    let mut end = End::new(&connector.context()?, plan, 2)?;
    connector.prepare(&end.qp)?;
    for slice in end.slices(2, plan.size)? {
        end.qp.post_recv(RecvRequest::new(slice))?;
    }
    let hello = CmParameters::new().with_private_data(plan.to_bytes());
    let connection = connector.connect(&end.qp, &hello, deadline())?;
    let start = Instant::now();
    let mut trips = Vec::new();
    match plan.test {
        Test::Ping => trips = end.ping(plan, true)?,
        _ => end.stream(plan, remote(connection.private_data(), plan.size)?)?,
    }
    let seconds = start.elapsed().as_secs_f64();
    connection.disconnect()?;
    connection.wait_disconnected(deadline())?;
    let Plan { test, size, depth, count, wait } = plan;
    let per_s = f64::from(*count) / seconds;
    trips.sort_unstable();
    let figure = match trips.get(trips.len() / 2) {
        Some(median) => format!("\"half_rtt_us\":{:.3}", median.as_secs_f64() * 5e5),
        None => format!("\"per_s\":{per_s:.1},\"mib_per_s\":{:.3}", per_s * f64::from(*size) / 1048576.0),
    };
    println!(
        "{{\"program\":\"verbs\",\"test\":\"{test:?}\",\"wait\":\"{wait:?}\",\"size\":{size},\"depth\":{depth},\
         \"count\":{count},{figure}}}"
    );
    Ok(())
}

/// Decodes the server's memory. Data from the network must be validated.
fn remote(bytes: &[u8], size: u32) -> Result<RemoteRange, Failure> {
    let parts = bytes.first_chunk::<8>().zip(bytes.get(8..).and_then(|rest| rest.first_chunk::<4>()));
    let (address, key) = parts.ok_or_else(|| Failure::wrong_bytes("the server's answer"))?;
    let key = RemoteKey(u32::from_be_bytes(*key));
    Ok(RemoteRange::new(u64::from_be_bytes(*address), size.into(), key))
}

struct End {
    qp: QueuePair,
    cq: CompletionQueue,
    pd: ProtectionDomain,
}

impl End {
    fn new(context: &Context, plan: &Plan, receives: u32) -> Result<Self, Failure> {
        let (pd, channel) = (context.alloc_pd()?, context.create_comp_channel()?);
        let cq = CompletionQueueBuilder::new(plan.depth + receives).channel(&channel).build(context)?;
        let builder = QueuePairBuilder::new(QueuePairType::Rc, &cq, &cq);
        let inline = if plan.test == Test::Ping { INLINE_MAX } else { 0 };
        let qp = builder.max_send_wr(plan.depth).max_recv_wr(receives).max_inline_data(inline).build(&pd)?;
        Ok(Self { qp, cq, pd })
    }

    /// Returns buffers from one allocation, which is registered once.
    fn slices(&self, count: u32, size: u32) -> Result<Vec<Slice>, Failure> {
        let mut whole = self.pd.allocate(count as usize * size as usize)?;
        Ok((0..count).map(|_| whole.split_to(size as usize)).collect())
    }

    /// Keeps `depth` writes or messages in flight until `count` are done.
    fn stream(&mut self, plan: &Plan, remote: RemoteRange) -> Result<(), Failure> {
        let request = |slice| match plan.test {
            Test::Write => SendRequest::write(slice, remote),
            _ => SendRequest::send(slice),
        };
        let mut posted = plan.depth.min(plan.count);
        for mut slice in self.slices(posted, plan.size)? {
            fill(&mut slice, PATTERN);
            self.qp.post_send_mut(request(slice))?;
        }
        let (mut done, end) = (0, Instant::now() + LONG);
        let mut poller = self.cq.poller();
        while done < plan.count {
            let mut any = false;
            for completion in poller.wait(plan.wait, Some(end))? {
                any = true;
                completion.outcome()?;
                done += 1;
                if posted < plan.count {
                    let slice = completion.into_buffers().into_slice().expect("it was one slice");
                    self.qp.post_send_mut(request(slice))?;
                    posted += 1;
                }
            }
            require(any)?;
        }
        Ok(())
    }

    /// Receives the messages of a stream.
    fn receive(&mut self, plan: &Plan) -> Result<(), Failure> {
        let (mut done, end) = (0, Instant::now() + LONG);
        let mut poller = self.cq.poller();
        while done < plan.count {
            let mut any = false;
            for completion in poller.wait(plan.wait, Some(end))? {
                any = true;
                let received = completion.outcome()?.byte_len;
                let slice = completion.into_buffers().into_slice().expect("it was one slice");
                // All messages have the same bytes, so the first tells.
                let is_right = received == plan.size && (done > 0 || is_filled(&slice, PATTERN));
                check(is_right, "a message")?;
                self.qp.post_recv(RecvRequest::new(slice))?;
                done += 1;
            }
            require(any)?;
        }
        Ok(())
    }

    /// Sends a message and receives one, `count` times; the client begins. Returns the times from
    /// each message to the next.
    fn ping(&mut self, plan: &Plan, is_client: bool) -> Result<Vec<Duration>, Failure> {
        // Two, because an answer may overtake the acknowledgement of the message before it.
        let mut free = self.slices(2, plan.size)?;
        free.iter_mut().for_each(|slice| fill(slice, PATTERN));
        let (mut sent, mut received, end) = (0, 0, Instant::now() + LONG);
        let (mut trips, mut last) = (Vec::with_capacity(TRIPS_MAX.min(plan.count as usize)), Instant::now());
        let mut poller = self.cq.poller();
        while sent < plan.count || received < plan.count {
            let is_own_turn = if is_client { sent == received } else { sent < received };
            if let Some(slice) = free.pop_if(|_| is_own_turn && sent < plan.count) {
                let request = SendRequest::send(slice);
                self.qp.post_send_mut(if plan.size <= INLINE_MAX { request.inline() } else { request })?;
                sent += 1;
                continue;
            }
            let mut any = false;
            for completion in poller.wait(plan.wait, Some(end))? {
                any = true;
                let (kind, len) = (completion.kind(), completion.outcome()?.byte_len);
                let slice = completion.into_buffers().into_slice().expect("it was one slice");
                if kind == WorkKind::Recv {
                    let is_right = len == plan.size && (received > 0 || is_filled(&slice, PATTERN));
                    check(is_right, "a message")?;
                    received += 1;
                    if trips.len() < TRIPS_MAX {
                        let now = Instant::now();
                        trips.push(now - last);
                        last = now;
                    }
                    self.qp.post_recv(RecvRequest::new(slice))?;
                } else {
                    free.push(slice);
                }
            }
            require(any)?;
        }
        Ok(trips)
    }
}

/// Fails if a wait has ended without a completion.
fn require(any: bool) -> Result<(), Failure> {
    let fix = "check that it is still running, and read its output";
    let cause = "the other side is slow, stuck or gone";
    if any { Ok(()) } else { Err(Failure::new("no completion in time", cause, fix)) }
}
