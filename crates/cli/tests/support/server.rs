//! A server that a test's clients talk to. It ends with the test, also when that fails.
#![allow(dead_code, reason = "each test uses its part")]

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::client::Client;
use super::host::Host;
use super::run::{Ended, FARREACH, end_of};

/// `farreach serve`, on a port of its own.
#[derive(Debug)]
pub(crate) struct Server {
    place: Place,
    /// What its files are called: its output, its log and its process id.
    files: String,
    /// The one who started it, which ends with it.
    child: Child,
    port: u16,
}

/// Where it runs.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// Beside the test.
    Here,
    /// On a host of a guest.
    Host(Host),
}

/// What both sides in a guest have: they are on different hosts, or could be. The environment has it, because a host of its own
/// has none of this test's files.
pub(crate) const SECRET: &str =
    "FARREACH_SECRET=5f1d7a9c03e2b846d1f0a37c9be4582610cc47e39a5d8b71f2640e9d3ab8c75e";

impl Place {
    /// What comes before the command under test there.
    fn lead(self) -> &'static [&'static str] {
        match self {
            Self::Here => &[],
            Self::Host(_) => &["env", SECRET],
        }
    }

    fn command(self, words: &[&str]) -> Command {
        match self {
            Self::Here => {
                let mut command = Command::new(words[0]);
                command.args(&words[1..]).env_remove("FARREACH_SECRET");
                command
            }
            Self::Host(host) => host.command(words),
        }
    }

    /// What is in a file there; nothing if it is not there yet.
    fn read(self, file: &str) -> String {
        match self {
            Self::Host(host) if !host.is_this_machine() => end_of(&mut self.command(&["cat", file])).stdout,
            // A process for each look would cost an emulated machine more than what is waited for.
            _ => fs::read_to_string(file).unwrap_or_default(),
        }
    }
}

/// How long it may take to be there, to say something, or to end: longer than any machine needs, because it only detects a hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// Tries something with a longer and longer pause until it went well, or the pause is longer than any machine needs: what came of it last.
pub(crate) fn sooner_or_later<T>(
    mut attempt: impl FnMut(Duration) -> T,
    went_well: impl Fn(&T) -> bool,
) -> T {
    let mut pause = Duration::from_millis(300);
    loop {
        let outcome = attempt(pause);
        if went_well(&outcome) || pause > Duration::from_secs(30) {
            return outcome;
        }
        pause *= 4;
    }
}

/// Notes its process id, which another host may have given it, limits itself, and becomes the server. Its output goes to files, because what is
/// said on another machine comes only when the command there has ended.
const NOTE_AND_BECOME: &str = r#"files=$1; limits=$2; shift 2; echo $$ > $files.pid && eval "$limits" && exec "$@" > $files.out 2> $files.err < /dev/null"#;

impl Server {
    /// Starts one beside the test, with these words besides the port.
    pub(crate) fn start(words: &[&str]) -> Self {
        Self::start_at(Place::Here, words, ":")
    }

    /// The same within a limit that this shell command sets.
    pub(crate) fn start_within(limit: &str, words: &[&str]) -> Self {
        Self::start_at(Place::Here, words, limit)
    }

    /// Starts one in a guest: on the other host, where there are two.
    pub(crate) fn start_far(words: &[&str]) -> Self {
        let host = Host::all().last().expect("a guest has a host");
        Self::start_at(Place::Host(*host), words, ":")
    }

    fn start_at(place: Place, words: &[&str], limit: &str) -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let files = format!("/tmp/farreach-server-{}-{number}", std::process::id());
        let note = ["sh", "-c", NOTE_AND_BECOME, "sh", &files, limit];
        let serve = [FARREACH, "serve", "-p", "0"];
        // Beside the test it is for this host only, unless the test says otherwise.
        let is_chosen =
            words.iter().any(|word| ["-l", "--insecure", "--secret-file", "--tls"].contains(word));
        let listen: &[&str] = match place {
            Place::Here if !is_chosen => &["-l", "127.0.0.1"],
            _ => &[],
        };
        let mut command = place.command(&[&note, place.lead(), &serve, listen, words].concat());
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut server = Self { place, files, child, port: 0 };
        server.port = server.wait_for("say where it listens", |server| {
            assert!(server.is_running(), "it has ended: {:?}", server.log());
            port(&server.read("out"))
        });
        server
    }

    /// Where clients reach it.
    pub(crate) fn address(&self) -> String {
        let host = match self.place {
            Place::Here => "127.0.0.1",
            Place::Host(_) if Host::all().len() == 1 => "192.0.2.1",
            Place::Host(_) => "192.0.2.2",
        };
        format!("{host}:{}", self.port)
    }

    /// A client of it, beside the test or on a guest's first host: `farreach COMMAND ADDRESS WORDS…`.
    pub(crate) fn client(&self, command: &str, words: &[&str]) -> Command {
        let (address, place) = (self.address(), self.place_of_clients());
        place.command(&[place.lead(), &[FARREACH, command, &address], words].concat())
    }

    fn place_of_clients(&self) -> Place {
        match self.place {
            Place::Here => Place::Here,
            Place::Host(_) => Place::Host(Host::HERE),
        }
    }

    /// Runs a client to its end.
    pub(crate) fn run(&self, command: &str, words: &[&str]) -> Ended {
        end_of(&mut self.client(command, words))
    }

    /// Runs a client that is interrupted, as by Ctrl-C, when the server has begun to serve it and so much time has passed.
    pub(crate) fn interrupt(&mut self, command: &str, words: &[&str], after: Duration) -> Ended {
        let client = self.start_served(command, words);
        thread::sleep(after);
        client.signal("INT");
        client.end_within(PATIENCE)
    }

    /// The same once the client has measured enough to tell of: sooner or later, as fast as the machine is.
    pub(crate) fn interrupt_once(
        &mut self,
        command: &str,
        words: &[&str],
        has_enough: impl Fn(&Ended) -> bool,
    ) -> Ended {
        sooner_or_later(|after| self.interrupt(command, words, after), has_enough)
    }

    /// What it has printed before clients came.
    pub(crate) fn startup_lines(&self) -> String {
        self.read("out")
    }

    /// What it has logged so far, line by line.
    pub(crate) fn log(&self) -> Vec<String> {
        self.read("err").lines().map(str::to_owned).collect()
    }

    /// How many lines it has logged with these words.
    pub(crate) fn count_log(&self, words: &str) -> usize {
        self.log().iter().filter(|line| line.contains(words)).count()
    }

    /// Waits until it has logged so many lines with these words.
    pub(crate) fn wait_for_logs(&mut self, words: &str, count: usize) {
        self.wait_for(&format!("log {words:?} {count} times"), |server| {
            (server.count_log(words) >= count).then_some(())
        });
    }

    /// Waits until it has logged a line with these words.
    pub(crate) fn wait_for_log(&mut self, words: &str) -> String {
        self.wait_for(&format!("log {words:?}"), |server| {
            server.log().into_iter().find(|line| line.contains(words))
        })
    }

    /// Sends it a signal, by its id.
    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -{name} $(cat {}.pid)", self.files);
        // It may have ended by itself.
        let _ = end_of(&mut self.place.command(&["sh", "-c", &kill]));
    }

    /// Kills the agents that serve its clients, by their ids, and not itself.
    pub(crate) fn kill_agents(&self) {
        self.signal_agents("KILL");
    }

    /// Sends the agents that serve its clients a signal, by their ids, and not itself.
    pub(crate) fn signal_agents(&self, name: &str) {
        let kill =
            format!("kill -{name} $(cat /proc/$(cat {0}.pid)/task/$(cat {0}.pid)/children)", self.files);
        let ended = end_of(&mut self.place.command(&["sh", "-c", &kill]));
        assert_eq!(ended.code, Some(0), "there is an agent: {ended:#?}");
    }

    /// Sends the agents that serve its clients a signal, by their ids, again and again until there is none.
    pub(crate) fn signal_agents_until_they_end(&mut self, name: &str) {
        self.signal_agents(name);
        self.wait_for(&format!("lose its agents by {name}"), |server| {
            let children = "$(cat /proc/PID/task/PID/children)";
            // One may end between the look and the signal.
            server
                .ask(&format!("for agent in {children}; do kill -{name} $agent; done 2> /dev/null || true"));
            (server.agents() == 0).then_some(())
        });
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.read("pid").trim().parse().expect("a process id")
    }

    /// How many agents serve its clients.
    pub(crate) fn agents(&self) -> usize {
        self.agent_ids().len()
    }

    /// The process ids of the agents that serve its clients.
    pub(crate) fn agent_ids(&self) -> Vec<u32> {
        let pid = self.read("pid");
        let pid = pid.trim();
        let children = self.place.read(&format!("/proc/{pid}/task/{pid}/children"));
        children.split_whitespace().map(|pid| pid.parse().expect("a process id")).collect()
    }

    /// Waits until the last of its clients is not served any more.
    pub(crate) fn wait_for_no_agent(&mut self) {
        self.wait_for_no_agent_but(0);
    }

    /// Waits until so many are served at most.
    pub(crate) fn wait_for_no_agent_but(&mut self, count: usize) {
        self.wait_for(&format!("have {count} agents only"), |server| {
            (server.agents() <= count).then_some(())
        });
    }

    /// Returns whether it has a descriptor of this number.
    pub(crate) fn has_descriptor(&self, number: u64) -> bool {
        fs::symlink_metadata(format!("/proc/{}/fd/{number}", self.id())).is_ok()
    }

    /// How many descriptors it has open.
    pub(crate) fn descriptors(&self) -> usize {
        self.ask("ls /proc/PID/fd | wc -l").trim().parse().expect("a number")
    }

    /// How much memory it has, in KiB.
    pub(crate) fn memory_kib(&self) -> u64 {
        let status = self.ask("cat /proc/PID/status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a process has memory");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// What it has mapped, libraries among it.
    pub(crate) fn maps(&self) -> String {
        self.ask("cat /proc/PID/maps")
    }

    /// What a shell where it runs says, with PID for its id.
    fn ask(&self, script: &str) -> String {
        let script = format!("pid=$(cat {}.pid); {}", self.files, script.replace("PID", "$pid"));
        end_of(&mut self.place.command(&["sh", "-c", &script])).stdout
    }

    /// Starts a client, and gives it back while it runs.
    pub(crate) fn start_client(&self, command: &str, words: &[&str]) -> Client {
        Client::start(&mut self.client(command, words))
    }

    /// Starts a client, and gives it back when the server has begun to serve it.
    pub(crate) fn start_served(&mut self, command: &str, words: &[&str]) -> Client {
        let begun = format!("{command} from");
        let before = self.count_log(&begun);
        let client = self.start_client(command, words);
        self.wait_for_logs(&begun, before + 1);
        client
    }

    /// Starts a fill with these words more, and gives it back when its pages come.
    ///
    /// How fast a fill is differs from machine to machine by more than ten times. So it has more pages until it lasts long enough: it tells of its
    /// progress a second after the first page may have come.
    pub(crate) fn start_fill(&self, words: &[&str]) -> Client {
        for pages in ["300000", "1500000", "12000000"] {
            let mut client = self.start_client("fill", &[words, &["-s", "8", "-n", pages]].concat());
            if client.says_before_its_end(" of ", PATIENCE) {
                return client;
            }
            let ended = client.end_within(PATIENCE);
            assert_eq!(ended.code, Some(0), "a fill of {pages} pages: {ended:#?}");
        }
        panic!("a fill of 24,000,000 pages takes less than a second");
    }

    /// Starts a fill with these words more, and gives it back while its agent makes the pages, which takes seconds: each has a generator of its own.
    pub(crate) fn start_fill_that_is_prepared(&mut self, words: &[&str]) -> Client {
        self.start_served("fill", &[words, &["-s", "8", "-n", "500000"]].concat())
    }

    /// Tells it to end by this signal: with which code it did, if it did within so long. What another one started has no code here.
    pub(crate) fn end(&mut self, signal: &str, limit: Duration) -> Option<i32> {
        self.signal(signal);
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                return status.code();
            }
            assert!(Instant::now() < deadline, "it does not end within {limit:?}: {:#?}", self.log());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// How it has ended by itself, if it does within so long.
    pub(crate) fn end_by_itself(&mut self, limit: Duration) -> Option<i32> {
        let deadline = Instant::now() + limit;
        while self.is_running() {
            assert!(Instant::now() < deadline, "it does not end: {:#?}", self.log());
            thread::sleep(Duration::from_millis(10));
        }
        self.child.wait().expect("a child can be waited for").code()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_none()
    }

    fn read(&self, kind: &str) -> String {
        self.place.read(&format!("{}.{kind}", self.files))
    }

    fn wait_for<T>(&mut self, what: &str, mut attempt: impl FnMut(&mut Self) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = attempt(self) {
                return found;
            }
            assert!(Instant::now() < deadline, "the server does not {what}: {:#?}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The port of `listening on port 4711, every address`, or of `listening on 127.0.0.1:4711`.
fn port(startup_lines: &str) -> Option<u16> {
    let (first, _) = startup_lines.split_once('\n')?;
    let place = first.strip_prefix("listening on ")?;
    let digits = match place.strip_prefix("port ") {
        Some(rest) => rest.split(',').next()?,
        None => place.rsplit(':').next()?,
    };
    digits.parse().ok()
}

impl Drop for Server {
    fn drop(&mut self) {
        self.signal("KILL");
        let deadline = Instant::now() + PATIENCE;
        while self.is_running() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
        let remove = format!("rm -f {0}.pid {0}.out {0}.err", self.files);
        let _ = self.place.command(&["sh", "-c", &remove]).status();
    }
}
