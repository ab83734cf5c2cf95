//! The victim: an engine that serves every peer as a program would. It grants memory, opens a
//! counter, receives messages, and reports what has changed and by whom.

use std::collections::BTreeMap;
use std::io::{self, BufRead};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use farreach::{
    Access, Budgets, Counter, Engine, ErrorKind, Grant, PageMap, Peer, Publication, Rights, Settings, Slice,
};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::executor::{Executor, Spawner};
use crate::insider::{ATTACK_BYTE, OPENER};
use crate::layout::{ATOMIC_AT, DATA_LEN, GRANT_LEN, tag_of};
use crate::protocol::SECRET;
use crate::roles::{Attackers, Changed, Listening, Revoked, Status, Watched, say};

/// The time after which a silent peer is lost. It is short, because each line of the table waits
/// until the victim has forgotten the attackers, and long enough for a busy machine.
pub(crate) const PEER_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the victim's own operations on memory of an attacker may take.
const USE_LIMIT: Duration = Duration::from_secs(3);

/// `hostile victim`
#[derive(Debug, clap::Args)]
pub(crate) struct VictimArgs {
    /// The rail.
    #[arg(long)]
    rail: String,

    /// The maximum number of descriptors.
    #[arg(long)]
    descriptors: Option<u64>,

    /// Switch off what settings can switch off.
    #[arg(long)]
    weak: bool,

    /// Take peers over TLS only.
    #[arg(long)]
    tls: bool,
}

/// Switches off the defences of an engine that settings can switch off.
fn weakened(settings: Settings) -> Settings {
    const MANY: u32 = 1 << 30;
    let budgets = Budgets::new()
        .peers(MANY)
        .peers_per_address(MANY)
        .handshakes(MANY)
        .handshakes_per_address(MANY)
        .frames_per_second(MANY)
        .bytes_per_second(1 << 50)
        .queued_bytes(1 << 50)
        .rails(MANY)
        .grants(MANY)
        .counters(MANY)
        .resets(MANY);
    settings.isolate_peers(false).budgets(budgets)
}

pub(crate) fn run(args: &VictimArgs) -> Result<()> {
    if let Some(limit) = args.descriptors {
        setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum: Some(limit) })?;
    }
    let mut settings = Settings::new().name("victim").rails([&args.rail]).peer_timeout(PEER_TIMEOUT);
    if args.weak {
        settings = weakened(settings);
    }
    if args.tls {
        settings = settings.secret(SECRET.parse().map_err(crate::told)?);
    }
    let engine = Engine::with(settings).map_err(crate::told)?;
    let address = engine.listen("127.0.0.1:0").map_err(crate::told)?;
    let (executor, spawner) = Executor::new();
    let memory = engine.allocate(GRANT_LEN).wait(USE_LIMIT).map_err(crate::told)?;
    let published = engine.publish_exposed(memory, Rights::all(), Access::Anyone).wait(USE_LIMIT);
    let published = Arc::new(published.map_err(|error| crate::told(error.error))?);
    let publication = published.token().to_string();
    let victim = Victim { engine, state: Arc::default(), spawner, published };
    std::thread::Builder::new().name("program".into()).spawn(move || executor.run())?;
    victim.spawner.spawn(victim.clone().accept_all());
    say(&Listening { address: address.to_string(), publication })?;
    let mut returned = None;
    for line in io::stdin().lock().lines() {
        let line = line?;
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["status"] => say(&victim.status()?)?,
            ["revoke", name, ms] => {
                let (answer, slice) = victim.revoke(name, Duration::from_millis(ms.parse()?))?;
                returned = slice;
                say(&answer)?;
            }
            ["watch"] => {
                let bytes = returned.as_ref().map_or(0, |slice: &Slice| attacked_bytes(slice));
                say(&Changed { bytes })?;
            }
            _ => bail!("the victim does not know the command {line:?}"),
        }
    }
    Ok(())
}

#[derive(Clone)]
struct Victim {
    engine: Engine,
    state: Arc<Mutex<State>>,
    spawner: Spawner,
    /// Memory that everybody may open.
    published: Arc<Publication>,
}

#[derive(Default)]
struct State {
    next: u64,
    peers: BTreeMap<u64, Record>,
    /// Honest peers and witnesses that are lost.
    lost: Vec<Watched>,
    attackers: Attackers,
    uses: BTreeMap<String, u64>,
    uses_open: u64,
}

/// A peer that has its memory and its counter.
struct Record {
    peer: Peer,
    grant: Option<Grant>,
    counter: Counter,
    messages: u64,
    foreign_messages: u64,
    ended: Option<String>,
}

impl Victim {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn accept_all(self) {
        loop {
            match self.engine.accept().await {
                Ok(peer) => self.spawner.spawn(self.clone().serve(peer)),
                Err(error) if error.kind() == ErrorKind::Ended => return,
                Err(_) => {}
            }
        }
    }

    /// Serves a peer until it is lost.
    async fn serve(self, peer: Peer) {
        let Ok(memory) = self.engine.allocate(GRANT_LEN).await else { return };
        let Ok(grant) = peer.grant(memory, Rights::all()).await else { return };
        let Ok(counter) = peer.open_counter().await else { return };
        let tokens = format!("{} {}", grant.token(), counter.token());
        if is_watched(peer.name()) {
            self.spawner
                .spawn(self.clone().watch_counter(counter.reach(u64::MAX), counter.token().to_string()));
        }
        let id = {
            let mut state = self.state();
            state.next += 1;
            let (id, peer) = (state.next, peer.clone());
            let record =
                Record { peer, grant: Some(grant), counter, messages: 0, foreign_messages: 0, ended: None };
            state.peers.insert(id, record);
            id
        };
        // Not awaited: an attacker need not confirm it.
        drop(peer.send(tokens));
        if peer.name() == OPENER {
            self.revoke_soon(&peer, id);
        }
        while let Ok(message) = peer.recv().await {
            self.heard(id, &peer, &String::from_utf8_lossy(&message));
        }
        let mut state = self.state();
        let Some(record) = state.peers.remove(&id) else { return };
        let watched = record.watched();
        if is_watched(&watched.name) {
            state.lost.push(watched);
        } else {
            state.attackers.add(&record, &watched);
        }
    }

    /// Notes why a counter ends, unless its peer is lost.
    async fn watch_counter(self, wait: farreach::Pending<()>, token: String) {
        let Err(error) = wait.await else { return };
        if error.kind() == ErrorKind::PeerLost {
            return;
        }
        for record in self.state().peers.values_mut() {
            if record.counter.token().to_string() == token {
                record.ended = Some(error.to_string());
            }
        }
    }

    fn heard(&self, id: u64, peer: &Peer, message: &str) {
        if let Some(token) = message.strip_prefix("use ") {
            self.use_grant(peer, token.to_owned());
        }
        let mut state = self.state();
        let Some(record) = state.peers.get_mut(&id) else { return };
        let is_own = message.starts_with(&format!("{} ", peer.name()));
        record.messages += u64::from(is_own);
        record.foreign_messages += u64::from(!is_own);
    }

    /// Takes the publication from a peer that is about to open it, a little later with each peer.
    fn revoke_soon(&self, peer: &Peer, number: u64) {
        let (published, peer) = (Arc::clone(&self.published), peer.clone());
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(number.wrapping_mul(7919) % 6000));
            if published.revoke_peer(&peer, USE_LIMIT).wait(USE_LIMIT).is_ok() {
                drop(peer.send("revoked"));
            }
        });
    }

    /// Accesses memory that an attacker has granted, in every way, at its beginning and its end.
    fn use_grant(&self, peer: &Peer, token: String) {
        let (victim, peer) = (self.clone(), peer.clone());
        self.state().uses_open += 1;
        std::thread::spawn(move || {
            let outcomes = victim.uses(&peer, &token).unwrap_or_else(|error| vec![format!("none: {error}")]);
            let mut state = victim.state();
            for outcome in outcomes {
                *state.uses.entry(outcome).or_default() += 1;
            }
            state.uses_open -= 1;
        });
    }

    fn uses(&self, peer: &Peer, token: &str) -> Result<Vec<String>> {
        let memory = peer.remote(token.parse()?).wait(USE_LIMIT).map_err(crate::told)?;
        let last_page = memory.len().saturating_sub(4096) / 8 * 8;
        let mut outcomes = Vec::new();
        for offset in [0, 4096, last_page / 4096 / 2 * 4096, last_page] {
            let slice = || self.engine.allocate(4096).wait(USE_LIMIT).map_err(crate::told);
            let mut map = PageMap::of(4096).first(1);
            map.destination.offset = offset;
            let written = peer.write_pages(slice()?, &map, &memory, None).wait(USE_LIMIT);
            outcomes.push(outcome("write", written.map_err(|error| error.error)));
            let mut map = PageMap::of(4096).first(1);
            map.source.offset = offset;
            let read = peer.read_pages(&memory, &map, slice()?).wait(USE_LIMIT);
            outcomes.push(outcome("read", read.map_err(|error| error.error)));
            let word = memory.get(offset..offset.saturating_add(8)).context("the memory has eight bytes")?;
            outcomes.push(outcome("atomic", peer.fetch_add(&word, 1).wait(USE_LIMIT)));
        }
        Ok(outcomes)
    }

    fn status(&self) -> Result<Status> {
        // A step of the engine: if it hangs, the driver notices.
        let peers = self.engine.peer_count().map_err(crate::told)?;
        let state = self.state();
        let mut status = Status {
            peers,
            accepted: state.next,
            peers_watched: state.lost.clone(),
            attackers: state.attackers.clone(),
            uses: state.uses.clone(),
            uses_open: state.uses_open,
        };
        for record in state.peers.values() {
            let watched = record.watched();
            if is_watched(&watched.name) {
                status.peers_watched.push(watched);
            } else {
                status.attackers.add(record, &watched);
            }
        }
        Ok(status)
    }

    /// Revokes the grant of a peer.
    fn revoke(&self, name: &str, timeout: Duration) -> Result<(Revoked, Option<Slice>)> {
        let grant = {
            let mut state = self.state();
            let record = state.peers.values_mut().find(|record| record.peer.name() == name);
            record.and_then(|record| record.grant.take()).with_context(|| format!("{name} has no grant"))?
        };
        let start = Instant::now();
        let revoked = grant.revoke(timeout);
        let after_ms = start.elapsed().as_millis() as u64;
        Ok(match revoked.map(farreach::Exposed::try_into_slice) {
            Ok(Ok(slice)) => (Revoked { after_ms, is_proven: true, error: None }, Some(slice)),
            Ok(Err(_)) => (Revoked { after_ms, is_proven: false, error: None }, None),
            Err(error) => (Revoked { after_ms, is_proven: false, error: Some(error.to_string()) }, None),
        })
    }
}

/// Returns whether nothing of a peer may be changed by others.
fn is_watched(name: &str) -> bool {
    name.starts_with("honest") || name.starts_with("witness")
}

fn outcome<T>(what: &str, result: Result<T, farreach::Error>) -> String {
    match result {
        Ok(_) => format!("{what}: ok"),
        Err(error) => format!("{what}: {:?}", error.kind()),
    }
}

fn attacked_bytes(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == ATTACK_BYTE).count() as u64
}

impl Attackers {
    fn add(&mut self, record: &Record, watched: &Watched) {
        let mut bytes = vec![0; DATA_LEN];
        if let Some(grant) = &record.grant {
            grant.read_at(0, &mut bytes);
        }
        self.bytes += attacked_bytes(&bytes);
        self.pages = self.pages.saturating_add(watched.pages);
        self.messages += watched.messages + watched.foreign_messages;
    }
}

impl Record {
    fn watched(&self) -> Watched {
        let name = self.peer.name().to_owned();
        let (mut bytes, mut adds) = (Vec::new(), 0);
        if let Some(grant) = self.grant.as_ref().filter(|_| is_watched(&name)) {
            bytes.resize(DATA_LEN, 0);
            grant.read_at(0, &mut bytes);
            adds = grant.atomic_at(ATOMIC_AT).load(std::sync::atomic::Ordering::SeqCst);
        }
        let tag = tag_of(&name);
        Watched {
            counter: self.counter.token().to_string(),
            pages: self.counter.reached(),
            adds,
            messages: self.messages,
            foreign_bytes: bytes.iter().filter(|byte| **byte != 0 && Some(**byte) != tag).count() as u64,
            foreign_messages: self.foreign_messages,
            ended: self.ended.clone(),
            lost: self.peer.lost().map(ToString::to_string),
            name,
        }
    }
}
