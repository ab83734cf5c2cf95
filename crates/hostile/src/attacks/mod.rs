//! The attackers, one process each.

mod connections;
mod cross;
mod floods;
mod numbers;
mod rail_port;
mod serve;

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

    /// An order of an honest client, as JSON.
    #[arg(long)]
    order: Option<String>,
}

type Attack = fn(&AttackArgs) -> Result<Attacked>;

const ATTACKS: &[(&str, Attack)] = &[
    ("keys", cross::keys),
    ("marks", cross::marks),
    ("immediates", cross::immediates),
    ("frames", cross::frames),
    ("revoked", cross::revoked),
    ("hello-rails", floods::hello_rails),
    ("grant-keys", floods::grant_keys),
    ("grant-ids", floods::grant_ids),
    ("link-lost", floods::link_lost),
    ("links", floods::links),
    ("numbers", numbers::numbers),
    ("add-overflow", numbers::add_overflow),
    ("bad-grants", numbers::bad_grants),
    ("rail-garbage", rail_port::garbage),
    ("rail-flips", rail_port::flips),
    ("rail-stranger", rail_port::stranger),
    ("strangers", connections::strangers),
    ("slow", connections::slow),
    ("churn", connections::churn),
    ("unread", connections::unread),
    ("garbage", connections::garbage),
    ("serve-idle", serve::idle),
    ("serve-slow", serve::slow),
    ("serve-orders", serve::orders),
];

pub(crate) fn run(args: &AttackArgs) -> Result<()> {
    end_with_driver();
    // A process that may not have many descriptors still attacks.
    let _ = raise_descriptor_limit();
    yield_to_others();
    let attack = ATTACKS.iter().find(|(name, _)| *name == args.name);
    let (_, attack) = attack.with_context(|| format!("there is no attack {:?}", args.name))?;
    say(&attack(args)?)
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
        for (place, (name, _)) in ATTACKS.iter().enumerate() {
            assert!(ATTACKS[..place].iter().all(|(other, _)| other != name), "{name}");
        }
    }
}
