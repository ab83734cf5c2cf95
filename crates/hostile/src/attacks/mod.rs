//! The attackers, one process each.

mod connections;
mod cross;
mod floods;
mod numbers;
mod openings;
mod rail_port;
mod serve;
mod shm;
mod tls;

pub(crate) use serve::HEAD_LEN;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rand_mt::Mt64;

use crate::insider::{Insider, Secrets};
use crate::protocol::raise_descriptor_limit;
use crate::roles::{Attacked, end_with_driver, say, yield_to_others};

/// How long an attacker tries to be admitted again.
const ADMISSION: Duration = Duration::from_secs(5);

/// The connections over which an attack that mostly waits is made at the same time.
const AT_ONCE: u64 = 4;

/// The time of an attack that is made again and again.
const PART: Duration = Duration::from_millis(500);

/// `hostile attack`
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct AttackArgs {
    /// The name of the attack.
    name: String,

    /// The address of the victim.
    #[arg(long)]
    address: SocketAddr,

    /// The rail.
    #[arg(long)]
    rail: String,

    /// How much of it: frames, keys, connections.
    #[arg(long)]
    count: u64,

    /// The time that it lasts at least, in milliseconds.
    #[arg(long)]
    lasts: u64,

    /// The seed of its random numbers.
    #[arg(long)]
    seed: u64,

    /// The process id of the victim.
    #[arg(long)]
    pid: u32,

    /// The names and keys of a witness, as JSON.
    #[arg(long)]
    secrets: Option<String>,

    /// The token of a publication of the victim.
    #[arg(long)]
    publication: Option<String>,

    /// Use TLS: the attacks that need it say so by their names.
    #[arg(long)]
    tls: bool,

    /// An order of an honest client, as JSON.
    #[arg(long)]
    order: Option<String>,
}

type Attack = fn(&AttackArgs) -> Result<Attacked>;

/// Whether an attack lasts by itself, or is made again and again until its time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lasting {
    Once,
    Again,
}
use Lasting::{Again, Once};

const ATTACKS: &[(&str, Lasting, Attack)] = &[
    ("keys", Once, cross::keys),
    ("marks", Once, cross::marks),
    ("immediates", Once, cross::immediates),
    ("frames", Once, cross::frames),
    ("revoked", Once, cross::revoked),
    ("hello-rails", Again, floods::hello_rails),
    ("grant-keys", Again, floods::grant_keys),
    ("grant-ids", Again, floods::grant_ids),
    ("link-lost", Once, floods::link_lost),
    ("links", Again, floods::links),
    ("numbers", Again, numbers::numbers),
    ("add-overflow", Again, numbers::add_overflow),
    ("bad-grants", Once, numbers::bad_grants),
    ("openings", Once, openings::openings),
    ("rail-garbage", Again, rail_port::garbage),
    ("rail-flips", Once, rail_port::flips),
    ("rail-stranger", Once, rail_port::stranger),
    ("strangers", Once, connections::strangers),
    ("slow", Once, connections::slow),
    ("churn", Again, connections::churn),
    ("unread", Once, connections::unread),
    ("garbage", Again, connections::garbage),
    ("shm", Again, shm::shm),
    ("serve-idle", Once, serve::idle),
    ("serve-slow", Once, serve::slow),
    ("serve-orders", Again, serve::orders),
    ("serve-doctor", Once, serve::doctor),
    ("tls-records", Once, tls::records_to_an_engine),
    ("serve-records", Once, tls::records_to_a_server),
];

pub(crate) fn run(args: &AttackArgs) -> Result<()> {
    end_with_driver();
    // A process that may not have many descriptors still attacks.
    let _ = raise_descriptor_limit();
    yield_to_others();
    let attack = ATTACKS.iter().find(|(name, ..)| *name == args.name);
    let (_, lasting, attack) = attack.with_context(|| format!("there is no attack {:?}", args.name))?;
    say(&match lasting {
        Once => attack(args)?,
        Again => args.again(*attack)?,
    })
}

impl AttackArgs {
    fn rng(&self) -> Mt64 {
        Mt64::new(self.seed)
    }

    fn secrets(&self) -> Result<Secrets> {
        let text = self.secrets.as_deref().context("this attack needs the names and keys of a witness")?;
        Ok(serde_json::from_str(text)?)
    }

    /// Returns when the attack ends.
    fn end(&self) -> Instant {
        Instant::now() + Duration::from_millis(self.lasts)
    }

    /// Makes an attack over several connections at the same time, each with its part of the count.
    fn at_once(&self, attack: Attack) -> Result<Attacked> {
        let part = |number: u64| {
            let count = self.count / AT_ONCE + u64::from(number < self.count % AT_ONCE);
            Self { count, seed: self.seed.wrapping_add(number), ..self.clone() }
        };
        let parts: Vec<Self> = (0..AT_ONCE).map(part).filter(|part| part.count > 0).collect();
        let done: Vec<Result<Attacked>> = std::thread::scope(|scope| {
            let threads: Vec<_> = parts.iter().map(|part| scope.spawn(move || attack(part))).collect();
            threads
                .into_iter()
                .map(|it| it.join().unwrap_or_else(|_| bail!("an attacker panicked")))
                .collect()
        });
        let mut all = Attacked::default();
        for attacked in done {
            all.add(attacked?);
        }
        Ok(all)
    }

    /// Makes an attack until its time is over, and at least once.
    fn again(&self, attack: Attack) -> Result<Attacked> {
        let end = self.end();
        let part =
            Self { lasts: PART.min(Duration::from_millis(self.lasts)).as_millis() as u64, ..self.clone() };
        let mut all = attack(&part)?;
        let (mut times, mut refused) = (1, 0);
        while Instant::now() < end {
            match attack(&part) {
                Ok(attacked) => {
                    times += 1;
                    all.add(attacked);
                }
                // The victim may shut the attacker out, once it has done something.
                Err(_) => {
                    refused += 1;
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        }
        if times + refused > 1 {
            all.did = format!("{times} times, {refused} times shut out: {}", all.counted());
        }
        Ok(all)
    }

    /// Connects as a peer. A victim that has dropped the attacker may refuse it for a while.
    fn join(&self) -> Result<Insider> {
        let deadline = Instant::now() + ADMISSION;
        loop {
            match Insider::join(self.address, &self.rail, "attacker") {
                Ok(insider) => return Ok(insider),
                Err(error) if Instant::now() >= deadline => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }
}

/// Sleeps until this time.
fn sleep_until(time: Instant) {
    std::thread::sleep(time.saturating_duration_since(Instant::now()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_attack_has_a_name_of_its_own() {
        for (place, (name, ..)) in ATTACKS.iter().enumerate() {
            assert!(ATTACKS[..place].iter().all(|(other, ..)| other != name), "{name}");
        }
    }
}
