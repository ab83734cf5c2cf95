//! Many processes read the memory that one has published, beside threads that copy as much. Then the memory
//! is revoked while all of them write and read. Prints a line of JSON: `cargo xtask bench readers` runs it.
//!
//! Usage: `readers RAIL READERS MIB ROUNDS`.

#![allow(clippy::print_stdout, reason = "it is a program")]

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use farreach::{Access, Engine, Peer, RemoteSlice, Rights, Settings, Slice};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const SOON: Duration = Duration::from_secs(60);
const REVOKED_WITHIN: Duration = Duration::from_secs(10);

/// The bytes of one read, and those of one write.
const READ: usize = 4 << 20;
const WRITE: usize = 64 << 10;

/// What the owner writes when the memory is its own again.
const MARK: u8 = 0xee;

/// The operations that a reader still tries after the first one was refused.
const AFTERWARDS: usize = 10;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match &words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["read", rail, address, token] => read(rail, address, token),
        [rail, readers, mib, rounds] => {
            measure(rail, readers.parse()?, mib.parse::<usize>()? << 20, rounds.parse()?)
        }
        _ => Err("usage: readers RAIL READERS MIB ROUNDS".into()),
    }
}

/// A process that reads, and does what it is told.
struct Reader {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Reader {
    fn start(rail: &str, address: &str, token: &str) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["read", rail, address, token]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let orders = child.stdin.take().ok_or("it was piped")?;
        let answers = BufReader::new(child.stdout.take().ok_or("it was piped")?);
        Ok(Self { child, orders, answers })
    }

    fn tell(&mut self, order: &str) -> Result<()> {
        Ok(writeln!(self.orders, "{order}")?)
    }

    fn answer(&mut self) -> Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }
}

fn measure(rail: &str, readers: usize, len: usize, rounds: usize) -> Result<()> {
    let engine = Engine::with(Settings::new().name("publisher").rails([rail]))?;
    let address = engine.listen("127.0.0.1:0")?.to_string();
    let mut memory = engine.allocate(len).wait(SOON)?;
    memory.fill(1);
    let copied = memory.to_vec();
    let rights = Rights::READ | Rights::WRITE;
    let published = engine.publish_exposed(memory, rights, Access::Anyone).wait(SOON)?;
    let token = published.token().to_string();
    let mut peers = Vec::with_capacity(readers);
    let mut started = Vec::with_capacity(readers);
    for _ in 0..readers {
        let mut reader = Reader::start(rail, &address, &token)?;
        peers.push(engine.accept().wait(SOON)?);
        // It has opened the memory.
        reader.answer()?;
        started.push(reader);
    }
    let (mut rates, mut copies) = (Vec::new(), Vec::new());
    read_all(&mut started, len)?;
    for _ in 0..rounds {
        copies.push(copy_all(&copied, readers));
        rates.push(read_all(&mut started, len)?);
        rates.push(read_all(&mut started, len)?);
        copies.push(copy_all(&copied, readers));
    }

    started.iter_mut().try_for_each(|reader| reader.tell("until revoked"))?;
    std::thread::sleep(Duration::from_millis(500));
    let begin = Instant::now();
    let memory = published.revoke(REVOKED_WITHIN)?;
    let revoke_ms = begin.elapsed().as_secs_f64() * 1e3;
    memory.write_at(0, &vec![MARK; len]);
    let (mut moved, mut late) = (0, 0);
    for reader in &mut started {
        let answer = reader.answer()?;
        let (before, after) = answer.split_once(' ').ok_or("it tells two numbers")?;
        moved += before.parse::<u64>()?;
        late += after.parse::<u64>()?;
    }
    let changed = memory.to_vec().iter().filter(|byte| **byte != MARK).count();
    let is_slice = memory.try_into_slice().is_ok();
    for mut reader in started {
        drop(reader.orders);
        reader.child.wait()?;
    }
    drop(peers);
    println!(
        "{{\"gb_per_s\":{rates:?},\"copied_gb_per_s\":{copies:?},\"revoke_ms\":{revoke_ms:.1},\"moved\":{moved},\
         \"late\":{late},\"changed\":{changed},\"is_slice\":{is_slice}}}"
    );
    engine.close(SOON)?;
    Ok(())
}

/// Lets all readers read all of the memory. Returns the rate of all together.
fn read_all(readers: &mut [Reader], len: usize) -> Result<f64> {
    let begin = Instant::now();
    readers.iter_mut().try_for_each(|reader| reader.tell("read"))?;
    for reader in readers.iter_mut() {
        reader.answer()?;
    }
    Ok((readers.len() * len) as f64 / begin.elapsed().as_secs_f64() / 1e9)
}

/// Copies as much, by a thread for each processor: the limit of the machine's memory.
fn copy_all(from: &[u8], readers: usize) -> f64 {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let mut into = vec![0; READ];
                for _ in (thread..readers).step_by(threads) {
                    for part in from.chunks(READ) {
                        into[..part.len()].copy_from_slice(part);
                        std::hint::black_box(&into);
                    }
                }
            });
        }
    });
    (from.len() * readers) as f64 / begin.elapsed().as_secs_f64() / 1e9
}

fn read(rail: &str, address: &str, token: &str) -> Result<()> {
    let engine = Engine::with(Settings::new().name("reader").rails([rail]))?;
    let publisher = engine.connect(address)?.wait(SOON)?;
    let remote = publisher.open(token.parse()?).wait(SOON)?;
    let mut into = engine.allocate(READ).wait(SOON)?;
    println!("open");
    for order in std::io::stdin().lines() {
        match order?.as_str() {
            "read" => {
                for at in (0..remote.len()).step_by(READ) {
                    into = publisher.read(&remote.at(at), into).wait(SOON)?.buffer;
                }
                println!("done");
            }
            _ => {
                let (moved, late) = until_revoked(&engine, &publisher, &remote, &mut into)?;
                println!("{moved} {late}");
            }
        }
    }
    Ok(())
}

/// Writes and reads until the memory is revoked. Returns the number of operations until then, and of those that
/// succeeded later.
fn until_revoked(
    engine: &Engine,
    publisher: &Peer,
    remote: &RemoteSlice,
    into: &mut Slice,
) -> Result<(u64, u64)> {
    let mut source = engine.allocate(WRITE).wait(SOON)?;
    source.fill(std::process::id() as u8);
    let source = source.share();
    let (mut moved, mut late, mut refused) = (0, 0, 0);
    let mut whole = into.split_off(0);
    let mut at = u64::from(std::process::id()) * WRITE as u64;
    while refused < AFTERWARDS {
        at = (at + WRITE as u64) % remote.len();
        let written = publisher.write(source.clone(), &remote.at(at)).wait(SOON);
        let read = publisher.read(&remote.at(0), whole).wait(SOON);
        for is_done in [written.is_ok(), read.is_ok()] {
            match (is_done, refused) {
                (true, 0) => moved += 1,
                (true, _) => late += 1,
                (false, _) => refused += 1,
            }
        }
        whole = match read {
            Ok(done) => done.buffer,
            Err(failed) => failed.buffer.ok_or("its memory is back")?,
        };
    }
    *into = whole;
    Ok((moved, late))
}
