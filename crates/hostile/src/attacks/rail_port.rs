//! A stranger at the rail's own port, past the control channel: libfabric listens there.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use farreach_proto::counter::CounterId;

use super::{AttackArgs, sleep_until};
use crate::host;
use crate::insider::{Posted, Poster, is_tcp, open_rail};
use crate::protocol::{connect, immediate, is_timeout};
use crate::roles::Attacked;

/// Connections that send garbage and stay open.
const OPEN_MAX: usize = 64;

/// How long a connection with a flipped bit is waited for. Most of them get no answer.
const FLIPPED_LASTS: Duration = Duration::from_millis(60);

/// Returns the ports that the victim listens at, except that of its control channel.
fn rail_ports(args: &AttackArgs) -> Result<Vec<SocketAddr>> {
    ensure!(is_tcp(&args.rail), "only tcp has a port that strangers can connect to");
    let mut ports = host::listeners(args.pid)?;
    ports.retain(|address| address.port() != args.address.port());
    ensure!(!ports.is_empty(), "the victim listens at no port of a rail");
    Ok(ports)
}

/// Connects to the rail's port, and sends random bytes.
pub(super) fn garbage(args: &AttackArgs) -> Result<Attacked> {
    let (mut attacked, mut rng, end) = (Attacked::default(), args.rng(), args.end());
    let ports = rail_ports(args)?;
    let (mut kept, mut refused) = (Vec::new(), 0);
    for number in 0..args.count {
        let port = ports[number as usize % ports.len()];
        let Ok(mut stream) = connect(port) else {
            refused += 1;
            continue;
        };
        let len = [0, 1, 3, 8, 16, 64, 512, 4096, 65536][rng.next_u64() as usize % 9];
        let mut bytes = vec![0; len];
        match number % 3 {
            0 => rng.fill_bytes(&mut bytes),
            1 => bytes.fill(0xff),
            // Zeros, and a large length where a header may have one.
            _ => bytes.iter_mut().skip(4).step_by(8).for_each(|byte| *byte = 0x7f),
        }
        let _ = stream.write_all(&bytes);
        kept.push(stream);
        if kept.len() > OPEN_MAX {
            kept.drain(..OPEN_MAX / 2);
        }
    }
    sleep_until(end);
    attacked.count("connections", args.count - refused);
    attacked.did = format!(
        "{} connections with garbage to {} ports of the rail, {refused} refused",
        args.count - refused,
        ports.len()
    );
    Ok(attacked)
}

/// Communicates as libfabric does, from an endpoint that is no peer.
pub(super) fn stranger(args: &AttackArgs) -> Result<Attacked> {
    let mut attacked = args.at_once(stranger_of_one)?;
    attacked.did = format!("endpoints that are no peers: {}", attacked.counted());
    Ok(attacked)
}

fn stranger_of_one(args: &AttackArgs) -> Result<Attacked> {
    let (mut attacked, mut rng, end) = (Attacked::default(), args.rng(), args.end());
    let other = args.secrets()?;
    let (mut poster, _) = Poster::open(open_rail(&args.rail)?)?;
    poster.connect(&other.end)?;
    // Enough tries, also if some requests cannot be posted.
    for number in 0..4 * args.count {
        if attacked.attempts >= args.count {
            break;
        }
        let near = number / 8 % 64 + 1;
        let name = other.names.first().copied().unwrap_or(other.counter);
        let bits = Some(immediate(CounterId::from_raw(name)));
        let forged = [other.key.wrapping_sub(near), other.key.wrapping_add(near), rng.next_u64(), 0];
        let key = forged[number as usize / 2 % 4];
        let posted = match number % 8 {
            0..=2 => poster.send(rng.next_u64(), number),
            3 => poster.send(other.mark.wrapping_add(near), 0),
            4 => poster.send(near, 0),
            5 => poster.write(other.address, key, bits),
            6 => poster.read(other.address, key),
            _ => poster.fetch_add(other.address, key),
        };
        let what = if number % 8 < 5 { "messages" } else { "accesses" };
        attacked.attempts += u64::from(!matches!(posted, Posted::Refused(_)));
        if posted == Posted::Done {
            attacked.count(&format!("{what} completed"), 1);
            if what == "accesses" {
                attacked.breach("an access with a forged key completed", format!("{key:#x}"));
            }
        } else {
            attacked.count(&format!("{what} not completed"), 1);
            poster.open_link()?;
            poster.connect(&other.end)?;
        }
    }
    sleep_until(end);
    Ok(attacked)
}

/// Communicates as libfabric does, with one bit of the stream flipped, each time another one.
pub(super) fn flips(args: &AttackArgs) -> Result<Attacked> {
    let (mut attacked, mut rng, end) = (Attacked::default(), args.rng(), args.end());
    let other = args.secrets()?;
    let ports = rail_ports(args)?;
    // The victim's port, as its address contains it.
    let port = ports
        .into_iter()
        .find(|port| other.end.windows(4).any(|bytes| bytes == sockaddr_head(port.port())))
        .context("the victim's end of the link has none of its ports")?;
    let (mut poster, _) = Poster::open(open_rail(&args.rail)?)?;
    poster.patience = FLIPPED_LASTS;
    for number in 0..args.count {
        let listener = TcpListener::bind((port.ip(), 0))?;
        let proxy = listener.local_addr()?.port();
        // The opening of a connection has the first bytes, and is flipped most often.
        let at = rng.next_u64() % if number % 2 == 0 { 64 } else { 250 };
        let bit = 1 << (rng.next_u64() % 8);
        let forwarder = std::thread::spawn(move || forward(&listener, port, at, bit));
        poster.open_link()?;
        poster.connect(&replaced(&other.end, port.port(), proxy))?;
        for _ in 0..4 {
            let posted = poster.send(rng.next_u64(), number);
            attacked.count(if posted == Posted::Done { "completed" } else { "not completed" }, 1);
            if posted != Posted::Done {
                break;
            }
        }
        let has_flipped = forwarder.join().is_ok_and(|flipped| flipped);
        attacked.count("flipped", u64::from(has_flipped));
    }
    sleep_until(end);
    let flipped = attacked.counts.get("flipped").copied().unwrap_or_default();
    ensure!(flipped > 0, "no bit was flipped: libfabric has not connected to the proxy");
    attacked.did = format!("{flipped} of {} connections with a flipped bit", args.count);
    Ok(attacked)
}

/// Returns how a socket address of IPv4 with this port begins: family and port.
fn sockaddr_head(port: u16) -> [u8; 4] {
    let [low, high] = 2_u16.to_ne_bytes();
    let [first, second] = port.to_be_bytes();
    [low, high, first, second]
}

/// Replaces the port in the end of a link.
fn replaced(end: &[u8], from: u16, to: u16) -> Vec<u8> {
    let mut end = end.to_vec();
    if let Some(at) = end.windows(4).position(|bytes| bytes == sockaddr_head(from)) {
        end[at..at + 4].copy_from_slice(&sockaddr_head(to));
    }
    end
}

/// Forwards one connection for a while, with a bit flipped. Returns whether it was.
fn forward(listener: &TcpListener, to: SocketAddr, at: u64, bit: u8) -> bool {
    const GLANCE: Duration = Duration::from_millis(1);
    let deadline = Instant::now() + 2 * FLIPPED_LASTS;
    if listener.set_nonblocking(true).is_err() {
        return false;
    }
    let mut near = loop {
        match listener.accept() {
            Ok((stream, _)) => break stream,
            Err(_) if Instant::now() < deadline => std::thread::sleep(GLANCE),
            Err(_) => return false,
        }
    };
    let Ok(mut far) = connect(to) else { return false };
    let (mut passed, mut has_flipped, mut chunk) = (0, false, [0; 4096]);
    while Instant::now() < deadline {
        match read_some(&mut near, &mut chunk, GLANCE) {
            None => break,
            Some(len) => {
                if let Some(byte) = at.checked_sub(passed).and_then(|at| chunk[..len].get_mut(at as usize)) {
                    *byte ^= bit;
                    has_flipped = true;
                }
                passed += len as u64;
                if far.write_all(&chunk[..len]).is_err() {
                    break;
                }
            }
        }
        match read_some(&mut far, &mut chunk, GLANCE) {
            None => break,
            Some(len) => {
                if near.write_all(&chunk[..len]).is_err() {
                    break;
                }
            }
        }
    }
    has_flipped
}

/// Reads what arrives within `limit`; `None` if the other side has closed the connection.
fn read_some(stream: &mut TcpStream, into: &mut [u8], limit: Duration) -> Option<usize> {
    stream.set_nonblocking(false).ok()?;
    stream.set_read_timeout(Some(limit)).ok()?;
    match stream.read(into) {
        Ok(0) => None,
        Ok(len) => Some(len),
        Err(error) if is_timeout(&error) => Some(0),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_port_is_replaced() {
        let end = [&b"ipv4"[..], &sockaddr_head(4711), &[127, 0, 0, 1]].concat();
        let other = replaced(&end, 4711, 4712);
        assert_eq!(other, [&b"ipv4"[..], &sockaddr_head(4712), &[127, 0, 0, 1]].concat());
        assert_eq!(replaced(&end, 1, 4712), end);
    }
}
