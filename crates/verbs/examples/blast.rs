//! Streams messages in one direction, as fast as the receiver posts buffers.
//!
//! ```console
//! $ blast serve
//! $ blast HOST --size 65536 --count 1000
//! ```
//!
//! The receiver keeps a window of receives posted, so that messages need not wait for each other. A
//! message that finds no receive is refused and sent again after a pause; after too many retries
//! the connection ends. So the sender counts credits: it starts with the length of the window, and
//! the receiver grants more whenever it has posted half a window again.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use common::{Arguments, Done, Failure, check, deadline, fill, is_filled, resolve, take};
use farreach_memory::Slice;
use farreach_verbs::cm::{CmParameters, Connection, Connector, Listener};
use farreach_verbs::context::Context;
use farreach_verbs::cq::{CompletionQueue, WorkKind};
use farreach_verbs::pd::ProtectionDomain;
use farreach_verbs::qp::{QueuePair, QueuePairBuilder, QueuePairType};
use farreach_verbs::wr::{RecvRequest, SendRequest};

mod common;

const USAGE: &str = "usage: blast serve [--port P]\n       blast HOST [--port P] [--size N] [--count N]";
const PORT: u16 = 18532;
/// The number of posted receives.
const WINDOW: u32 = 32;
/// The number of receives that one credit message grants.
const GRANT: u32 = WINDOW / 2;
/// The largest message, which limits the memory that a sender can make the receiver allocate.
const SIZE_MAX: u32 = 1 << 20;

fn main() -> ExitCode {
    common::run(USAGE, &["--port", "--size", "--count"], |arguments| {
        let port = arguments.option("--port")?.unwrap_or(PORT);
        match arguments.needed()? {
            "serve" => receive(port),
            host => send(resolve(host, port)?, arguments),
        }
    })
}

/// Receives from one sender.
fn receive(port: u16) -> Result<(), Failure> {
    let listener = Listener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))?;
    let request = listener.wait_request(deadline())?;
    let word = |at: usize| Some(u32::from_be_bytes(request.private_data().get(at..at + 4)?.try_into().ok()?));
    let (Some(size @ 1..=SIZE_MAX), Some(count)) = (word(0), word(4)) else {
        request.reject(b"no such size")?;
        return Err(Failure::wrong_bytes("the connect request"));
    };
    let end = End::new(&request.context()?)?;
    request.prepare(&end.qp)?;
    // Posts the whole window before the first message can arrive.
    for slice in end.slices(WINDOW, size)? {
        end.qp.post_recv(RecvRequest::new(slice))?;
    }
    let connection = request.accept(&end.qp, &CmParameters::new(), deadline())?;

    let (mut received, mut room) = (0, 0);
    while received < count {
        let done = end.next(&connection)?;
        if done.kind != WorkKind::Recv {
            continue;
        }
        let slice = done.buffers.into_slice().expect("it was one slice");
        check(is_filled(&slice, received), "a message")?;
        received += 1;
        // The same buffer is posted again for a later message.
        end.qp.post_recv(RecvRequest::new(slice))?;
        room += 1;
        if room == GRANT {
            room = 0;
            end.qp.post_send(SendRequest::send(Vec::new()).immediate(GRANT))?;
        }
    }
    // A grant of zero ends the stream. Without it, the end of the connection could overtake the
    // last completions.
    end.qp.post_send(SendRequest::send(Vec::new()).immediate(0))?;
    connection.wait_disconnected(deadline())?;
    println!("received {received} messages of {size} bytes");
    Ok(())
}

fn send(receiver: SocketAddr, arguments: &Arguments) -> Result<(), Failure> {
    let size = arguments.number("--size", 4096, 1..=SIZE_MAX)?;
    let count = arguments.number("--count", 1000, 0..=u32::MAX)?;
    let connector = Connector::resolve(receiver, deadline())?;
    let end = End::new(&connector.context()?)?;
    connector.prepare(&end.qp)?;
    // Credit messages are empty: at most two at once, and the final one.
    for _ in 0..4 {
        end.qp.post_recv(RecvRequest::empty())?;
    }
    let plan = [size.to_be_bytes(), count.to_be_bytes()].concat();
    let connection = connector.connect(&end.qp, &CmParameters::new().with_private_data(plan), deadline())?;

    let start = Instant::now();
    let mut free = end.slices(WINDOW, size)?;
    let (mut sent, mut done, mut credits) = (0, 0, WINDOW);
    let mut is_received = false;
    while done < count || !is_received {
        // Sends while there are credits, and buffers that are not in flight.
        while sent < count && credits > 0 {
            let Some(mut slice) = free.pop() else { break };
            fill(&mut slice, sent);
            end.qp.post_send(SendRequest::send(slice))?;
            (sent, credits) = (sent + 1, credits - 1);
        }
        let Done { kind, success, buffers, .. } = end.next(&connection)?;
        if kind == WorkKind::Recv {
            let grant = success.immediate.map_or(0, |grant| grant.0);
            credits += grant;
            is_received = grant == 0;
            end.qp.post_recv(RecvRequest::empty())?;
        } else {
            done += 1;
            free.extend(buffers.into_slice());
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    connection.disconnect()?;
    connection.wait_disconnected(deadline())?;
    println!("sent {done} messages of {size} bytes: {:.0} a second", f64::from(done) / seconds);
    Ok(())
}

struct End {
    qp: QueuePair,
    cq: CompletionQueue,
    pd: ProtectionDomain,
}

impl End {
    fn new(context: &Context) -> Result<Self, Failure> {
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(4 * WINDOW)?);
        let builder = QueuePairBuilder::new(QueuePairType::Rc, &cq, &cq);
        let qp = builder.max_send_wr(WINDOW).max_recv_wr(WINDOW).build(&pd)?;
        Ok(Self { qp, cq, pd })
    }

    /// Returns buffers from one allocation, which is registered once.
    fn slices(&self, count: u32, size: u32) -> Result<Vec<Slice>, Failure> {
        let mut whole = self.pd.allocate(count as usize * size as usize)?;
        Ok((0..count).map(|_| whole.split_to(size as usize)).collect())
    }

    /// Returns the next completion. A receiver whose sender is gone gets none; only the
    /// connection's events report that.
    fn next(&self, connection: &Connection) -> Result<Done, Failure> {
        let end = deadline();
        loop {
            if let Some(done) = take(&self.cq)? {
                return Ok(done);
            }
            if let Some(failure) = connection.channel().get_event()?.and_then(|event| event.failure()) {
                return Err(failure.into());
            }
            if Instant::now() >= end {
                return Err(Failure::timed_out("completion"));
            }
            thread::yield_now();
        }
    }
}
