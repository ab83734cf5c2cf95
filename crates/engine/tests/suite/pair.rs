//! Two engines that are connected.

use std::time::Duration;

use farreach::{Counter, Engine, Grant, Peer, RemoteCounter, RemoteSlice, Rights, Settings, Slice};
use farreach_rail::EndedKeys;

/// Time limit of each wait.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A provider, as the suite uses it.
pub(crate) struct RailUnderTest {
    /// Creates an engine over it.
    pub(crate) open: fn(Settings) -> Engine,
    /// Whether it has atomics; `None` if that depends on the release of the library, and only the
    /// rail knows.
    pub(crate) has_atomics: Option<bool>,
    /// How many rails each engine has.
    pub(crate) rails: usize,
}

impl RailUnderTest {
    pub(crate) fn engine(&self, name: &str) -> Engine {
        (self.open)(settings(name))
    }
}

/// Returns whether the end of a key proves that no peer of this host can access the memory any more.
pub(crate) fn proves(engine: &Engine) -> bool {
    let rails = engine.rail_properties();
    let used = rails.iter().map(|rail| rail.scope).min();
    rails.iter().filter(|rail| Some(rail.scope) == used).all(|rail| rail.ended_keys != EndedKeys::StopNew)
}

/// Settings with timeouts that are long enough for a busy emulated machine.
pub(crate) fn settings(name: &str) -> Settings {
    Settings::new().name(name).heartbeat(Duration::from_millis(500)).peer_timeout(Duration::from_secs(5))
}

/// Engines A and B, which are peers: A has connected to B.
pub(crate) struct Pair {
    pub(crate) a: Engine,
    pub(crate) b: Engine,
    /// B, as A sees it.
    pub(crate) a_to_b: Peer,
    pub(crate) b_to_a: Peer,
}

impl Pair {
    pub(crate) fn new(provider: &RailUnderTest) -> Self {
        Self::of(provider.engine("a"), provider.engine("b"))
    }

    pub(crate) fn of(a: Engine, b: Engine) -> Self {
        let (a_to_b, b_to_a) = join(&a, &b);
        Self { a, b, a_to_b, b_to_a }
    }

    /// Memory of B that A may access: B's grant, and A's view of it.
    pub(crate) fn granted(&self, len: usize, rights: Rights) -> (Grant, RemoteSlice) {
        grant(&self.b, &self.b_to_a, &self.a_to_b, len, rights)
    }

    /// A counter of B that A raises: B's counter, and A's view of it.
    pub(crate) fn counter(&self) -> (Counter, RemoteCounter) {
        counter(&self.b_to_a, &self.a_to_b)
    }

    /// Returns a slice of A with bytes that depend on their place.
    pub(crate) fn source(&self, len: usize, seed: u64) -> Slice {
        let mut slice = self.a.allocate(len).wait(SOON).unwrap();
        fill(&mut slice, seed);
        slice
    }
}

/// Connects one engine to another.
pub(crate) fn join(a: &Engine, b: &Engine) -> (Peer, Peer) {
    let address = b.listen("127.0.0.1:0").unwrap();
    let mut connecting = a.connect(address).unwrap();
    let b_to_a = b.accept();
    // Both engines have workers that lead; each is waited for in turn.
    let a_to_b = connecting.wait(SOON).unwrap();
    let mut b_to_a = b_to_a;
    (a_to_b, b_to_a.wait(SOON).unwrap())
}

pub(crate) fn grant(
    owner: &Engine,
    owner_to_user: &Peer,
    user_to_owner: &Peer,
    len: usize,
    rights: Rights,
) -> (Grant, RemoteSlice) {
    let grant = owner_to_user.grant(owner.allocate(len).wait(SOON).unwrap(), rights).wait(SOON).unwrap();
    let remote = user_to_owner.remote(grant.token()).wait(SOON).unwrap();
    (grant, remote)
}

pub(crate) fn counter(owner_to_user: &Peer, user_to_owner: &Peer) -> (Counter, RemoteCounter) {
    let counter = owner_to_user.open_counter().wait(SOON).unwrap();
    let remote = user_to_owner.remote_counter(counter.token()).wait(SOON).unwrap();
    (counter, remote)
}

/// Fills with bytes that differ by place and seed.
pub(crate) fn fill(bytes: &mut [u8], seed: u64) {
    for (place, byte) in bytes.iter_mut().enumerate() {
        *byte = byte_at(place as u64, seed);
    }
}

pub(crate) fn byte_at(place: u64, seed: u64) -> u8 {
    let mixed = (place ^ seed.rotate_left(17)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 56) as u8
}

/// Returns the content of a grant.
pub(crate) fn copy_of(grant: &Grant) -> Vec<u8> {
    let mut bytes = vec![0; grant.len()];
    grant.read_at(0, &mut bytes);
    bytes
}
