//! Forged names: keys, marks, immediates and ids of another peer, exact and nearly so. None may
//! reach what is another peer's.
//!
//! Each attack also uses names of its own now and then. The victim sees them work, which shows that
//! the forged ones were refused for what they are, and not lost on the way.

use std::time::{Duration, Instant};

use anyhow::Result;
use farreach_proto::counter::{CounterId, LinkId};
use farreach_proto::ids::{GrantId, PublicationId};
use farreach_proto::wire::Frame;
use rand_mt::Mt64;

use super::{AttackArgs, sleep_until};
use crate::insider::{Insider, LINK, Posted, Secrets};
use crate::layout::GRANT_LEN;
use crate::protocol::{encoded, grant, immediate, link_ready};
use crate::roles::Attacked;

/// After so many forged names comes one that is the attacker's own.
const OWN_EVERY: u64 = 20;

/// An attack ends after so many tries for each forged name, so that a victim that shuts the attacker
/// out ends it.
const TRIES_MAX: u64 = 4;

/// A connection that is made again whenever the victim ends it.
struct Attacker<'a> {
    args: &'a AttackArgs,
    insider: Option<Insider>,
    attacked: Attacked,
    tries: u64,
}

impl<'a> Attacker<'a> {
    fn new(args: &'a AttackArgs) -> Self {
        Self { args, insider: None, attacked: Attacked::default(), tries: 0 }
    }

    /// Returns the number of the next try, until enough forged names were used.
    fn next_try(&mut self) -> Option<u64> {
        let number = self.tries;
        self.tries += 1;
        let is_over = self.attacked.attempts >= self.args.count || number >= TRIES_MAX * self.args.count;
        (!is_over).then_some(number)
    }

    /// Returns the connection, and what the victim has told over it. Returns `None` if the victim
    /// admits the attacker no more, which ends the attack.
    fn insider(&mut self) -> Option<(&mut Insider, Secrets)> {
        if self.insider.as_mut().is_some_and(|insider| insider.pump(Duration::from_micros(1)).is_err()) {
            self.lost();
        }
        if self.insider.is_none() {
            match self.args.join() {
                Ok(insider) => self.insider = Some(insider),
                Err(error) => {
                    self.attacked.did = format!("shut out: {error:#}");
                    return None;
                }
            }
        }
        let insider = self.insider.as_mut()?;
        let own = insider.secrets()?;
        Some((insider, own))
    }

    /// Notes that the victim has ended the connection.
    fn lost(&mut self) {
        self.attacked.count("ended by the victim", 1);
        self.insider = None;
    }

    /// Makes the link usable again after a work request that did not complete.
    fn mend(&mut self) {
        self.insider = self.insider.take().and_then(|insider| insider.mend().ok());
    }

    fn note(&mut self, what: &str, posted: &Posted) {
        let how = match posted {
            Posted::Done => "completed",
            Posted::Failed(_) => "failed",
            Posted::Refused(_) => "not posted",
            Posted::Silent => "unanswered",
        };
        self.attacked.count(&format!("{what} {how}"), 1);
    }

    fn end(mut self, what: &str) -> Attacked {
        let did = [&format!("{what}: {}", self.attacked.counted()), self.attacked.did.as_str()].join("; ");
        self.attacked.did = did.trim_end_matches("; ").to_owned();
        self.attacked
    }
}

/// Forged names that were posted to a link one after the other, and the messages of the attacker's
/// own behind them: when the victim holds such a message, it has handled all that was posted before.
#[derive(Debug, Default)]
struct Row {
    forged: u64,
    messages: u64,
}

/// Returns a forged address and key. None is the attacker's own, at a place where it may write.
fn forged_target(number: u64, own: &Secrets, other: &Secrets, rng: &mut Mt64) -> (u64, u64) {
    let near = (number / 8) % 64 + 1;
    let byte = 8 * (rng.next_u64() % 8);
    match number % 8 {
        0 => (other.address, other.key),
        1 => (other.address, own.key.wrapping_sub(1 << byte)),
        2 => (other.address, own.key.wrapping_add(near)),
        3 => (other.address, own.key.wrapping_sub(near)),
        4 => (other.address, other.key ^ (rng.next_u64() % 255 + 1) << byte),
        5 => (other.address, rng.next_u64()),
        6 if own.address != other.address => (other.address, own.key),
        6 => (own.address.wrapping_add(GRANT_LEN as u64 * near), own.key),
        _ => (own.address.wrapping_add(GRANT_LEN as u64 - 4), own.key),
    }
}

/// Writes, reads and adds with forged keys.
pub(super) fn keys(args: &AttackArgs) -> Result<Attacked> {
    let mut attacked = args.at_once(keys_of_one)?;
    attacked.did = format!("keys: {}", attacked.counted());
    Ok(attacked)
}

fn keys_of_one(args: &AttackArgs) -> Result<Attacked> {
    let (other, mut rng, end) = (args.secrets()?, args.rng(), args.end());
    let mut attacker = Attacker::new(args);
    let mut is_usable = false;
    while let Some(number) = attacker.next_try() {
        let Some((insider, own)) = attacker.insider() else { break };
        // A forged key counts only over a link that has just carried a write with the attacker's own.
        if !is_usable || number % OWN_EVERY == 0 {
            let posted = insider.poster.write(own.address, own.key, None);
            is_usable = posted == Posted::Done;
            attacker.note("own", &posted);
            if !is_usable {
                attacker.insider = None;
                continue;
            }
        }
        let Some((insider, _)) = attacker.insider() else { break };
        let (address, key) = forged_target(number, &own, &other, &mut rng);
        let posted = match number % 5 {
            0 => insider.poster.read(address, key),
            1 => insider.poster.fetch_add(address, key),
            _ => insider.poster.write(address, key, None),
        };
        attacker.attacked.attempts += u64::from(!matches!(posted, Posted::Refused(_)));
        attacker.note("forged", &posted);
        if posted == Posted::Done {
            let case = format!("{key:#x} (own key {:#x})", own.key);
            attacker.attacked.breach("an access with a forged key completed", case);
        } else {
            is_usable = false;
            attacker.mend();
        }
    }
    sleep_until(end);
    Ok(attacker.end("keys"))
}

/// Sends messages with forged marks.
pub(super) fn marks(args: &AttackArgs) -> Result<Attacked> {
    let (other, mut rng) = (args.secrets()?, args.rng());
    in_rows(args, "marks", |insider, own, number| {
        let near = number / 8 % 64 + 1;
        let mark = match number % 8 {
            0..=2 => other.mark,
            3 => own.mark.wrapping_sub(near),
            4 => own.mark.wrapping_add(near),
            5 => other.mark ^ 1 << (rng.next_u64() % 64),
            6 => number / 8,
            _ => rng.next_u64(),
        };
        // The first number that the victim waits for, and later ones.
        (mark != own.mark).then(|| insider.poster.send(mark, number / 8 % 8))
    })
}

/// Writes to the attacker's own memory with forged immediates.
pub(super) fn immediates(args: &AttackArgs) -> Result<Attacked> {
    let (other, mut rng) = (args.secrets()?, args.rng());
    in_rows(args, "immediates", |insider, own, number| {
        let name = |secrets: &Secrets| secrets.names.first().copied().unwrap_or(secrets.counter);
        let own_bits = immediate(CounterId::from_raw(name(own)));
        if number % OWN_EVERY == 0 {
            let _ = insider.poster.write(own.address, own.key, Some(own_bits));
        }
        let near = (number / 8 % 64 + 1) as u32;
        let bits = match number % 8 {
            0 | 1 => immediate(CounterId::from_raw(name(&other))),
            2 => immediate(CounterId::from_raw(other.counter)),
            // The counters before and after the attacker's own.
            3 => immediate(CounterId::from_raw(name(own).wrapping_sub(near << 8))),
            4 => immediate(CounterId::from_raw(name(own).wrapping_add(near << 8))),
            // Other epochs of the same counter.
            5 => immediate(CounterId::from_raw(name(&other) & !0x3f | near & 0x3f)),
            6 => immediate(CounterId::from_raw((((number / 8) & 0xffff) as u32) << 8)),
            _ => rng.next_u64() as u32,
        };
        (bits != own_bits).then(|| insider.poster.write(own.address, own.key, Some(bits)))
    })
}

/// Posts forged names in rows, each with a message of the attacker's own at its end. `forge` posts
/// one, unless it is the attacker's own by chance.
fn in_rows(
    args: &AttackArgs,
    what: &str,
    mut forge: impl FnMut(&mut Insider, &Secrets, u64) -> Option<Posted>,
) -> Result<Attacked> {
    let end = args.end();
    let mut attacker = Attacker::new(args);
    let mut row = Row::default();
    while let Some(number) = attacker.next_try() {
        if attacker.insider.is_none() {
            row = Row::default();
        }
        let Some((insider, own)) = attacker.insider() else { break };
        let Some(posted) = forge(insider, &own, number) else { continue };
        row.forged += u64::from(posted == Posted::Done);
        attacker.note("forged", &posted);
        if posted != Posted::Done {
            attacker.insider = None;
            continue;
        }
        if row.forged < OWN_EVERY.min(args.count - attacker.attacked.attempts) {
            continue;
        }
        let Some((insider, own)) = attacker.insider() else { break };
        let posted = insider.poster.send(own.mark, row.messages);
        row.messages += 1;
        if posted == Posted::Done && insider.await_held(row.messages).is_ok() {
            attacker.attacked.attempts += std::mem::take(&mut row.forged);
        } else {
            attacker.lost();
        }
        attacker.note("own", &posted);
    }
    sleep_until(end);
    Ok(attacker.end(what))
}

/// Returns a well-formed frame about a thing of another peer, or about one that does not exist.
fn forged_frame(number: u64, own: &Secrets, other: &Secrets, rng: &mut Mt64) -> Frame {
    let near = number / 32 % 64 + 1;
    let grant_id = GrantId::from_raw(match number / 16 % 4 {
        0 => other.grant.to_raw(),
        1 => own.grant.to_raw().wrapping_sub(near),
        2 => own.grant.to_raw().wrapping_add(near),
        _ => rng.next_u64(),
    });
    let counter = CounterId::from_raw(match number / 16 % 4 {
        0 => other.counter,
        1 => other.names.first().copied().unwrap_or(other.counter),
        2 => own.counter.wrapping_add((near as u32) << 8),
        _ => rng.next_u64() as u32,
    });
    match number % 16 {
        0 | 1 => Frame::Revoked { grant: grant_id },
        2 => Frame::Revoke { grant: grant_id },
        3 | 4 => Frame::Add { counter, pages: 1000 },
        5 | 6 => Frame::Abort { counter, reason: "forged".to_owned() },
        7 => Frame::CounterClosed { counter },
        8 => Frame::Settle { link: LINK, counter },
        9 => Frame::Settled { link: LINK, counter, pages: near },
        10 => Frame::Counter { counter, names: vec![(LINK, counter)] },
        11 => grant(grant_id, GRANT_LEN as u64, vec![Some((other.address, other.key))]),
        12 => Frame::Held { next: 0 },
        13 => Frame::Taken { count: 0 },
        14 => Frame::Open { publication: PublicationId::from_raw(grant_id.to_raw()) },
        _ => link_ready(LinkId(near), 7),
    }
}

/// Sends forged frames.
pub(super) fn frames(args: &AttackArgs) -> Result<Attacked> {
    let mut attacked = args.at_once(frames_of_one)?;
    attacked.did = format!("frames: {}", attacked.counted());
    Ok(attacked)
}

fn frames_of_one(args: &AttackArgs) -> Result<Attacked> {
    let (other, mut rng, end) = (args.secrets()?, args.rng(), args.end());
    let mut attacker = Attacker::new(args);
    while let Some(number) = attacker.next_try() {
        let Some((insider, own)) = attacker.insider() else { break };
        if number % OWN_EVERY == 0 {
            // A peer takes each number once, so the first one on each connection arrives.
            let _ = insider.speaker.send(&Frame::Message { sequence: 0, bytes: b"own".to_vec() });
        }
        // Nothing else is under way: if the victim ends the connection, it does so for this frame.
        let is_sent = insider.await_handled().is_ok()
            && insider.speaker.send(&forged_frame(number, &own, &other, &mut rng)).is_ok();
        attacker.attacked.attempts += u64::from(is_sent);
        attacker.attacked.count(if is_sent { "sent" } else { "not sent" }, 1);
        if attacker.insider.as_mut().is_some_and(|insider| insider.await_handled().is_err()) {
            attacker.lost();
        }
    }
    sleep_until(end);
    Ok(attacker.end("frames"))
}

/// Confirms a revocation in the name of another peer, again and again.
pub(super) fn revoked(args: &AttackArgs) -> Result<Attacked> {
    let (other, end) = (args.secrets()?, args.end());
    let mut attacker = Attacker::new(args);
    while Instant::now() < end {
        let Some((insider, own)) = attacker.insider() else { break };
        let near = (1..=64).map(|near| GrantId::from_raw(own.grant.to_raw().wrapping_sub(near)));
        let frames: Vec<Frame> = near.chain([other.grant; 8]).map(|grant| Frame::Revoked { grant }).collect();
        // The victim may end the connection, and the next round makes another one.
        if insider.speaker.send_bytes(&encoded(&frames)?).is_ok() {
            attacker.attacked.count("sent", frames.len() as u64);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(attacker.end("confirmations"))
}
