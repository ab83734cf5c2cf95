//! A rail whose link is cut in the middle of a transfer, and restored.

use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use farreach::{Engine, PageMap, Peer, RemoteCounter, RemoteSlice, Settings, Slice, TransferStats};
use farreach_testkit::{example, wait_for};

use super::node::Node;
use super::survivor::{LEN, PAGE, PAGES, SOON};
use super::{GRACE, Place};

/// The time without a fault at first.
const CALM: Duration = Duration::from_millis(300);
/// The distance of the words that hold the number of the round.
const STAMPED: usize = 4 << 10;
/// The limit of cuts that may all fall between two transfers.
const ROUNDS_MAX: u32 = 8;
/// Another host, connected to this one by three links: two for rails, and one for the control
/// connection.
pub(crate) struct Hosts {
    /// A process in the other host's network namespace, which keeps it alive.
    holder: Child,
    /// Whether there are devices on the links of the rails.
    has_devices: bool,
}

/// The rails and times of a cut.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut {
    /// The place, with the rails of this side.
    pub(crate) place: Place,
    /// The rails of the other side.
    pub(crate) far_rails: &'static [&'static str],
    /// The link timeout.
    pub(crate) stall: Duration,
    /// The limit of a transfer's time, whichever link is cut meanwhile: the hanging link is
    /// detected, its operations are returned, and all of them use the other link. The transfer may
    /// use the cut link once more when it is tried again.
    pub(crate) transfer_max: Duration,
}

/// The addresses of the links' ends: this host's, and the other's.
const LINKS: [(&str, &str); 3] =
    [("192.0.2.1", "192.0.2.2"), ("192.0.2.5", "192.0.2.6"), ("192.0.2.9", "192.0.2.10")];

impl Hosts {
    pub(crate) fn new() -> Self {
        let own = network_of("self");
        let holder = Command::new("unshare").args(["--net", "sleep", "600"]).spawn().expect("unshare");
        let hosts = Self { holder, has_devices: false };
        wait_for("network of the other host", || {
            let other = network_of(&hosts.pid());
            (!other.is_empty() && other != own).then_some(())
        });
        run(&["ip", "link", "set", "lo", "up"]);
        for (number, (ours, theirs)) in LINKS.iter().enumerate() {
            let (near, far) = (format!("near{number}"), format!("far{number}"));
            run(&["ip", "link", "add", &near, "type", "veth", "peer", "name", &far, "netns", &hosts.pid()]);
            run(&["ip", "address", "add", &format!("{ours}/30"), "dev", &near]);
            run(&["ip", "link", "set", &near, "up"]);
            hosts.run_there(&["ip", "address", "add", &format!("{theirs}/30"), "dev", &far]);
            hosts.run_there(&["ip", "link", "set", &far, "up"]);
        }
        hosts.run_there(&["ip", "link", "set", "lo", "up"]);
        hosts
    }

    /// Adds a Soft-RoCE device on each end of the rails' links: `rnear0` and `rnear1` here, `rfar0`
    /// and `rfar1` there.
    #[allow(dead_code, reason = "tcp needs none")]
    pub(crate) fn with_devices() -> Self {
        let mut hosts = Self::new();
        hosts.has_devices = true;
        for (number, (ours, theirs)) in LINKS.iter().take(2).enumerate() {
            let (near, far) = (format!("near{number}"), format!("far{number}"));
            run(&["rdma", "link", "add", &format!("r{near}"), "type", "rxe", "netdev", &near]);
            hosts.run_there(&["rdma", "link", "add", &format!("r{far}"), "type", "rxe", "netdev", &far]);
            for (link, address) in [(near, ours), (far, theirs)] {
                let device = format!("r{link}");
                wait_for("address of a device", || has_address(&device, address).then_some(()));
            }
        }
        hosts
    }

    fn pid(&self) -> String {
        self.holder.id().to_string()
    }

    fn there(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", &self.pid()]);
        command
    }

    #[track_caller]
    fn run_there(&self, words: &[&str]) {
        let status = self.there().args(words).status().expect("nsenter");
        assert!(status.success(), "{words:?} on the other host: {status}");
    }

    /// Sets one end of a link down or up, either on this host or on the other.
    #[track_caller]
    fn set(&self, link: usize, is_ours: bool, state: &str) {
        match is_ours {
            true => run(&["ip", "link", "set", &format!("near{link}"), state]),
            false => self.run_there(&["ip", "link", "set", &format!("far{link}"), state]),
        }
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        if self.has_devices {
            for device in ["rnear0", "rnear1", "rfar0", "rfar1"] {
                // They would disappear with their links, at some later time.
                let _ = Command::new("rdma").args(["link", "delete", device]).status();
            }
        }
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Returns whether a device has a GID that ends with these four bytes.
fn has_address(device: &str, address: &str) -> bool {
    let address: Ipv4Addr = address.parse().expect("an address of a link");
    let [a, b, c, d] = address.octets();
    let end = format!("{a:02x}{b:02x}:{c:02x}{d:02x}");
    let gids = std::fs::read_dir(format!("/sys/class/infiniband/{device}/ports/1/gids"));
    let gids = gids.into_iter().flatten().flatten();
    let mut texts = gids.filter_map(|gid| std::fs::read_to_string(gid.path()).ok());
    texts.any(|text| text.trim().ends_with(&end))
}

fn network_of(process: &str) -> String {
    let link = std::fs::read_link(format!("/proc/{process}/ns/net"));
    link.map(|link| link.display().to_string()).unwrap_or_default()
}

#[track_caller]
fn run(words: &[&str]) {
    let status = Command::new(words[0]).args(&words[1..]).stdin(Stdio::null()).status();
    assert!(status.as_ref().is_ok_and(|status| status.success()), "{words:?}: {status:?}");
}

pub(crate) fn pages_of_a_rail_whose_link_is_cut_go_over_the_other_one(cut: &Cut, hosts: &Hosts) {
    let (mut longest, mut resent, mut rounds) = (Duration::ZERO, 0, 0);
    // A cut may fall between two transfers. Then another one follows.
    while rounds < (cut.place.rounds)() || (resent == 0 && rounds < ROUNDS_MAX) {
        let (link, is_ours) = (rounds as usize % 2, rounds % 4 < 2);
        let cut = one_cut(cut, hosts, link, is_ours);
        (longest, resent, rounds) = (longest.max(cut.0), resent + cut.1, rounds + 1);
    }
    assert!(resent > 0, "no transfer was cut in the middle");
    eprintln!(
        "{rounds} cuts: the transfer that was cut took {longest:?} at most, {resent} had pages sent again"
    );
}

/// Cuts one link. Returns the longest time of a transfer, and how many transfers had pages that
/// were sent again: none if the link was cut between two transfers.
fn one_cut(cut: &Cut, hosts: &Hosts, link: usize, is_ours: bool) -> (Duration, usize) {
    let (place, stall) = (&cut.place, cut.stall);
    // Both hosts belong to this test.
    let settings = Settings::new().insecure().name("survivor").rails(place.rails.iter().copied());
    let engine =
        Engine::with(settings.heartbeat(place.heartbeat).peer_timeout(place.silence).link_timeout(stall))
            .unwrap();
    let there = Place { rails: cut.far_rails, ..*place };
    let mut command = hosts.there();
    command.arg(example("node"));
    let options = ["listen=192.0.2.10:0".to_owned(), format!("stall={}", stall.as_millis())];
    let node = Node::start_by(command, &there, "receive", &options);
    let address: std::net::SocketAddr = node.says("listening at").parse().unwrap();
    let peer = engine.connect(address).unwrap().wait(SOON).unwrap();
    let told = String::from_utf8(peer.recv().wait(SOON).unwrap()).unwrap();
    let (grant, counter) = told.split_once(' ').unwrap();
    let memory = peer.remote(grant.parse().unwrap()).wait(SOON).unwrap();
    let counter = peer.remote_counter(counter.parse().unwrap()).wait(SOON).unwrap();
    wait_for("both rails", || (peer.rails().len() == 2).then_some(()));

    let progress = Progress::default();
    let Progress { is_over, rounds, both } = &progress;
    let (written, source) = std::thread::scope(|scope| {
        let writing = scope.spawn(|| write(cut, &engine, &peer, (&memory, &counter), &progress));
        std::thread::sleep(CALM);
        hosts.set(link, is_ours, "down");
        wait_for("word of the cut link", || (peer.rails().len() == 1).then_some(()));
        // The interrupted transfer ends without the link, and so do later ones.
        let before = rounds.load(Ordering::SeqCst);
        wait_for("transfers by the other link", || {
            (rounds.load(Ordering::SeqCst) >= before + 3).then_some(())
        });
        hosts.set(link, is_ours, "up");
        // The first new link may fail again, because both sides notice the link at different times.
        both.store(0, Ordering::SeqCst);
        wait_for("transfers by both links", || (both.load(Ordering::SeqCst) >= 3).then_some(()));
        is_over.store(true, Ordering::SeqCst);
        writing.join().expect("every transfer went well")
    });
    assert!(peer.lost().is_none(), "the control connection has a link of its own: {peer:?}");
    let cut = look_at(cut, &written, &peer);

    // Checks what has arrived, and how many pages were counted.
    drop((memory, counter, peer, engine));
    assert_eq!(node.says("holds"), format!("{:016x}", sum(&source)), "the last transfer is there, whole");
    let said = node.ends_well();
    let expected = format!("PeerLost after {} pages;", written.len() as u64 * PAGES);
    assert!(said.starts_with(&expected), "{said}, and not {expected}");
    cut
}

/// State shared with the writing thread.
#[derive(Debug, Default)]
struct Progress {
    is_over: AtomicBool,
    rounds: AtomicUsize,
    /// Transfers that used both links.
    both: AtomicUsize,
}

/// Writes round after round, and counts them and those that used both links. Returns the statistics
/// of each, and the source of the last one.
fn write(
    cut: &Cut,
    engine: &Engine,
    peer: &Peer,
    (memory, counter): (&RemoteSlice, &RemoteCounter),
    Progress { is_over, rounds, both }: &Progress,
) -> (Vec<TransferStats>, Slice) {
    let deadline = cut.transfer_max + GRACE;
    let map = PageMap::of(PAGE as u64).first(PAGES as u32);
    let (mut source, mut written) = (engine.allocate(LEN).wait(SOON).unwrap(), Vec::new());
    for (place, word) in source.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(place as u64).to_le_bytes());
    }
    while !is_over.load(Ordering::SeqCst) {
        // Each part of each page holds the number of its round. Filling all of it takes an emulated
        // machine longer than sending it, and a link would be cut between two transfers.
        for part in source.chunks_exact_mut(STAMPED) {
            part[..8].copy_from_slice(&(written.len() as u64).to_le_bytes());
        }
        let start = Instant::now();
        let done = peer.write_pages(source, &map, memory, Some(counter)).wait(deadline);
        let done = done.unwrap_or_else(|error| {
            panic!("{error} after {:?}: {peer:?}, {:?}", start.elapsed(), peer.link_errors())
        });
        source = done.buffer.into_slice().unwrap();
        if used(&done.stats) == 2 {
            both.fetch_add(1, Ordering::SeqCst);
        }
        written.push(done.stats);
        rounds.store(written.len(), Ordering::SeqCst);
    }
    (written, source)
}

fn used(stats: &TransferStats) -> usize {
    stats.links.iter().filter(|link| link.operations > 0).count()
}

/// Checks that interrupted transfers used both links. Returns the longest time, and how many had
/// pages that were sent again.
fn look_at(cut: &Cut, written: &[TransferStats], peer: &Peer) -> (Duration, usize) {
    let longest = written.iter().max_by_key(|stats| stats.elapsed()).expect("there were some");
    assert!(longest.elapsed() < cut.transfer_max, "{longest}");
    let resent = written.iter().filter(|stats| stats.bytes() > LEN as u64);
    let resent: Vec<_> = resent.collect();
    assert!(!peer.link_errors().is_empty(), "what was wrong with the link is told: {longest}");
    assert!(resent.iter().all(|stats| used(stats) == 2), "{resent:?}");
    (longest.elapsed(), resent.len())
}

/// The same sum as in the node.
fn sum(bytes: &[u8]) -> u64 {
    bytes.chunks_exact(8).fold(0xcbf2_9ce4_8422_2325, |sum: u64, word| {
        let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
