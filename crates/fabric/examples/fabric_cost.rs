//! Measures the cost of the safe API above bare libfabric: `fabric_cost --provider P --count N`
//! writes pages to another process, in batches of 16.
//!
//! The cost is counted, not timed: run it under `valgrind --tool=callgrind` with two counts; the
//! difference is the cost of the operations between them. `benches/bare/paged cost` does the same
//! in C. The other side is a separate process, so it is not counted.

#![allow(clippy::print_stdout, reason = "its result is one line")]

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use farreach_fabric::{
    Address, CompletionQueue, Domain, Driver, Endpoint, EndpointBuilder, Event, Fabric, Hints, Info, Peer,
    Poller, PostError, Refusal, RemoteAccess, RemoteRegion, TransmitRequest,
};

/// The number of operations of a batch.
const OPERATIONS: usize = 16;

/// A pause before a retry, because immediate retries would count the machine's speed.
const PAUSE: Duration = Duration::from_millis(1);

/// The maximum time of a run. The other process also stops polling then, if this one is lost.
const TIME_MAX: Duration = Duration::from_secs(300);

/// Writes pages to another process, in batches of 16.
#[derive(Debug, Parser)]
struct Args {
    #[arg(long)]
    provider: String,
    /// Operations.
    #[arg(long, default_value_t = 1600)]
    count: usize,
    /// Polls that find nothing, at the end.
    #[arg(long, default_value_t = 0)]
    idle: usize,
    /// Bytes of a page.
    #[arg(long, default_value_t = 4096)]
    page: usize,
    /// With a queue that one can sleep on, where the provider has such.
    #[arg(long, value_enum, default_value = "spin")]
    wait: Wait,
    /// How the program starts its other side.
    #[arg(long, hide = true)]
    target: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Wait {
    Spin,
    Sleep,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let side = Side::open(&args)?;
    if args.target { side.serve(&args) } else { side.write(&args) }
}

struct Side {
    domain: Domain,
    cq: CompletionQueue,
    endpoint: Endpoint,
}

impl Side {
    fn open(args: &Args) -> Result<Self, Box<dyn Error>> {
        let mut hints = Hints::rdm().provider(&args.provider);
        if args.provider != "shm" {
            hints = hints.node("127.0.0.1").source();
        }
        let mut offers = Info::query(&hints)?;
        // When asked for one, the library also returns what is layered over it.
        let exact = offers.iter().position(|info| info.provider() == args.provider);
        let info = offers.swap_remove(exact.unwrap_or(0));
        let domain = Fabric::open(&info)?.open_domain(&info)?;
        let size = info.transmit_queue_size() + info.receive_queue_size();
        let cq = match args.wait {
            Wait::Spin => domain.open_polled_cq_of(size)?,
            Wait::Sleep => domain.open_cq_of(size)?,
        };
        let av = domain.open_av()?;
        let endpoint = EndpointBuilder::new(&cq, &av).build(&domain)?;
        Ok(Self { domain, cq, endpoint })
    }

    fn insert(&self, address: &str) -> Result<Peer, Box<dyn Error>> {
        let address = Address::parse_hex(self.domain.info().address_format(), address)?;
        Ok(self.endpoint.av().insert(&address)?)
    }

    /// Runs the target side: makes progress until the other side has ended.
    fn serve(self, args: &Args) -> Result<(), Box<dyn Error>> {
        let slice = self.domain.allocate(OPERATIONS * args.page)?;
        let exposed = self.domain.expose(slice, RemoteAccess::WRITE).map_err(|(error, _)| error)?;
        let mut line = String::new();
        std::io::stdin().read_line(&mut line)?;
        let _peer = self.insert(line.trim_end())?;
        let remote = exposed.remote();
        let address = self.endpoint.address().to_hex();
        println!("{address} {} {} {}", remote.address(), remote.len(), remote.key());

        let ended = std::thread::spawn(|| std::io::stdin().read_line(&mut String::new()));
        let (mut driver, start) = (Driver::new(&self.cq), Instant::now());
        while !ended.is_finished() && start.elapsed() < TIME_MAX {
            driver.progress()?;
        }
        Ok(())
    }

    fn write(mut self, args: &Args) -> Result<(), Box<dyn Error>> {
        let mut other = Command::new(std::env::current_exe()?)
            .args(std::env::args_os().skip(1))
            .arg("--target")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut to_other = other.stdin.take().ok_or("it is piped")?;
        // The other side must know this one first: over shm of 1.17 an operation may be lost if
        // both insert each other at once.
        writeln!(to_other, "{}", self.endpoint.address().to_hex())?;
        let mut line = String::new();
        BufReader::new(other.stdout.take().ok_or("it is piped")?).read_line(&mut line)?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let [address, start, len, key] = words[..] else {
            return Err("the other side did not say where it is".into());
        };
        let peer = self.insert(address)?;
        // SAFETY: the other side keeps its memory exposed until it is told to end.
        let remote = unsafe { RemoteRegion::new(start.parse()?, len.parse()?, key.parse()?).vouched() };

        let mut whole = self.domain.allocate(OPERATIONS * args.page)?;
        let slices = (0..OPERATIONS).map(|_| whole.split_to(args.page));
        // Every page goes to the same place, because the place makes no difference.
        let place = remote.get(0, args.page as u64).ok_or("the other side has less memory")?;
        let request = |(slice, tag)| TransmitRequest::write(slice, &peer, place).tag(tag);
        // They connect, and are in flight, before anything is counted.
        let mut refused: Vec<_> = slices.zip(0..).map(request).collect();
        let (mut poller, mut done, mut polls) = (self.cq.poller(), 0, 0);
        while done < args.count {
            let before = done;
            polls += 1;
            let written = rewrite(&mut self.endpoint, &mut poller, (&peer, place), &mut refused);
            done += written.ok_or("an operation failed")?;
            if done == before || !refused.is_empty() {
                post_refused(&mut self.endpoint, &mut refused)?;
            }
        }
        // The number of polls of a run depends on the load of the machine. Polls that find nothing
        // tell the cost of one.
        let mut in_flight = OPERATIONS - refused.len();
        while in_flight > 0 {
            in_flight -= poller.poll()?.count();
        }
        for _ in 0..args.idle {
            polls += 1;
            rewrite(&mut self.endpoint, &mut poller, (&peer, place), &mut refused).ok_or("a poll failed")?;
        }
        println!(
            "{{\"program\":\"fabric\",\"test\":\"cost\",\"provider\":\"{}\",\"count\":{done},\"polls\":{polls}}}",
            self.domain.info().provider()
        );
        writeln!(to_other)?;
        if !other.wait()?.success() {
            return Err("the other side failed".into());
        }
        Ok(())
    }
}

/// Takes completions, and posts each page again. Returns their number, or `None` if something
/// failed.
///
/// It is a separate function, so that callgrind can count only the work in it, without the variable
/// time of connecting. It contains no more than the equivalent in C, and nothing that can fail
/// while it holds a completion or a slice: a value that may have to be dropped must be in memory.
#[inline(never)]
fn rewrite(
    endpoint: &mut Endpoint,
    poller: &mut Poller<'_>,
    (peer, place): (&Peer, RemoteRegion),
    refused: &mut Vec<TransmitRequest>,
) -> Option<usize> {
    let mut done = 0;
    for event in poller.poll().ok()? {
        let Event::Completed(completion) = event else { return None };
        completion.outcome().ok()?;
        let tag = completion.tag();
        let slice = completion.into_buffers().into_slice().expect("one slice was posted");
        done += 1;
        if let Err(error) = endpoint.post_mut(TransmitRequest::write(slice, peer, place).tag(tag)) {
            refused.push(error.request);
        }
    }
    Some(done)
}

/// While it connects, or if the other side must receive something first.
#[cold]
#[inline(never)]
fn post_refused(endpoint: &mut Endpoint, refused: &mut Vec<TransmitRequest>) -> Result<(), Box<dyn Error>> {
    std::thread::sleep(PAUSE);
    while let Some(request) = refused.pop() {
        match endpoint.post_mut(request) {
            Ok(()) => {}
            Err(PostError { reason: Refusal::QueueFull { .. }, request }) => {
                refused.push(request);
                break;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
