//! Commands tried over a rail, as a user does: what each says is the same over all of them.
#![allow(dead_code, reason = "each test uses its part")]

use std::time::Duration;

use serde_json::Value;

use super::mask::masked;
use super::run::Ended;
use super::schema;
use super::server::Server;

/// One rail, and how much is asked of it: a guest is slow.
#[derive(Debug)]
pub(crate) struct Rail {
    pub(crate) server: Server,
    /// What `-d` calls it.
    pub(crate) device: &'static str,
    /// What the client calls it, and what its server does.
    pub(crate) names: [&'static str; 2],
    pub(crate) is_rdma: bool,
    /// Round trips of a ping.
    pub(crate) trips: u64,
    /// Pages of a fill, in each region.
    pub(crate) pages: u64,
    /// Messages of a blast, each way.
    pub(crate) messages: u64,
    /// Each thing is tried once: as a person reads it, or as a program does.
    pub(crate) is_slow: bool,
}

/// What each command prints, figures and rail masked.
const PING: &str = "\
ping N:N over RAIL: OPERATION
SIZE TRIPS MIN PN PN PN PN MAX CPU PEER CPU
N UNIT N N N N N N N N % N %
N UNIT N N N N N N N N % N %
RTT in µs; CPU in % of one core; every byte was checked
";

const FILL: &str = "\
fill from N:N over RAIL: pages into N regions
written N pages of N UNIT: N UNIT in N UNIT
rate N UNIT, N UNIT
rail RAIL: N UNIT in N writes, N with immediate
CPU client N %, server N % of one core
verified N UNIT: N UNIT written, N UNIT of gaps unchanged (seed N)
";

const BLAST: &str = "\
blast N:N over RAIL: writes of N UNIT
depth N messages in flight, for N UNIT
WAYS
CPU client N %, server N % of one core
verified final contents match
";

impl Rail {
    /// Runs a command over it.
    pub(crate) fn run(&self, command: &str, words: &[&str]) -> Ended {
        self.server.run(command, &[&["-d", self.device], words].concat())
    }

    /// Runs one that has to go well: what a person reads, masked.
    fn screen(&self, command: &str, words: &[&str]) -> String {
        let ended = self.run(command, words);
        assert_eq!(ended.code, Some(0), "{command} {words:?}: {ended:#?}");
        self.assert_quiet(&ended);
        let is_rdma = if self.is_rdma { "(RDMA)" } else { "(no RDMA)" };
        let [client, server] = self.names;
        masked(&ended.stdout, &[&format!("{client} {is_rdma}"), client, server])
    }

    /// The same, as a program reads it: valid by its schema, and over this rail.
    pub(crate) fn report(&self, command: &str, words: &[&str]) -> Value {
        let ended = self.run(command, &[words, &["--json"]].concat());
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{command} {words:?}: {ended:#?}");
        let report = ended.json();
        schema::assert_valid(command, &report);
        assert_eq!(report["is_interrupted"], false);
        self.assert_over(&report);
        report
    }

    fn assert_over(&self, report: &Value) {
        let rails = report["rails"].as_array().expect("rails are a list");
        let told: Vec<_> = rails.iter().map(|rail| (rail["name"].as_str(), &rail["is_rdma"])).collect();
        assert_eq!(told, [(Some(self.names[0]), &self.is_rdma.into())], "{report:#}");
    }

    /// Nothing but progress, where it takes longer than a second; and nothing coloured.
    fn assert_quiet(&self, ended: &Ended) {
        let is_progress =
            |line: &str| line.trim_start().starts_with(|it: char| it.is_ascii_digit()) && line.contains("/s");
        assert!(ended.stderr.lines().all(is_progress), "{self:?} does not go in silence: {ended:#?}");
        assert!(
            !ended.stdout.contains('\x1b') && !ended.stderr.contains('\x1b'),
            "something is coloured: {ended:#?}"
        );
    }

    /// Every operation, in two sizes.
    pub(crate) fn pings(&self) {
        let count = self.trips.to_string();
        for (operation, words) in
            [("send", "send round trips"), ("write", "write round trips"), ("read", "reads")]
        {
            let asked = ["--op", operation, "-s", "8,16K", "-n", &count];
            if !self.is_slow || operation == "write" {
                assert_eq!(self.screen("ping", &asked), PING.replace("OPERATION", words));
            }
            if self.is_slow && operation == "write" {
                continue;
            }
            let report = self.report("ping", &asked);
            assert_eq!(report["operation"], operation);
            let rows = report["rows"].as_array().expect("rows are a list");
            for (row, bytes) in rows.iter().zip([8, 16 * 1024]) {
                assert_eq!((&row["size_bytes"], &row["round_trips"]), (&bytes.into(), &self.trips.into()));
                let time = |name: &str| row["rtt"][name].as_u64().expect("a time");
                assert!(
                    0 < time("min_ns")
                        && time("min_ns") <= time("p50_ns")
                        && time("p50_ns") <= time("max_ns")
                );
            }
            assert_eq!(rows.len(), 2);
        }
    }

    /// One size has a histogram, whose counts add up.
    pub(crate) fn pings_show_a_histogram(&self) {
        let ended = self.run("ping", &["-n", &self.trips.to_string()]);
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        let (_, histogram) = ended.stdout.split_once("\n\n").expect("a paragraph of its own");
        assert!(histogram.lines().next().is_some_and(|line| line.contains("RTT, µs")), "{histogram}");
        let count = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let percent = words.iter().position(|word| *word == "%").expect("a percentage");
            words[percent - 2].parse::<u64>().expect("a count")
        };
        assert_eq!(histogram.lines().skip(1).map(count).sum::<u64>(), self.trips, "{histogram}");
    }

    /// However both sides wait.
    pub(crate) fn pings_wait_in_every_way(&self) {
        // The last one is what all the others have tried.
        let ways = ["busy", "event", "adaptive"];
        for wait in &ways[..if self.is_slow { 2 } else { 3 }] {
            let report = self.report("ping", &["--wait", wait, "-n", &self.trips.to_string()]);
            assert_eq!(report["wait"], *wait);
            assert_eq!(report["rows"][0]["round_trips"], self.trips);
        }
    }

    /// For a time instead of a number.
    pub(crate) fn pings_for_a_time(&self) {
        let report = self.report("ping", &["-D", "0.5"]);
        let row = &report["rows"][0];
        let lasted = Duration::from_nanos(row["processors"]["client"]["wall_ns"].as_u64().expect("a time"));
        assert!(row["round_trips"].as_u64() > Some(0) && lasted >= Duration::from_millis(500), "{report:#}");
    }

    /// What the server used is told of the time that was measured: neither of what came before, nor of its wait for the client's last word.
    ///
    /// On a busy machine either side may wait for a core when it reads the time. So one of several runs has to agree: what is always counted
    /// wrongly does so in none.
    pub(crate) fn pings_tell_both_sides_of_the_same_time(&self) {
        const RUNS: usize = 10;
        for operation in ["send", "write", "read"] {
            let mut told = Vec::new();
            let agrees = (0..RUNS).any(|_| {
                let report = self.report("ping", &["-n", &self.trips.to_string(), "--op", operation]);
                let wall = |side: &str| {
                    let wall = report["rows"][0]["processors"][side]["wall_ns"].as_u64();
                    Duration::from_nanos(wall.expect("a time"))
                };
                let (client, server) = (wall("client"), wall("server"));
                told.push((client, server));
                client / 2 < server && server < client + Duration::from_millis(60)
            });
            assert!(agrees, "{operation}, client and server: {told:?}");
        }
    }

    /// The server goes on when the client has enough, until all is there: its messages are told of its own time.
    ///
    /// Its stopwatch is read once more before it tells of it, and it may wait for a core in between: one of several runs has to agree.
    pub(crate) fn blasts_reckon_with_the_time_of_who_wrote(&self) {
        const RUNS: usize = 10;
        for way in ["-r", "-b"] {
            let mut told = Vec::new();
            let agrees = (0..RUNS).any(|_| {
                let report = self.report("blast", &[way, "-D", "0.1", "-s", "4M", "--depth", "32"]);
                let server = report["processors"]["server"]["wall_ns"].as_f64().expect("a time") / 1e9;
                let totals = &report["from_server"];
                let bits = totals["bytes"].as_f64().expect("a number") * 8.0;
                let rate = totals["bits_per_second"].as_f64().expect("a rate");
                let elapsed = totals["elapsed_ns"].as_f64().expect("a time") / 1e9;
                assert!((rate * elapsed / bits - 1.0).abs() < 0.01, "{way}: {report:#}");
                told.push(rate * server / bits);
                (0.95..1.2).contains(&(rate * server / bits))
            });
            assert!(agrees, "{way}: {told:?}");
        }
    }

    pub(crate) fn fills(&self) {
        let pages = self.pages.to_string();
        assert_eq!(self.screen("fill", &["--pages", &pages]), FILL);
        let asked = ["--pages", &pages, "--page-size", "4K", "--regions", "3", "--seed", "7"];
        let report = self.report("fill", &asked);
        let written = 3 * self.pages;
        let places = 3 * (self.pages + (self.pages / 4).max(1));
        for (field, expected) in [
            ("page_bytes", 4096),
            ("pages_per_region", self.pages),
            ("regions", 3),
            ("seed", 7),
            ("pages_arrived", written),
            ("verified_bytes", places * 4096),
        ] {
            assert_eq!(report[field], expected, "{field}: {report:#}");
        }
        let shares = report["server_rails"].as_array().expect("rails are a list");
        assert_eq!(shares.iter().filter_map(|share| share["bytes"].as_u64()).sum::<u64>(), written * 4096);
        assert!(report["bits_per_second"].as_f64() > Some(0.0), "{report:#}");
    }

    /// Where the pages went is shown to whoever asks, and is the same for the same seed.
    pub(crate) fn fills_show_where_pages_went(&self) {
        let map = || {
            let ended = self.run("fill", &["--pages", "16", "--page-size", "512", "--seed", "7", "-v"]);
            assert_eq!(ended.code, Some(0), "{ended:#?}");
            let map =
                ended.stdout.split_once("\nregion 0: 16 pages in 20 places\n").map(|(_, map)| map.to_owned());
            map.unwrap_or_else(|| panic!("no map: {ended:#?}"))
        };
        let first = map();
        assert!(first.contains("region 1: ") && first.matches('→').count() == 2 * 16 + 2, "{first}");
        assert_eq!(first, map());
    }

    /// Every direction.
    pub(crate) fn blasts(&self) {
        const WAY: &str = "N UNIT, N UNIT, N UNIT (N UNIT in N messages)";
        let count = self.messages.to_string();
        let (there, back) = (format!("to server {WAY}"), format!("to client {WAY}"));
        for (flag, direction, ways) in [
            (&[][..], "to_server", there.clone()),
            (&["-r"], "from_server", back.clone()),
            (&["-b"], "both_ways", format!("{there}\n{back}")),
        ] {
            let asked = [&["-n", &count, "-s", "64K"], flag].concat();
            if !self.is_slow || direction == "both_ways" {
                let screen = self.screen("blast", &asked);
                // One that takes more than a second has a course.
                let lines: Vec<&str> =
                    screen.lines().filter(|line| !line.starts_with("over time ")).collect();
                assert_eq!(lines.join("\n") + "\n", BLAST.replace("WAYS", &ways));
            }
            if self.is_slow && direction == "both_ways" {
                continue;
            }
            let report = self.report("blast", &asked);
            assert_eq!((&report["direction"], &report["message_bytes"]), (&direction.into(), &65536.into()));
            for way in ["to_server", "from_server"] {
                let is_used = direction == way || direction == "both_ways";
                let expected = if is_used { self.messages.into() } else { Value::Null };
                assert_eq!(report[way]["messages"], expected, "{report:#}");
            }
        }
    }

    /// Reads and messages, in every direction. The bytes of a read go to the side that reads.
    pub(crate) fn blasts_read_and_send(&self) {
        let count = self.messages.to_string();
        for (op, flag, ways) in [
            ("read", "", &["from_server"][..]),
            ("read", "-r", &["to_server"]),
            ("read", "-b", &["to_server", "from_server"]),
            ("send", "", &["to_server"]),
            ("send", "-r", &["from_server"]),
            ("send", "-b", &["to_server", "from_server"]),
        ] {
            let mut asked = vec!["--op", op, "-n", &count, "-s", "16K"];
            asked.extend(Some(flag).filter(|flag| !flag.is_empty()));
            let report = self.report("blast", &asked);
            assert_eq!((&report["operation"], &report["is_verified"]), (&op.into(), &true.into()));
            for way in ["to_server", "from_server"] {
                let expected = if ways.contains(&way) { self.messages.into() } else { Value::Null };
                assert_eq!(report[way]["messages"], expected, "{asked:?}: {report:#}");
            }
        }
        // Long enough for dozens of reports of the server among few message slots.
        let screen = self.screen("blast", &["--op", "send", "-D", "5", "-b", "-s", "1K", "--depth", "2"]);
        assert!(screen.contains(" over RAIL: messages of N UNIT\n"), "{screen}");
    }

    /// For a time: while it runs a line a second is told, and the course at the end.
    pub(crate) fn blasts_for_a_time(&self) {
        let ended = self.run("blast", &["-D", "1.5"]);
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        self.assert_quiet(&ended);
        assert!(ended.stderr.trim_start().starts_with("0:01 "), "{ended:#?}");
        assert!(ended.stdout.lines().any(|line| line.starts_with("over time ")), "{ended:#?}");
    }
}
