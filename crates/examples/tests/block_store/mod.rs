//! Tests of the block store, as a user runs it: a store, workers, and SIGKILL. Each takes a rail.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use farreach::{Engine, Settings};
use farreach_testkit::example;
use rustix::process::{Pid, Signal, kill_process};

/// What takes longer hangs: everything here takes seconds, also on a busy machine that emulates another.
const HANG: Duration = Duration::from_secs(120);

/// More rounds than a test lets a worker do.
const ENDLESS: &str = "rounds=1000000000000";

/// The options of a store that its workers rewrite in no time.
const SMALL: [&str; 3] = ["workers=2", "blocks=16", "len=4096"];

/// A program that is killed on drop if it still runs.
struct Program {
    name: String,
    child: Child,
    /// The lines of its output, until it ends.
    lines: Receiver<String>,
    /// Those that were received.
    said: Vec<String>,
}

impl Program {
    fn start(rail: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(example("block_store"));
        command.args(arguments).arg(format!("rail={rail}"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (sender, lines) = channel();
        forward(child.stdout.take(), sender.clone());
        forward(child.stderr.take(), sender);
        Self { name: arguments.join(" "), child, lines, said: Vec::new() }
    }

    /// Starts a store, and returns it with its address.
    fn serve(rail: &str, options: &[&str]) -> (Self, String) {
        let mut store = Self::start(rail, &[&["serve", "127.0.0.1:0"], options].concat());
        let line = store.line("listening at ");
        let address = line.split(' ').next_back().expect("the address is the last word").to_owned();
        (store, address)
    }

    fn work(rail: &str, address: &str, rounds: &str) -> Self {
        Self::start(rail, &["work", address, rounds])
    }

    /// Starts a worker without an end, and waits until it has written and read.
    fn work_endlessly(rail: &str, address: &str) -> Self {
        let mut worker = Self::work(rail, address, ENDLESS);
        worker.line(" rounds, ");
        worker
    }

    /// Waits for a line that contains this.
    #[track_caller]
    fn line(&mut self, part: &str) -> String {
        self.line_that(part, |line| line.contains(part))
    }

    /// Waits for such a line. Earlier ones are not looked at again.
    #[track_caller]
    fn line_that(&mut self, what: &str, is_it: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + HANG;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => self.said.push(line),
                Err(error) => panic!("{}: no line {what:?}, {error}: {:#?}", self.name, self.last_words()),
            }
            if let Some(line) = self.said.last().filter(|line| is_it(line)) {
                return line.clone();
            }
        }
    }

    fn last_words(&self) -> &[String] {
        &self.said[self.said.len().saturating_sub(20)..]
    }

    /// Waits for its end. Returns its exit code, which is `None` after a signal, and its last line.
    #[track_caller]
    fn end(&mut self) -> (Option<i32>, String) {
        let deadline = Instant::now() + HANG;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => self.said.push(line),
                // Both ends of its output are closed.
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("{} hangs: {:#?}", self.name, self.last_words()),
            }
        }
        let status = self.child.wait().expect("a child can be waited for");
        (status.code(), self.said.last().cloned().unwrap_or_default())
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("a child can be signalled");
    }

    /// Ends it by SIGKILL.
    #[track_caller]
    fn kill(mut self) {
        self.child.kill().expect("a child can be killed");
        let (code, last) = self.end();
        assert_eq!(code, None, "{} has ended by itself: {last}", self.name);
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends the lines of a program, on a thread of its own, so that a full pipe does not block the program.
fn forward(from: Option<impl Read + Send + 'static>, to: Sender<String>) {
    let lines = BufReader::new(from.expect("it is piped")).lines();
    thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| to.send(line)));
}

/// Starts a store with these options, and a worker for each of its shares. Returns the store's last line.
pub(crate) fn workers_read_and_write_all_blocks(
    rail: &str,
    options: &[&str],
    workers: usize,
    rounds: &str,
) -> String {
    let (mut store, address) = Program::serve(rail, options);
    let started: Vec<_> = (0..workers).map(|_| Program::work(rail, &address, rounds)).collect();
    for mut worker in started {
        let (code, last) = worker.end();
        assert_eq!(code, Some(0), "{last}");
    }
    let (code, last) = store.end();
    assert_eq!(code, Some(0), "{last}");
    last
}

/// The store and another worker continue, and nothing of a block that is written by half is taken for
/// good: a worker ends with a panic if it was, and so does the store.
pub(crate) fn a_worker_that_is_killed_leaves_the_store_and_the_others_at_work(rail: &str) {
    let (mut store, address) = Program::serve(rail, &SMALL);
    let killed = Program::work_endlessly(rail, &address);
    let mut survivor = Program::work_endlessly(rail, &address);
    killed.kill();
    store.line("share 0 is free: ");

    // SIGKILL seldom falls into a write, so the next worker leaves what it would leave then.
    let half = HalfWriter::new(rail, &address);
    survivor.line_that("with torn blocks", |line| line.contains(" rounds, ") && !line.ends_with(" 0 torn"));
    drop(half);
    store.line("share 0 is free: ");
    survivor.kill();
    store.line("share 1 is free: ");

    the_next_two_mend_all_blocks(rail, store, &address);
}

/// Two more workers get both shares, and write all of their blocks.
#[track_caller]
fn the_next_two_mend_all_blocks(rail: &str, mut store: Program, address: &str) {
    let next = [(); 2].map(|()| Program::work(rail, address, "rounds=100"));
    for mut worker in next {
        let (code, last) = worker.end();
        assert_eq!(code, Some(0), "{last}");
    }
    let (code, last) = store.end();
    assert_eq!(code, Some(0), "{last}");
    assert!(last.starts_with("16 blocks are good, 0 torn; "), "{last}");
}

/// A worker that is stopped may be in the middle of a write, and continue it at any time.
pub(crate) fn a_worker_that_is_stopped_loses_its_share_and_the_others_go_on(rail: &str) {
    let (mut store, address) = Program::serve(rail, &SMALL);
    let mut stopped = Program::work_endlessly(rail, &address);
    let mut survivor = Program::work_endlessly(rail, &address);
    stopped.signal(Signal::STOP);
    let begun = Instant::now();
    store.line("share 0 is free: ");
    // The store probes it every 10 s, and waits for 3 s for its answer, and for at most 30 s for its memory.
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
    let next = Program::work_endlessly(rail, &address);
    survivor.line(" rounds, ");
    stopped.signal(Signal::CONT);
    let (code, last) = stopped.end();
    assert_eq!(code, Some(4), "{last}");
    survivor.line(" rounds, ");
    for (worker, share) in [(next, 0), (survivor, 1)] {
        worker.kill();
        store.line(&format!("share {share} is free: "));
    }
    the_next_two_mend_all_blocks(rail, store, &address);
}

pub(crate) fn workers_of_a_store_that_is_killed_end_with_the_code_of_a_lost_store(rail: &str) {
    let (store, address) = Program::serve(rail, &SMALL);
    let workers = [(); 2].map(|()| Program::work_endlessly(rail, &address));
    store.kill();
    for mut worker in workers {
        let (code, last) = worker.end();
        assert_eq!(code, Some(4), "{last}");
        assert!(last.starts_with("error: the peer is lost: "), "{last}");
    }
    let (code, last) = Program::work(rail, &address, "rounds=1").end();
    assert_eq!(code, Some(4), "{last}");
    assert!(last.starts_with(&format!("error: connect to {address}: ")), "{last}");
}

/// A worker in this process that writes half of the first block of its share.
struct HalfWriter {
    _engine: Engine,
    _store: farreach::Peer,
}

impl HalfWriter {
    fn new(rail: &str, address: &str) -> Self {
        let engine = Engine::with(Settings::new().rails([rail])).unwrap();
        let store = engine.connect(address).unwrap().wait(HANG).unwrap();
        let welcome = String::from_utf8(store.recv().wait(HANG).unwrap()).unwrap();
        let [worker, share, _, len, memory, _] = welcome.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{welcome}");
        };
        let [worker, share, len] = [worker, share, len].map(|word| word.parse::<u64>().unwrap());
        let blocks = store.open(memory.parse().unwrap()).wait(HANG).unwrap();
        let mut half = vec![0xa5; len as usize / 2];
        half[..8].copy_from_slice(&(worker << 32).to_ne_bytes());
        store.write(half, &blocks.at(share * len)).wait(HANG).unwrap();
        Self { _engine: engine, _store: store }
    }
}
