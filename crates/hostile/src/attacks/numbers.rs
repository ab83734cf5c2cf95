//! Numbers at their limits.

use std::time::{Duration, Instant};

use anyhow::Result;
use farreach_proto::counter::{CounterId, LinkId};
use farreach_proto::wire::{Frame, Hello, LinkOffer};

use super::{AttackArgs, sleep_until};
use crate::insider::{Insider, LINK};
use crate::protocol::{Speaker, grant, grant_token, link_ready};
use crate::roles::Attacked;

/// Sends frames with the largest and the smallest numbers, each over a connection of its own.
pub(super) fn numbers(args: &AttackArgs) -> Result<Attacked> {
    let (mut attacked, end) = (Attacked::default(), args.end());
    let mut ended = 0;
    'all: for _ in 0..args.count {
        let insider = args.join()?;
        let kinds = extreme_frames(&insider).len();
        drop(insider);
        for kind in 0..kinds {
            let Ok(mut insider) = args.join() else { break 'all };
            let frames = extreme_frames(&insider).swap_remove(kind);
            for frame in &frames {
                if insider.speaker.send(frame).is_err() {
                    break;
                }
                attacked.count("sent", 1);
            }
            let until = Instant::now() + Duration::from_millis(20);
            while Instant::now() < until && insider.pump(Duration::from_millis(5)).is_ok() {}
            ended += u64::from(insider.pump(Duration::from_millis(1)).is_err());
        }
    }
    attacked.count("ended by the victim", ended);
    greet_with_numbers(args, &mut attacked)?;
    sleep_until(end);
    let sent = attacked.counts.get("sent").copied().unwrap_or_default();
    attacked.did =
        format!("{sent} frames with numbers at their limits, {ended} connections ended by the victim");
    Ok(attacked)
}

/// Returns lists of frames, each for a connection of its own.
fn extreme_frames(insider: &Insider) -> Vec<Vec<Frame>> {
    let own = insider.secrets().map_or(0, |own| own.counter);
    let counters = [own, 0, u32::MAX].map(CounterId::from_raw);
    let links = [LINK, LinkId(u64::MAX), LinkId(u64::MAX - 1)];
    let mut lists = vec![
        vec![Frame::Taken { count: u32::MAX }; 100],
        vec![Frame::Held { next: u64::MAX }, Frame::Held { next: 0 }, Frame::Held { next: u64::MAX }],
        vec![Frame::Message { sequence: u64::MAX, bytes: vec![0; 100] }],
        vec![Frame::Message { sequence: 0, bytes: vec![b'x'; 60_000] }],
        vec![Frame::Revoked { grant: u64::MAX }, Frame::Revoke { grant: u64::MAX }],
        vec![Frame::Ping { nonce: u64::MAX }],
        vec![insider.second_hello()],
        vec![Frame::Look; 1000],
    ];
    for counter in counters {
        for link in links {
            lists.push(vec![
                Frame::Settle { link, counter },
                Frame::Settled { link, counter, pages: u64::MAX },
                Frame::Settled { link, counter, pages: 0 },
                Frame::Counter { counter, names: vec![(link, counter); 5000] },
                Frame::CounterClosed { counter },
                Frame::LinkLost { link, is_quiet: true, reason: "r".repeat(60_000) },
            ]);
        }
    }
    for (from, to) in [(u16::MAX, u16::MAX), (0, u16::MAX), (u16::MAX, 0), (0, 0)] {
        let link = LinkId(u64::MAX);
        lists.push(vec![
            Frame::LinkLost { link: LINK, is_quiet: true, reason: String::new() },
            Frame::Link(LinkOffer { link, from, to, address: vec![0xff; 50_000] }),
            link_ready(link, u64::MAX),
        ]);
    }
    lists
}

/// Greets with the largest and the smallest numbers.
fn greet_with_numbers(args: &AttackArgs, attacked: &mut Attacked) -> Result<()> {
    for number in [0, 1, u32::MAX] {
        let mut speaker = Speaker::connect(args.address)?;
        let hello = Hello { name: "attacker".repeat(5000), messages: number, ..Hello::new(number.into()) };
        let sent = speaker.send(&Frame::Hello(hello));
        attacked.count(if sent.is_ok() { "sent" } else { "refused" }, 1);
    }
    Ok(())
}

/// Adds the largest number to the attacker's own counter, three times.
pub(super) fn add_overflow(args: &AttackArgs) -> Result<Attacked> {
    let (mut attacked, end) = (Attacked::default(), args.end());
    for _ in 0..args.count {
        let mut insider = args.join()?;
        let counter = CounterId::from_raw(insider.secrets().map_or(0, |own| own.counter));
        for _ in 0..3 {
            insider.speaker.send(&Frame::Add { counter, pages: u64::MAX })?;
            attacked.count("sent", 1);
        }
        let until = Instant::now() + Duration::from_millis(50);
        while Instant::now() < until && insider.pump(Duration::from_millis(5)).is_ok() {}
    }
    sleep_until(end);
    attacked.did = format!("{} additions of the largest number", 3 * args.count);
    Ok(attacked)
}

/// Grants memory near the last address, of impossible length or nowhere, and has the victim use it.
pub(super) fn bad_grants(args: &AttackArgs) -> Result<Attacked> {
    const MAX: u64 = u64::MAX;
    let cases: [(u64, u64); 8] = [
        (MAX, 0),
        (MAX, MAX),
        (8192, MAX - 4095),
        (4096, MAX - 4095),
        (1 << 63, 1 << 63),
        (MAX - 7, 8),
        (1 << 40, 4096),
        (8192, 1),
    ];
    let (mut attacked, end) = (Attacked::default(), args.end());
    let pause = Duration::from_millis(args.lasts / args.count.max(1));
    for (number, (len, address)) in cases.iter().cycle().take(args.count.try_into()?).enumerate() {
        let mut insider = args.join()?;
        let id = number as u64 + 1;
        insider.speaker.send(&grant(id, *len, vec![Some((*address, 7)); 4]))?;
        let bytes = format!("use {}", grant_token(id)).into_bytes();
        insider.speaker.send(&Frame::Message { sequence: 0, bytes })?;
        attacked.count("granted", 1);
        // The victim's operations need this side's progress to fail.
        let until = Instant::now() + pause;
        while Instant::now() < until && insider.pump(Duration::from_millis(1)).is_ok() {}
    }
    sleep_until(end);
    attacked.did = format!("{} grants of impossible memory, each used by the victim", args.count);
    Ok(attacked)
}
