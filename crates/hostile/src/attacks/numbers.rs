//! Numbers at their limits.

use std::time::{Duration, Instant};

use anyhow::Result;
use farreach_proto::counter::{CounterId, LinkId};
use farreach_proto::ids::{GrantId, PublicationId, SharedCounterId};
use farreach_proto::rail::Scope;
use farreach_proto::wire::fields::{Field, Kind};
use farreach_proto::wire::{BoundKey, Frame, Hello, LinkOffer};

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

/// Returns lists of frames, each for a connection of its own: each kind with its numbers at their limits, and
/// what is at a limit by its count or its length.
fn extreme_frames(insider: &Insider) -> Vec<Vec<Frame>> {
    let own = CounterId::from_raw(insider.secrets().map_or(0, |own| own.counter));
    let at_limits = |kind: &Kind| {
        let frame = |(link, counter, number)| {
            let mut frame = Frame::blank(*kind);
            frame.fields(&mut |field| set(field, link, counter, number));
            frame
        };
        [(LINK, own, u64::MAX), (LinkId(u64::MAX), CounterId::from_raw(u32::MAX), u64::MAX), (LINK, own, 0)]
            .map(frame)
            .to_vec()
    };
    let mut lists: Vec<Vec<Frame>> = Kind::ALL.iter().map(at_limits).collect();
    lists.extend([
        vec![Frame::Taken { count: u32::MAX }; 100],
        vec![Frame::Held { next: u64::MAX }, Frame::Held { next: 0 }, Frame::Held { next: u64::MAX }],
        vec![Frame::Message { sequence: 0, bytes: vec![b'x'; 60_000] }],
        vec![insider.second_hello()],
        vec![Frame::Look; 1000],
        vec![Frame::Counter { counter: own, names: vec![(LINK, own); 5000] }],
    ]);
    for (from, to) in [(u16::MAX, u16::MAX), (0, u16::MAX), (u16::MAX, 0), (0, 0)] {
        let link = LinkId(u64::MAX);
        lists.push(vec![
            Frame::LinkLost { link: LINK, is_quiet: true, reason: "r".repeat(60_000) },
            Frame::Link(LinkOffer { link, from, to, address: vec![0xff; 50_000] }),
            link_ready(link, u64::MAX),
        ]);
    }
    lists
}

/// Sets a field to this link, counter or number, as far as it can hold it.
fn set(field: Field<'_>, of_link: LinkId, of_counter: CounterId, limit: u64) {
    match field {
        Field::Flag(flag) => *flag = limit > 0,
        Field::Link(link) => *link = of_link,
        Field::Counter(counter) => *counter = of_counter,
        Field::Grant(grant) => *grant = GrantId::from_raw(limit),
        Field::Publication(publication) => *publication = PublicationId::from_raw(limit),
        Field::Shared(shared) => *shared = SharedCounterId::from_raw(limit),
        Field::Mark(number) | Field::Number(number) => *number = limit,
        Field::Short(number) => *number = limit as u32,
        Field::Rail(rail) => *rail = limit as u16,
        Field::Rights(rights) => *rights = limit as u8,
        Field::Scope(scope) => *scope = if limit > 0 { Scope::Host } else { Scope::Network },
        Field::Address(bytes) | Field::Bytes(bytes) => bytes.resize((limit % 101) as usize, 0xff),
        Field::Text(text) => text.push_str("at the limit"),
        Field::Rails(rails) => rails.resize((limit % 101) as usize, String::new()),
        Field::Keys(keys) => keys.push(Some((limit, limit))),
        Field::BoundKeys(keys) => {
            keys.push(BoundKey { grant: GrantId::from_raw(limit), address: limit, key: limit })
        }
        Field::Names(names) => names.push((of_link, of_counter)),
    }
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
        let id = GrantId::from_raw(number as u64 + 1);
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
