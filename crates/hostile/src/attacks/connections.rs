//! Many connections of strangers to an engine.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::Result;
use farreach_proto::counter::{CounterId, LinkId};
use farreach_proto::ids::GrantId;
use farreach_proto::wire::{Frame, LinkOffer, preamble};

use super::{AttackArgs, sleep_until};
use crate::protocol::{Speaker, connect, encoded, grant, hello, is_closed, is_timeout, link_ready, rails_of};
use crate::roles::Attacked;
use crate::victim::PEER_TIMEOUT;

/// Greets as many peers, which send pings and nothing else.
pub(super) fn strangers(args: &AttackArgs) -> Result<Attacked> {
    let (mut attacked, end) = (Attacked::default(), args.end());
    let rails = rails_of(args.address)?;
    let (mut kept, mut refused) = (Vec::new(), 0);
    for _ in 0..args.count {
        match Speaker::greet(args.address, "stranger", &rails) {
            Ok(speaker) => kept.push(speaker),
            Err(_) => refused += 1,
        }
        kept.iter_mut().for_each(|speaker| _ = speaker.ping_if_due());
    }
    let greeted = kept.len();
    while Instant::now() < end {
        kept.retain_mut(|speaker| speaker.ping_if_due().is_ok() && !speaker.is_closed());
        std::thread::sleep(Duration::from_millis(100));
    }
    attacked.count("greeted", greeted as u64);
    attacked.count("admitted", kept.len() as u64);
    attacked.did =
        format!("{greeted} strangers greeted, {refused} could not connect, {} are admitted", kept.len());
    Ok(attacked)
}

/// Greets and leaves, again and again.
pub(super) fn churn(args: &AttackArgs) -> Result<Attacked> {
    let (mut attacked, end) = (Attacked::default(), args.end());
    let rails = rails_of(args.address)?;
    let (mut greeted, mut refused) = (0, 0);
    for _ in 0..args.count {
        match Speaker::greet(args.address, "stranger", &rails) {
            Ok(_) => greeted += 1,
            Err(_) => refused += 1,
        }
    }
    sleep_until(end);
    attacked.count("greeted", greeted);
    attacked.did = format!("{greeted} greeted and left, {refused} could not connect");
    Ok(attacked)
}

/// A connection that sends frames that must be answered, and reads no answer.
struct Unread {
    stream: TcpStream,
    /// The next byte of the frames to be sent.
    at: usize,
}

impl Unread {
    fn open(args: &AttackArgs, opening: &[u8]) -> Result<Self> {
        let mut stream = connect(args.address)?;
        // Little fits into the socket, and the rest stays with the victim. With less than this, the
        // kernel drops segments of the victim, and the attack slows itself down.
        rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 256 << 10)?;
        stream.write_all(opening)?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream, at: 0 })
    }

    /// Sends as much of the frames as the victim takes now, and begins again at their end. Returns
    /// the number of bytes; `None` if the victim has closed the connection.
    fn send(&mut self, frames: &[u8]) -> Option<usize> {
        match self.stream.write(&frames[self.at..]) {
            Ok(len) => {
                self.at = (self.at + len) % frames.len();
                Some(len)
            }
            Err(error) if is_timeout(&error) => Some(0),
            Err(_) => None,
        }
    }
}

/// Sends frames that must be answered, and reads no answer. A connection that the victim closes is
/// followed by another one, so that there are always as many.
pub(super) fn unread(args: &AttackArgs) -> Result<Attacked> {
    const BURST: usize = 2000;
    let (mut attacked, end) = (Attacked::default(), args.end());
    let rails = rails_of(args.address)?;
    let frames = encoded(&vec![Frame::Revoke { grant: GrantId::from_raw(u64::MAX) }; BURST])?;
    let opening = [&preamble()[..], &encoded([&hello("unread", &rails)])?].concat();
    let mut kept = (0..args.count).map(|_| Unread::open(args, &opening)).collect::<Result<Vec<_>>>()?;
    let (mut bytes, mut closed) = (0, 0);
    while Instant::now() < end {
        let before = bytes;
        for connection in &mut kept {
            match connection.send(&frames) {
                Some(sent) => bytes += sent as u64,
                None => {
                    closed += 1;
                    // The victim may refuse it, and the next round tries again.
                    if let Ok(another) = Unread::open(args, &opening) {
                        *connection = another;
                    }
                }
            }
        }
        if bytes == before {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let sent = bytes / (frames.len() / BURST) as u64;
    attacked.count("frames", sent);
    attacked.count("closed", closed);
    attacked.did = format!(
        "{} connections that read nothing, {sent} frames to be answered, {closed} times closed by the victim",
        args.count
    );
    Ok(attacked)
}

/// Sends a good opening and good frames with one byte changed or the rest missing, and random
/// bytes in frames.
pub(super) fn garbage(args: &AttackArgs) -> Result<Attacked> {
    let (mut attacked, mut rng, end) = (Attacked::default(), args.rng(), args.end());
    let rails = rails_of(args.address)?;
    let frames = [
        hello("garbage", &rails),
        Frame::Link(LinkOffer { link: LinkId(1), from: 0, to: 0, address: vec![7; 40] }),
        link_ready(LinkId(1), 7),
        grant(GrantId::from_raw(1), 4096, vec![Some((4096, 7))]),
        Frame::Message { sequence: 0, bytes: b"hello".to_vec() },
        Frame::Counter { counter: CounterId::from_raw(7), names: vec![(LinkId(1), CounterId::from_raw(8))] },
        Frame::LinkLost { link: LinkId(1), is_quiet: true, reason: "over".to_owned() },
        Frame::Revoke { grant: GrantId::from_raw(1) },
        Frame::Goodbye,
    ];
    let good = [&preamble()[..], &encoded(&frames)?].concat();
    let opening = [&preamble()[..], &encoded(&frames[..1])?].concat();
    for number in 0..args.count {
        let at = rng.next_u64() as usize % good.len();
        let bytes = match number % 3 {
            0 => [&good[..at], &[good[at] ^ 1 << (number % 8)], &good[at + 1..]].concat(),
            1 => good[..at].to_vec(),
            _ => {
                let mut content = vec![0; rng.next_u64() as usize % 80 + 1];
                rng.fill_bytes(&mut content);
                [&opening[..], &u32::try_from(content.len())?.to_be_bytes(), &content].concat()
            }
        };
        let Ok(mut stream) = connect(args.address) else { continue };
        attacked.count("sent", u64::from(stream.write_all(&bytes).is_ok()));
    }
    sleep_until(end);
    attacked.did = format!("{} streams, flipped, cut and random", args.count);
    Ok(attacked)
}

/// How long a handshake may take. A slower connection must be closed.
const HANDSHAKE_MAX: Duration = PEER_TIMEOUT.saturating_mul(5).checked_div(2).expect("two is not zero");

/// Sends a preamble and a hello, a byte at a time. Half of the connections send the preamble at
/// once.
pub(super) fn slow(args: &AttackArgs) -> Result<Attacked> {
    const PAUSE: Duration = Duration::from_millis(250);
    let (mut attacked, start, end) = (Attacked::default(), Instant::now(), args.end());
    let opening = [&preamble()[..], &encoded([&hello("slow", &rails_of(args.address)?)])?].concat();
    let mut kept: Vec<(TcpStream, usize)> = Vec::new();
    for number in 0..args.count {
        let Ok(mut stream) = connect(args.address) else { continue };
        let first = if number % 2 == 0 { 1 } else { preamble().len() };
        if stream.write_all(&opening[..first]).is_ok() {
            kept.push((stream, first));
        }
    }
    let (opened, all_open) = (kept.len(), start.elapsed());
    while Instant::now() < end {
        kept.retain_mut(|(stream, sent)| {
            let byte = opening.get(*sent).copied().unwrap_or_default();
            *sent += 1;
            // The last byte is never sent.
            let is_whole = *sent >= opening.len();
            (is_whole || stream.write_all(&[byte]).is_ok()) && !is_closed(stream)
        });
        std::thread::sleep(PAUSE);
    }
    attacked.count("opened", opened as u64);
    attacked.count("open", kept.len() as u64);
    if start.elapsed() > all_open + HANDSHAKE_MAX && !kept.is_empty() {
        let case = format!("{} after {HANDSHAKE_MAX:?}", kept.len());
        attacked.breach("connections that have not greeted are open", case);
    }
    attacked.did = format!("{opened} connections of a byte at a time, {} are open", kept.len());
    Ok(attacked)
}
