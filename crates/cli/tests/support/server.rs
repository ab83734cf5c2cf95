//! A server that a test's clients talk to. It ends with the test, also when that fails.
#![allow(dead_code, reason = "each test uses its part")]

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

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

impl Place {
    fn command(self, words: &[&str]) -> Command {
        match self {
            Self::Here => {
                let mut command = Command::new(words[0]);
                command.args(&words[1..]);
                command
            }
            Self::Host(host) => host.command(words),
        }
    }
}

/// How long it may take to be there, to say something, or to end. A guest is slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// Notes its process id, which another host may have given it, and becomes the server. Its output goes to files, because what is said on
/// another machine comes only when the command there has ended.
const NOTE_AND_BECOME: &str =
    r#"files=$1; shift; echo $$ > $files.pid && exec "$@" > $files.out 2> $files.err < /dev/null"#;

impl Server {
    /// Starts one beside the test, with these words besides the port.
    pub(crate) fn start(words: &[&str]) -> Self {
        Self::start_at(Place::Here, words)
    }

    /// Starts one in a guest: on the other host, where there are two.
    pub(crate) fn start_far(words: &[&str]) -> Self {
        let host = Host::all().last().expect("a guest has a host");
        Self::start_at(Place::Host(*host), words)
    }

    fn start_at(place: Place, words: &[&str]) -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let files = format!("/tmp/farreach-server-{}-{number}", std::process::id());
        let serve = ["sh", "-c", NOTE_AND_BECOME, "sh", &files, FARREACH, "serve", "-p", "0"];
        let mut command = place.command(&[&serve, words].concat());
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
        place.command(&[&[FARREACH, command, &address], words].concat())
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
        let mut client = self.client(command, words);
        let client = client.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = client.spawn().unwrap_or_else(|error| panic!("{client:?}: {error}"));
        self.wait_for_log(&format!("{command} from"));
        thread::sleep(after);
        let told = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        assert!(told.expect("kill, which every system has").success(), "the client is still there");
        Ended::of(child.wait_with_output().expect("a child can be waited for"))
    }

    /// What it has printed before clients came.
    pub(crate) fn greeting(&self) -> String {
        self.read("out")
    }

    /// What it has logged so far, line by line.
    pub(crate) fn log(&self) -> Vec<String> {
        self.read("err").lines().map(str::to_owned).collect()
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
        let kill = format!("kill -KILL $(cat /proc/$(cat {0}.pid)/task/$(cat {0}.pid)/children)", self.files);
        let ended = end_of(&mut self.place.command(&["sh", "-c", &kill]));
        assert_eq!(ended.code, Some(0), "there is an agent: {ended:#?}");
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_none()
    }

    fn read(&self, kind: &str) -> String {
        // It may not be there yet.
        let file = format!("{}.{kind}", self.files);
        end_of(&mut self.place.command(&["cat", &file])).stdout
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
fn port(greeting: &str) -> Option<u16> {
    let (first, _) = greeting.split_once('\n')?;
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
