//! The lines of the table: attacks and their sizes.

use std::time::Duration;

/// One line of the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line {
    pub(super) name: &'static str,
    /// The attack, for people.
    pub(super) attack: &'static str,
    pub(super) victim: Victim,
    pub(super) kind: Kind,
    pub(super) full: Size,
    pub(super) short: Size,
    /// Whether it attacks the port of libfabric's tcp, which other rails do not have.
    pub(super) needs_tcp: bool,
    /// Whether it needs an address of this host that is not loopback.
    pub(super) needs_outside: bool,
    /// Whether newcomers may be refused, if they are told why.
    pub(super) may_refuse: bool,
    /// Whether its size is a number of attempts to reach what is another's, all of which must be
    /// made.
    pub(super) counts_attempts: bool,
}

/// What is attacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Victim {
    /// An engine.
    Engine,
    /// An engine with few descriptors: their number with the full and with the short sizes.
    EngineWithFewDescriptors,
    /// An engine that takes peers over TLS only.
    EngineOverTls,
    /// `farreach serve`.
    Serve,
    /// `farreach serve` with a secret.
    ServeOverTls,
}

impl Victim {
    pub(super) fn is_serve(self) -> bool {
        matches!(self, Self::Serve | Self::ServeOverTls)
    }
}

/// How it is attacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// By an attacker, which is a process of its own.
    Attack,
    /// By an attacker that gets the names and keys of a witness.
    WithWitness,
    /// As `WithWitness`, while the victim revokes the grant of the witness.
    Revoke,
    /// By stopping honest clients.
    Stop,
    /// By killing honest clients.
    Kill,
    /// By many honest clients at once.
    Crowd,
}

/// How much of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) count: u64,
    pub(super) lasts: Duration,
}

const fn size(count: u64, ms: u64) -> Size {
    Size { count, lasts: Duration::from_millis(ms) }
}

const fn engine(name: &'static str, attack: &'static str, kind: Kind, full: Size, short: Size) -> Line {
    Line {
        name,
        attack,
        victim: Victim::Engine,
        kind,
        full,
        short,
        needs_tcp: false,
        needs_outside: false,
        may_refuse: false,
        counts_attempts: false,
    }
}

const fn serve(name: &'static str, attack: &'static str, kind: Kind, full: Size, short: Size) -> Line {
    Line { victim: Victim::Serve, ..engine(name, attack, kind, full, short) }
}

/// A line whose attacker uses forged names, while a witness is watched.
const fn forged(name: &'static str, attack: &'static str, full: Size, short: Size) -> Line {
    Line { counts_attempts: true, ..engine(name, attack, Kind::WithWitness, full, short) }
}

impl Line {
    const fn at_tcp_port(self) -> Self {
        Self { needs_tcp: true, ..self }
    }
}

/// The descriptors of a victim with few of them, with the full and with the short sizes.
pub(super) const FEW_DESCRIPTORS: [u64; 2] = [1024, 256];

/// All lines. Those of one victim are together. The sizes of forged names add up to 10,000.
pub(super) const LINES: &[Line] = &[
    forged("keys", "keys of another peer", size(2500, 3000), size(40, 600)),
    forged("marks", "messages with another peer's mark", size(2500, 3000), size(200, 600)),
    forged("immediates", "immediates with another peer's counter", size(2500, 3000), size(200, 600)),
    forged("frames", "frames about things of another peer", size(2500, 3000), size(100, 600)),
    engine(
        "revoked",
        "confirmations of another peer's revocation",
        Kind::Revoke,
        size(1, 2500),
        size(1, 1200),
    ),
    engine("hello-rails", "hellos with thousands of rails", Kind::Attack, size(60, 8000), size(10, 800)),
    engine("grant-keys", "grants of 60,000 empty keys", Kind::Attack, size(600, 6000), size(60, 800)),
    engine("grant-ids", "grant ids that collide", Kind::Attack, size(120_000, 8000), size(15_000, 800)),
    engine("link-lost", "lost links, ten times a second", Kind::Attack, size(1, 10_000), size(1, 1200)),
    engine("links", "thousands of links of a peer", Kind::Attack, size(20, 6000), size(2, 800)),
    engine("numbers", "numbers at their limits", Kind::Attack, size(4, 3000), size(1, 600)),
    engine("add-overflow", "additions that overflow", Kind::Attack, size(20, 2000), size(2, 400)),
    engine("bad-grants", "grants of impossible memory", Kind::Attack, size(16, 6400), size(8, 1200)),
    engine("openings", "openings of what is being revoked", Kind::Attack, size(1, 5000), size(1, 1200)),
    engine("rail-garbage", "garbage at the rail's port", Kind::Attack, size(2000, 5000), size(150, 600))
        .at_tcp_port(),
    engine("rail-flips", "flipped bits at the rail's port", Kind::WithWitness, size(300, 5000), size(8, 600))
        .at_tcp_port(),
    forged(
        "rail-stranger",
        "an endpoint that is no peer, at the rail's port",
        size(2000, 5000),
        size(60, 600),
    )
    .at_tcp_port(),
    Line {
        may_refuse: true,
        ..engine(
            "strangers",
            "strangers that greet and ping",
            Kind::Attack,
            size(900, 12_000),
            size(120, 1500),
        )
    },
    engine("slow", "greetings of a byte at a time", Kind::Attack, size(300, 8000), size(40, 5500)),
    engine("churn", "greetings, one after the other", Kind::Attack, size(10_000, 3000), size(300, 600)),
    engine("unread", "answers that nobody reads", Kind::Attack, size(30, 6000), size(6, 800)),
    engine("garbage", "garbage at the control port", Kind::Attack, size(3000, 3000), size(200, 600)),
    engine("stop", "peers that are stopped in the middle", Kind::Stop, size(5, 4000), size(1, 2500)),
    engine("kill", "peers that are killed in the middle", Kind::Kill, size(100, 3000), size(4, 600)),
    engine("shm", "engines over shm that come and go", Kind::Attack, size(20, 2000), size(2, 300)),
    engine("crowd", "honest peers at once", Kind::Crowd, size(256, 0), size(12, 0)),
    Line {
        may_refuse: true,
        victim: Victim::EngineWithFewDescriptors,
        ..engine(
            "descriptors",
            "more strangers than descriptors",
            Kind::Attack,
            size(1100, 8000),
            size(280, 1500),
        )
    },
    Line {
        victim: Victim::EngineOverTls,
        ..engine("tls-records", "TLS records without content", Kind::Attack, size(400, 6000), size(10, 1000))
    },
    serve("serve-idle", "idle connections", Kind::Attack, size(2000, 12_000), size(300, 2000)),
    serve("serve-slow", "orders of a byte at a time", Kind::Attack, size(300, 36_000), size(280, 2000)),
    serve("serve-orders", "hostile orders", Kind::Attack, size(12, 20_000), size(4, 3000)),
    Line {
        needs_outside: true,
        counts_attempts: true,
        ..serve(
            "serve-doctor",
            "diagnoses ordered in clear text from elsewhere",
            Kind::Attack,
            size(100, 8000),
            size(5, 1000),
        )
    },
    serve("serve-kill", "clients that are killed in the middle", Kind::Kill, size(100, 3000), size(3, 500)),
    serve("serve-crowd", "honest clients at once", Kind::Crowd, size(256, 0), size(8, 0)),
    Line {
        victim: Victim::ServeOverTls,
        ..serve(
            "serve-records",
            "TLS records without content",
            Kind::Attack,
            size(400, 15_000),
            size(10, 2000),
        )
    },
];

/// Connections of one attacker that flips bits. libfabric was seen to crash in the attacker, whose
/// connections then count no more.
const FLIPS_PER_ATTACKER: u64 = 20;

impl Line {
    /// Returns the parts of a size, one for each attacker in turn.
    pub(super) fn rounds(&self, size: Size) -> Vec<Size> {
        if !self.may_crash_itself() {
            return vec![size];
        }
        let rounds = size.count.div_ceil(FLIPS_PER_ATTACKER).max(1);
        let lasts = size.lasts / u32::try_from(rounds).unwrap_or(u32::MAX);
        let part = |round: u64| FLIPS_PER_ATTACKER.min(size.count - round * FLIPS_PER_ATTACKER);
        (0..rounds).map(|round| Size { count: part(round), lasts }).collect()
    }

    /// Returns whether the attacker's own library may crash from what it does.
    pub(super) fn may_crash_itself(&self) -> bool {
        self.name == "rail-flips"
    }

    /// Returns how many links to the victim its processes have at a time, at most. A link over tcp
    /// costs the victim a domain of libfabric.
    pub(super) fn links_max(&self, size: Size) -> u64 {
        // Attackers work over four connections at a time, beside a witness and a newcomer; an end that
        // was closed may be freed when the next one is there.
        const FEW: u64 = 8;
        match (self.kind, self.name) {
            (Kind::Crowd, _) => size.count,
            (Kind::WithWitness | Kind::Revoke | Kind::Stop | Kind::Kill, _) => FEW,
            (
                Kind::Attack,
                "link-lost" | "links" | "numbers" | "add-overflow" | "bad-grants" | "openings" | "garbage",
            ) => FEW,
            // The newcomer.
            (Kind::Attack, _) => 1,
        }
    }

    /// Returns how much of the victim's memory answers may take that nobody reads, in MiB: the
    /// default of `Budgets::queued_bytes`.
    pub(super) fn queued_mib_max(&self) -> u64 {
        if self.name == "unread" { 64 } else { 0 }
    }

    pub(super) fn size(&self, is_short: bool) -> Size {
        if is_short { self.short } else { self.full }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_size_are_all_of_it() {
        for line in LINES {
            for size in [line.full, line.short] {
                let parts = line.rounds(size);
                assert_eq!(parts.iter().map(|part| part.count).sum::<u64>(), size.count, "{}", line.name);
                assert!(parts.iter().map(|part| part.lasts).sum::<Duration>() <= size.lasts);
            }
        }
    }

    #[test]
    fn ten_thousand_names_are_forged() {
        let forged = LINES
            .iter()
            .filter(|line| line.counts_attempts && line.victim == Victim::Engine && !line.needs_tcp);
        assert!(forged.map(|line| line.full.count).sum::<u64>() >= 10_000);
        assert!(LINES.iter().all(|line| line.short.count <= line.full.count));
    }
}
