//! Many clients of one server at once, some of which are killed in the middle.

use std::env;
use std::thread;
use std::time::{Duration, Instant};

use rand_mt::Mt;

use super::client::Client;
use super::server::Server;

/// A crowd of clients.
#[derive(Debug)]
pub(crate) struct Crowd {
    /// So many at once.
    pub(crate) clients: usize,
    /// So many of them are killed, and replaced.
    pub(crate) killed: usize,
    /// What `-d` may name.
    pub(crate) devices: &'static [&'static str],
    /// New ones come for so long.
    pub(crate) lasts: Duration,
    /// Those that came last may take so long.
    pub(crate) patience: Duration,
    /// By which it is repeated.
    pub(crate) seed: u32,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Clients that came to their end, by command.
    pub(crate) pings: usize,
    pub(crate) fills: usize,
    pub(crate) blasts: usize,
    pub(crate) killed: usize,
    pub(crate) elapsed: Duration,
}

impl Outcome {
    pub(crate) fn finished(&self) -> usize {
        self.pings + self.fills + self.blasts
    }
}

/// How long a crowd is to last: so long, or what the person has asked for.
pub(crate) fn seconds(usually: u64) -> Duration {
    let seconds = match env::var("FARREACH_CROWD_SECONDS") {
        Ok(seconds) => seconds.parse().expect("FARREACH_CROWD_SECONDS is a number"),
        Err(_) => usually,
    };
    Duration::from_secs(seconds)
}

/// How many come at once: so many, or what the person has asked for.
pub(crate) fn clients(usually: usize) -> usize {
    match env::var("FARREACH_CROWD_CLIENTS") {
        Ok(clients) => clients.parse().expect("FARREACH_CROWD_CLIENTS is a number"),
        Err(_) => usually,
    }
}

impl Crowd {
    /// Lets them all come. Those that are not killed have to end with 0, which means that every byte was checked.
    pub(crate) fn run(&self, server: &Server) -> Outcome {
        let (mut random, mut outcome, began) = (Mt::new(self.seed), Outcome::default(), Instant::now());
        let mut kills: Vec<Duration> = (0..self.killed)
            .map(|_| self.lasts.mul_f64(f64::from(random.next_u32()) / 2_f64.powi(32)))
            .collect();
        kills.sort_unstable();
        let mut present: Vec<(Client, Kind)> =
            (0..self.clients).map(|_| self.one(server, &mut random)).collect();
        while began.elapsed() < self.lasts {
            for place in &mut present {
                if place.0.has_ended() {
                    let next = self.one(server, &mut random);
                    outcome.take(std::mem::replace(place, next), Duration::ZERO);
                }
            }
            while kills.first().is_some_and(|at| began.elapsed() >= *at) {
                kills.remove(0);
                let chosen = random.next_u32() as usize % present.len();
                let next = self.one(server, &mut random);
                if !outcome.kill(std::mem::replace(&mut present[chosen], next)) {
                    // It had ended by itself meanwhile: another one has to go.
                    kills.insert(0, Duration::ZERO);
                }
            }
            thread::sleep(Duration::from_millis(20));
        }
        present.into_iter().for_each(|client| outcome.take(client, self.patience));
        outcome.elapsed = began.elapsed();
        outcome
    }

    /// One client, of any kind.
    fn one(&self, server: &Server, random: &mut Mt) -> (Client, Kind) {
        let mut pick = |from: &[&'static str]| from[random.next_u32() as usize % from.len()];
        let (device, wait) = (pick(self.devices), pick(&["busy", "event", "adaptive", "adaptive"]));
        let (kind, words) = match pick(&["ping", "ping", "fill", "blast"]) {
            "ping" => {
                let (operation, sizes) =
                    (pick(&["send", "write", "read"]), pick(&["1", "64", "8,4K", "64K", "7,1000,100000"]));
                (Kind::Ping, vec!["--op", operation, "-s", sizes, "-n", pick(&["1", "50", "300"])])
            }
            "fill" => {
                let (bytes, pages) = (pick(&["8", "4K", "64K"]), pick(&["1", "33", "200"]));
                (
                    Kind::Fill,
                    vec!["--page-size", bytes, "--pages", pages, "--regions", pick(&["1", "2", "5"])],
                )
            }
            _ => {
                let mut words = vec!["-s", pick(&["8", "4K", "256K"]), "--depth", pick(&["1", "16", "64"])];
                words.extend(["-n", pick(&["10", "200"])]);
                words.extend(Some(pick(&["", "-r", "-b"])).filter(|flag| !flag.is_empty()));
                (Kind::Blast, words)
            }
        };
        (server.start_client(kind.command(), &[&["-d", device, "--wait", wait], &words[..]].concat()), kind)
    }
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Ping,
    Fill,
    Blast,
}

impl Kind {
    fn command(self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::Fill => "fill",
            Self::Blast => "blast",
        }
    }
}

impl Outcome {
    fn take(&mut self, (client, kind): (Client, Kind), patience: Duration) {
        let told = format!("{client:?}");
        let ended = client.end_within(patience);
        assert_eq!(ended.code, Some(0), "{told}: {ended:#?}");
        match kind {
            Kind::Ping => self.pings += 1,
            Kind::Fill => self.fills += 1,
            Kind::Blast => self.blasts += 1,
        }
    }

    /// Whether it was still there.
    fn kill(&mut self, (mut client, kind): (Client, Kind)) -> bool {
        if client.has_ended() {
            self.take((client, kind), Duration::ZERO);
            return false;
        }
        client.kill();
        self.killed += 1;
        true
    }
}
