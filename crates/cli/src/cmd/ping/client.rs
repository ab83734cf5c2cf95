//! The client's side of a ping.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use farreach::{Buffer, Counter, Engine, Error, Grant, PageMap, RemoteCounter, RemoteSlice, Rights, Slice};
use hdrhistogram::Histogram;

use super::report::{PingReport, Row};
use super::{Begin, Ends, Enough, Operation, PingArgs, Task, WARM_UP, WARM_UP_TIME};
use crate::exit::Failure;
use crate::interrupt;
use crate::measure::{self, Pattern, Stopwatch, Usage};
use crate::registered;
use crate::report::{Head, Processors};
use crate::session::{Channel, Session, patience};
use crate::show::progress::PingProgress;

/// Measures every size in turn.
pub(super) fn run(args: &PingArgs) -> Result<(PingReport, Vec<Histogram<u64>>)> {
    let sizes = args.sizes.bytes().iter().map(|size| *size as usize).collect();
    let task = Task { operation: args.op, sizes, seed: measure::any_seed(), alter_byte: args.alter_byte };
    let session = Session::open(&args.client, super::rules(args), "Ping", &task)?;
    measure_all(args, &task, &session).map_err(|error| session.explained(error))
}

fn measure_all(args: &PingArgs, task: &Task, session: &Session) -> Result<(PingReport, Vec<Histogram<u64>>)> {
    let mut report = PingReport::new(Head::new("ping", session, args.client.wait), args.op);
    let mut histograms = Vec::new();
    let mut progress = PingProgress::new(args.client.json);
    for size in &task.sizes {
        let mut trips = open(session, task, *size)?;
        let warm_up = warm_up(trips.as_mut())?;
        trips.begin()?;
        let tell = |histogram: &Histogram<u64>| progress.tick(*size, histogram);
        let (histogram, client) = measure(args, trips.as_mut(), warm_up, tell)?;
        session.channel().send(Enough { warm_up })?;
        let server: Usage = session.channel().recv()?;
        report.rows.push(Row::new(*size, &histogram, Processors { client, server }));
        histograms.push(histogram);
        if interrupt::is_asked() {
            report.head.is_interrupted = true;
            break;
        }
    }
    Ok((report, histograms))
}

/// Makes round trips that do not count, until there are enough or the user interrupts. Returns
/// their number.
fn warm_up(trips: &mut dyn Trips) -> Result<u64> {
    let began = Instant::now();
    let mut done = 0;
    while done < WARM_UP && began.elapsed() < WARM_UP_TIME && !interrupt::is_asked() {
        trips.go(done)?;
        trips.check(done)?;
        done += 1;
    }
    Ok(done)
}

/// Measures the round trips of one size. `tell` is called between them.
fn measure(
    args: &PingArgs,
    trips: &mut dyn Trips,
    warm_up: u64,
    mut tell: impl FnMut(&Histogram<u64>),
) -> Result<(Histogram<u64>, Usage)> {
    let mut histogram = measure::histogram();
    let stopwatch = Stopwatch::start();
    let is_enough = |done: u64| match args.seconds {
        Some(time) => stopwatch.elapsed() >= time,
        None => done >= args.count,
    };
    let mut done = 0;
    while !is_enough(done) && !interrupt::is_asked() {
        let number = warm_up + done;
        let rtt = trips.go(number)?;
        histogram.saturating_record(rtt.as_nanos() as u64);
        trips.check(number)?;
        done += 1;
        tell(&histogram);
    }
    Ok((histogram, stopwatch.usage()))
}

/// Sends one message there and back.
trait Trips {
    /// Sends message `number`, waits for its answer, and returns the time taken.
    fn go(&mut self, number: u64) -> Result<Duration>;

    /// Checks the answer.
    fn check(&mut self, number: u64) -> Result<(), Failure>;

    /// Ends the warm-up. The other side is notified only if it has no answers to count.
    fn begin(&self) -> Result<()> {
        Ok(())
    }
}

fn open(session: &Session, task: &Task, size: usize) -> Result<Box<dyn Trips>> {
    let (engine, channel) = (&session.engine, session.channel().clone());
    let pattern = Pattern::new(task.seed, size);
    Ok(match task.operation {
        Operation::Send => Box::new(Messages { channel, pattern, answer: Vec::new() }),
        Operation::Write => Box::new(Writes::open(engine, channel, pattern)?),
        Operation::Read => Box::new(Reads::open(engine, channel, pattern)?),
    })
}

struct Messages {
    channel: Channel,
    pattern: Pattern,
    answer: Vec<u8>,
}

impl Trips for Messages {
    fn go(&mut self, number: u64) -> Result<Duration> {
        let message = self.pattern.stamped(number).to_vec();
        let began = Instant::now();
        self.channel.peer.send(message).wait(self.pattern.patience())?;
        self.answer = self.channel.recv_bytes(self.pattern.patience())?;
        Ok(began.elapsed())
    }

    fn check(&mut self, number: u64) -> Result<(), Failure> {
        self.pattern.check(number, &self.answer)
    }
}

/// Alters one byte.
pub(super) fn alter(bytes: &mut [u8]) {
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
}

/// One side's half of a ping by writes; both sides have one.
///
/// Messages alternate between two places, so that one can be checked while the next one may already
/// be in flight.
pub(super) struct Writes {
    pattern: Pattern,
    memory: Grant,
    counter: Counter,
    source: Option<Slice>,
    map: PageMap,
    channel: Channel,
    targets: [RemoteSlice; 2],
    target_counter: RemoteCounter,
    found: Vec<u8>,
}

impl Writes {
    pub(super) fn open(engine: &Engine, channel: Channel, pattern: Pattern) -> Result<Self> {
        let len = pattern.len();
        let memory = registered::grant(&channel.peer, registered::allocate(engine, 2 * len)?, Rights::WRITE)?;
        let counter = registered::open_counter(&channel.peer)?;
        channel.send(Ends { memory: memory.token(), counter: counter.token() })?;
        let theirs: Ends = channel.recv()?;
        let target = channel.peer.remote(theirs.memory).wait(patience(0))?;
        let half = |start| {
            target.get(start..start + len as u64).context("the memory of the other side is too short")
        };
        let targets = [half(0)?, half(len as u64)?];
        let target_counter = channel.peer.remote_counter(theirs.counter).wait(patience(0))?;
        let (source, map) = (Some(registered::allocate(engine, len)?), PageMap::of(len as u64).first(1));
        let found = vec![0; len];
        Ok(Self { pattern, memory, counter, source, map, channel, targets, target_counter, found })
    }

    /// Generates the bytes of message `number`.
    pub(super) fn prepare(&mut self, number: u64) {
        if let Some(source) = &mut self.source {
            source.copy_from_slice(self.pattern.stamped(number));
        }
    }

    /// Alters the prepared bytes.
    pub(super) fn alter(&mut self) {
        if let Some(source) = &mut self.source {
            alter(source);
        }
    }

    /// Writes the prepared bytes to the other side.
    pub(super) fn write(&mut self, number: u64) -> Result<()> {
        let Some(source) = self.source.take() else { bail!("the buffer was lost with the last write") };
        let target = &self.targets[(number % 2) as usize];
        let mut transfer =
            self.channel.peer.write_pages(source, &self.map, target, Some(&self.target_counter));
        match transfer.wait(self.pattern.patience())?.buffer {
            Buffer::Slice(slice) => self.source = Some(slice),
            _ => bail!("a write returned a buffer of another kind"),
        }
        Ok(())
    }

    /// Waits until the other side's message `number` has arrived.
    pub(super) fn wait(&self, number: u64, patience: Duration) -> Result<(), Error> {
        self.counter.reach(number + 1).wait(patience)
    }

    /// Checks the bytes of the other side's message.
    pub(super) fn look(&mut self, number: u64) -> Result<(), Failure> {
        self.memory.read_at((number % 2) as usize * self.pattern.len(), &mut self.found);
        self.pattern.check(number, &self.found)
    }
}

impl Trips for Writes {
    fn go(&mut self, number: u64) -> Result<Duration> {
        self.prepare(number);
        let began = Instant::now();
        self.write(number)?;
        match self.wait(number, self.pattern.patience()) {
            Ok(()) => Ok(began.elapsed()),
            Err(error) => Err(self.channel.why_not(&error, "the answer").into()),
        }
    }

    fn check(&mut self, number: u64) -> Result<(), Failure> {
        self.look(number)
    }
}

struct Reads {
    channel: Channel,
    pattern: Pattern,
    memory: RemoteSlice,
    into: Option<Slice>,
    map: PageMap,
}

impl Reads {
    fn open(engine: &Engine, channel: Channel, pattern: Pattern) -> Result<Self> {
        let memory = channel.peer.remote(channel.recv()?).wait(patience(0))?;
        let len = pattern.len();
        let (into, map) = (Some(registered::allocate(engine, len)?), PageMap::of(len as u64).first(1));
        Ok(Self { channel, pattern, memory, into, map })
    }
}

impl Trips for Reads {
    fn go(&mut self, _number: u64) -> Result<Duration> {
        let Some(mut into) = self.into.take() else { bail!("the buffer was lost with the last read") };
        // Stale bytes must not look like the expected ones.
        into.fill(0);
        let began = Instant::now();
        let mut transfer = self.channel.peer.read_pages(&self.memory, &self.map, into);
        match transfer.wait(self.pattern.patience())?.buffer {
            Buffer::Slice(slice) => self.into = Some(slice),
            _ => bail!("a read returned a buffer of another kind"),
        }
        Ok(began.elapsed())
    }

    fn check(&mut self, _number: u64) -> Result<(), Failure> {
        self.pattern.check(0, self.into.as_deref().unwrap_or_default())
    }

    fn begin(&self) -> Result<()> {
        self.channel.send(Begin)?;
        let Begin = self.channel.recv()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Round trips that take this long, and come in order.
    struct Slow(Duration, u64);

    impl Trips for Slow {
        fn go(&mut self, number: u64) -> Result<Duration> {
            assert_eq!(number, self.1);
            self.1 += 1;
            thread::sleep(self.0);
            Ok(self.0)
        }

        fn check(&mut self, _number: u64) -> Result<(), Failure> {
            Ok(())
        }
    }

    #[test]
    fn a_warm_up_has_a_hundred_round_trips_or_takes_a_moment() {
        let mut quick = Slow(Duration::ZERO, 0);
        assert_eq!((warm_up(&mut quick).expect("it goes well"), quick.1), (WARM_UP, WARM_UP));
        let mut slow = Slow(WARM_UP_TIME / 4, 0);
        let done = warm_up(&mut slow).expect("it goes well");
        assert!((1..=4).contains(&done) && slow.1 == done, "{done}");
    }
}
