//! What the safe door costs above bare libfabric: `fabric_cost --provider P --count N` writes pages to another process, in batches of 16.
//!
//! Counted, not timed: run it under `valgrind --tool=callgrind` with two counts; the difference is what the operations between
//! them cost. `benches/bare/paged cost` does the same in C. The other process is one of its own, so that it is not counted.

#![allow(clippy::print_stdout)] // its result is one line

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use farreach_fabric::{
    Address, CompletionQueue, Domain, Driver, Endpoint, EndpointBuilder, Event, Fabric, Hints, Info, Peer,
    Poller, PostError, Refusal, RemoteAccess, RemoteRegion, TransmitRequest,
};
use farreach_memory::Slice;

/// Operations of a batch.
const OPERATIONS: usize = 16;

/// Instead of trying again at once, which would count the machine's speed.
const PAUSE: Duration = Duration::from_millis(1);

/// No run takes longer, and the other process polls no longer, where this one is lost.
const TIME_MAX: Duration = Duration::from_secs(300);

/// Writes pages to another process, in batches of 16.
#[derive(Debug, Parser)]
struct Args {
    #[arg(long)]
    provider: String,
    /// Operations.
    #[arg(long, default_value_t = 1600)]
    count: usize,
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
        // Asked for one, the library also tells what is layered over it.
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

    /// The side that is written to: keeps the provider moving until the other one has ended.
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

    fn write(self, args: &Args) -> Result<(), Box<dyn Error>> {
        let mut other = Command::new(std::env::current_exe()?)
            .args(std::env::args_os().skip(1))
            .arg("--target")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut to_other = other.stdin.take().ok_or("it is piped")?;
        // The other side knows us first: over shm of 1.17 an operation may be lost where both get to know each other at once.
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
        let ours = (0..OPERATIONS).map(|_| whole.split_to(args.page)).collect();
        let mut pages = Pages { page: args.page, ours, back: Vec::with_capacity(OPERATIONS) };
        let mut poller = self.cq.poller();
        let mut done = 0;
        while done < args.count {
            pages.write(&self.endpoint, &mut poller, &peer, remote)?;
            done += OPERATIONS;
        }
        println!(
            "{{\"program\":\"fabric\",\"test\":\"cost\",\"provider\":\"{}\",\"count\":{done}}}",
            self.domain.info().provider()
        );
        writeln!(to_other)?;
        if !other.wait()?.success() {
            return Err("the other side failed".into());
        }
        Ok(())
    }
}

/// Pages that are ours, and those that came back.
struct Pages {
    page: usize,
    ours: Vec<Slice>,
    back: Vec<Slice>,
}

impl Pages {
    /// Posts every page, and takes them all back.
    fn write(
        &mut self,
        endpoint: &Endpoint,
        poller: &mut Poller<'_>,
        peer: &Peer,
        remote: RemoteRegion,
    ) -> Result<(), Box<dyn Error>> {
        let (mut offset, page) = (0, self.page as u64);
        while !self.ours.is_empty() {
            let place = remote.get(offset, page).ok_or("the page is outside")?;
            offset += page;
            let slice = self.ours.pop().expect("it is not empty");
            if let Err(refused) = endpoint.post(TransmitRequest::write(slice, peer, place)) {
                self.post_later(endpoint, poller, refused)?;
            }
        }
        self.take_back(poller)?;
        while self.back.len() < OPERATIONS {
            std::thread::sleep(PAUSE);
            self.take_back(poller)?;
        }
        std::mem::swap(&mut self.ours, &mut self.back);
        Ok(())
    }

    /// While it connects, or the other side has to take something first.
    #[cold]
    #[inline(never)]
    fn post_later(
        &mut self,
        endpoint: &Endpoint,
        poller: &mut Poller<'_>,
        mut refused: PostError<TransmitRequest>,
    ) -> Result<(), Box<dyn Error>> {
        while matches!(refused.reason, Refusal::QueueFull { .. }) {
            std::thread::sleep(PAUSE);
            self.take_back(poller)?;
            match endpoint.post(refused.request) {
                Ok(()) => return Ok(()),
                Err(again) => refused = again,
            }
        }
        Err(refused.into())
    }

    fn take_back(&mut self, poller: &mut Poller<'_>) -> Result<(), Box<dyn Error>> {
        for event in poller.poll()? {
            let completion = match event {
                Event::Completed(completion) => completion,
                Event::Written(_) => return Err("nobody writes to this side".into()),
                Event::Stray(failure) => return Err(failure.into()),
            };
            let (outcome, buffers) = completion.into_parts();
            outcome?;
            self.back.push(buffers.into_slice().map_err(|_| "it was one slice")?);
        }
        Ok(())
    }
}
