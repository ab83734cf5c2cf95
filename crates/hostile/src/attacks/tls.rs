//! Records of TLS that cost a decryption and carry nothing, by somebody who has the secret.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use farreach::rustls::{ClientConnection, Stream};
use farreach::{Tls, TlsSession};
use farreach_proto::wire::{Frame, PREAMBLE_LEN, preamble};

use super::{AttackArgs, HEAD_LEN};
use crate::protocol::{SECRET, connect, encoded, hello, is_closed};
use crate::roles::Attacked;

/// Key updates for each byte of content, fewer than rustls allows in a row.
const UPDATES_PER_BYTE: u64 = 31;

/// Bytes of content between two looks at the connection.
const BURST: usize = 8;

/// Key updates of a connection that no sockets hold: a victim that has not closed it then has taken
/// many of them.
const UPDATES_MAX: u64 = 450_000;

/// The bytes of content that follow each other: a frame or an order, as far as the connection lives.
const CONTENT: usize = 16_000;

type Session = TlsSession<ClientConnection>;

/// Connects with a hello, and sends a message of one byte in each record.
pub(super) fn records_to_an_engine(args: &AttackArgs) -> Result<Attacked> {
    let message = encoded([&Frame::Message { sequence: 1, bytes: vec![0; CONTENT] }])?;
    flood(args, &message, |stream| {
        stream.write_all(&[&preamble()[..], &encoded([&hello("attacker", &[])])?].concat())?;
        Ok(stream.read_exact(&mut [0; PREAMBLE_LEN])?)
    })
}

/// Sends an order of one byte in each record.
pub(super) fn records_to_a_server(args: &AttackArgs) -> Result<Attacked> {
    let order = [&(CONTENT as u32).to_be_bytes()[..], &[b' '; CONTENT]].concat();
    flood(args, &order, |stream| {
        let mut head = [0; HEAD_LEN];
        stream.read_exact(&mut head)?;
        Ok(stream.write_all(&head)?)
    })
}

/// Floods one connection after the other with key updates between bytes of content.
fn flood(
    args: &AttackArgs,
    content: &[u8],
    greet: impl Fn(&mut Stream<'_, ClientConnection, TcpStream>) -> Result<()>,
) -> Result<Attacked> {
    let (mut attacked, end) = (Attacked::default(), args.end());
    let tls = Tls::from_secret(SECRET.parse().map_err(crate::told)?);
    let mut connections = 0;
    while connections == 0 || (Instant::now() < end && connections < args.count) {
        let mut session = tls.connecting("victim").map_err(crate::told)?;
        let mut stream = connect(args.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        if greet(&mut Stream::new(&mut *session, &mut stream)).is_err() {
            attacked.count("greetings without an answer", 1);
            std::thread::sleep(Duration::from_millis(50));
            continue;
        }
        let updates = updates(&mut session, &mut stream, content)?;
        connections += 1;
        attacked.count("connections", 1);
        attacked.count("key updates", updates);
        if updates > UPDATES_MAX {
            attacked.breach("a connection lives by records without content", format!("{updates} of them"));
        }
    }
    attacked.did = attacked.counted();
    Ok(attacked)
}

/// Sends until the victim has closed the connection. Returns how many key updates were sent.
fn updates(session: &mut Session, stream: &mut TcpStream, content: &[u8]) -> Result<u64> {
    let (mut sent, mut records) = (0, Vec::new());
    for burst in content.chunks(BURST) {
        for byte in burst {
            session.writer().write_all(&[*byte])?;
            for _ in 0..UPDATES_PER_BYTE {
                session.refresh_traffic_keys().context("a key update")?;
            }
        }
        records.clear();
        while session.wants_write() {
            session.write_tls(&mut records)?;
        }
        if stream.write_all(&records).is_err() {
            break;
        }
        sent += burst.len() as u64 * UPDATES_PER_BYTE;
        if is_closed(stream) {
            break;
        }
    }
    Ok(sent)
}
