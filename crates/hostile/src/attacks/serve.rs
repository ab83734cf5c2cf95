//! Attacks on `farreach serve`.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{AttackArgs, sleep_until};
use crate::protocol::{connect, is_closed};
use crate::roles::Attacked;

/// The length of the first bytes of both sides: a name and a version.
pub(crate) const HEAD_LEN: usize = 8;

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a client may take from its connection to its order.
const ORDER_MAX: Duration = Duration::from_secs(30);

/// Opens connections that send nothing.
pub(super) fn idle(args: &AttackArgs) -> Result<Attacked> {
    let (mut attacked, end) = (Attacked::default(), args.end());
    let mut kept: Vec<TcpStream> = Vec::new();
    for _ in 0..args.count {
        kept.extend(connect(args.address).ok());
    }
    let opened = kept.len();
    sleep_until(end);
    let open = kept.iter_mut().map(is_closed).filter(|is_closed| !is_closed).count();
    attacked.count("opened", opened as u64);
    attacked.count("open", open as u64);
    attacked.did = format!("{opened} idle connections, {open} are open");
    Ok(attacked)
}

/// Announces an order, and sends it a byte at a time.
pub(super) fn slow(args: &AttackArgs) -> Result<Attacked> {
    const PAUSE: Duration = Duration::from_secs(2);
    let (mut attacked, start, end) = (Attacked::default(), Instant::now(), args.end());
    // A server that is busy with others answers late: the head of one is that of all.
    let head = head_of(&mut connect(args.address)?)?;
    let mut kept: Vec<TcpStream> = Vec::new();
    for _ in 0..args.count {
        let Ok(mut stream) = connect(args.address) else { continue };
        let announced = [&head[..], &60_000_u32.to_be_bytes(), b"{"].concat();
        if stream.write_all(&announced).is_ok() {
            kept.push(stream);
        }
    }
    let (opened, all_open) = (kept.len(), start.elapsed());
    while Instant::now() < end {
        kept.retain_mut(|stream| stream.write_all(b" ").is_ok() && !is_closed(stream));
        std::thread::sleep(PAUSE.min(end.saturating_duration_since(Instant::now())));
    }
    attacked.count("opened", opened as u64);
    attacked.count("open", kept.len() as u64);
    if start.elapsed() > all_open + ORDER_MAX && !kept.is_empty() {
        let case = format!("{} after {ORDER_MAX:?}", kept.len());
        attacked.breach("connections that have sent no order are open", case);
    }
    attacked.did = format!("{opened} connections of a byte every {PAUSE:?}, {} are open", kept.len());
    Ok(attacked)
}

/// Sends orders with parameters that no client sends.
pub(super) fn orders(args: &AttackArgs) -> Result<Attacked> {
    let (mut attacked, end) = (Attacked::default(), args.end());
    let order: Value = serde_json::from_str(args.order.as_deref().context("no order was recorded")?)?;
    let engine = |field: &str, value: Value| -> Result<Vec<u8>> {
        let mut order = order.clone();
        let place = order.pointer_mut(&format!("/engine/{field}"));
        *place.with_context(|| format!("an order has no field engine.{field}"))? = value;
        Ok(serde_json::to_vec(&order)?)
    };
    let mut orders = vec![
        ("as recorded", serde_json::to_vec(&order)?),
        ("messages of 1 MiB", engine("message_bytes_max", json!(1 << 20))?),
        ("messages of 4 MiB", engine("message_bytes_max", json!(4 << 20))?),
        ("messages of 2^62 bytes", engine("message_bytes_max", json!(1_u64 << 62))?),
        ("messages of 2^64 - 1 bytes", engine("message_bytes_max", json!(u64::MAX))?),
        ("a million messages", engine("messages", json!(1_000_000))?),
        ("four billion messages", engine("messages", json!(u32::MAX))?),
        ("depth of a million", engine("depth", json!(1_000_000))?),
        ("depth of 10^12", engine("depth", json!(1_000_000_000_000_u64))?),
        ("deep JSON", vec![b'['; 60_000]),
        ("no JSON", vec![0; 60_000]),
        ("an empty order", Vec::new()),
    ];
    orders.truncate(args.count.try_into()?);
    let count = orders.len();
    let mut answered = 0;
    for (what, order) in orders {
        let holds = Duration::from_millis(args.lasts / args.count.max(1));
        let reply = reply_to(args.address, &order, holds, |_| false).unwrap_or_default();
        answered += usize::from(!reply.is_empty());
        attacked.count(&format!("bytes in answer to {what}"), reply.len() as u64);
    }
    sleep_until(end);
    attacked.did = format!("{count} hostile orders, {answered} answered");
    Ok(attacked)
}

/// Orders a diagnosis of the server's host, in clear text, from an address that is not loopback.
pub(super) fn doctor(args: &AttackArgs) -> Result<Attacked> {
    let (mut attacked, end) = (Attacked::default(), args.end());
    let order = args.order.as_deref().context("no order was recorded")?.as_bytes();
    let is_answer = |reply: &[u8]| says(reply, "Served") || says(reply, "Refused");
    // Over loopback the same order is accepted, so it is refused elsewhere for where it comes from.
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, args.address.port()));
    let accepted = reply_to(here, order, PATIENCE, is_answer)?;
    let text = String::from_utf8_lossy(&accepted);
    ensure!(says(&accepted, "Served"), "a diagnosis is refused over loopback, too: {text}");
    for _ in 0..args.count {
        let reply = reply_to(args.address, order, PATIENCE, is_answer)?;
        attacked.attempts += 1;
        let is_refused = says(&reply, "Refused") && !says(&reply, "Served");
        attacked.count(if is_refused { "refused" } else { "examined" }, 1);
        if !is_refused {
            let case = format!("{} bytes to {}", reply.len(), args.address.ip());
            attacked.breach("a diagnosis was given in clear text", case);
        }
    }
    sleep_until(end);
    attacked.did = format!("orders of a diagnosis from {}: {}", args.address.ip(), attacked.counted());
    Ok(attacked)
}

/// Returns whether a notice of this name is in a reply.
fn says(reply: &[u8], notice: &str) -> bool {
    String::from_utf8_lossy(reply).contains(&format!("\"{notice}\""))
}

fn head_of(stream: &mut TcpStream) -> Result<[u8; HEAD_LEN]> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut head = [0; HEAD_LEN];
    stream.read_exact(&mut head).context("the server sends no head")?;
    Ok(head)
}

/// Sends an order. Returns the reply, as soon as it is enough or the time is over.
fn reply_to(
    address: SocketAddr,
    order: &[u8],
    limit: Duration,
    is_enough: impl Fn(&[u8]) -> bool,
) -> Result<Vec<u8>> {
    let mut stream = connect(address)?;
    let head = head_of(&mut stream)?;
    stream.write_all(&head)?;
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    let len = u32::from_be_bytes(len) as usize;
    ensure!(len < 1 << 20, "the server's first message has {len} bytes");
    stream.read_exact(&mut vec![0; len])?;
    stream.write_all(&u32::try_from(order.len())?.to_be_bytes())?;
    stream.write_all(order)?;
    let (deadline, mut reply, mut chunk) = (Instant::now() + limit, Vec::new(), [0; 4096]);
    stream.set_read_timeout(Some(Duration::from_millis(50)))?;
    while Instant::now() < deadline && !is_enough(&reply) {
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(len) => reply.extend_from_slice(&chunk[..len]),
            Err(error) if crate::protocol::is_timeout(&error) => {}
            Err(_) => break,
        }
    }
    Ok(reply)
}
