//! Programs without unsafe code that once violated a guarantee, over the providers with which they
//! did.
#![forbid(unsafe_code)]

mod table;

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use farreach_fabric::{
    Address, Capabilities, CompletionQueue, EndpointBuilder, Error, Fabric, Hints, Info, OperationKind,
    ReceiveRequest, Refusal, RemoteAccess, RemoteRegion, TransmitRequest, leaked,
};
use farreach_memory::{Memory, leaked_bytes};
use farreach_testkit::wait_for;

use crate::over_providers::{SHM, SOCKETS, TCP, TCP_UNDER_RXM};
use crate::suite::pair::{A, B, Pair, Side, pattern};

/// The role of a process of this program.
const ROLE: &str = "FARREACH_ATTACK_ROLE";

/// Returns a command that runs the same test in a process of its own, without other endpoints.
fn again(test: &str, role: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", &format!("attacks::{test}"), "--ignored", "--nocapture"]).env(ROLE, role);
    command
}

/// Runs `body` in a process that runs no other test.
fn alone(test: &str, body: impl FnOnce()) {
    if env::var(ROLE).is_ok() {
        return body();
    }
    let status = again(test, "alone").status().unwrap();
    assert!(status.success(), "{status}");
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn an_address_that_wraps_is_not_posted() {
    for provider in [TCP_UNDER_RXM, TCP, SOCKETS] {
        let mut pair = Pair::open(&provider);
        let region = pair[B].expose(65_536);
        let (told, peer) = (region.remote(), pair[A].peer());
        let base = region.bytes().address().as_ptr().addr() as u64;
        // The target adds the address of its memory, unless it got one, and then the length.
        let end = if told.address() == 0 { 0_u64.wrapping_sub(base) } else { 0 };
        for below in [64, 4096, 1 << 20] {
            let wild = RemoteRegion::new(end.wrapping_sub(below), 4096, told.key());
            for is_write in [true, false] {
                let slice = pair[A].slice(&[0x41; 4096]);
                let request = match is_write {
                    true => TransmitRequest::write(slice, &peer, wild),
                    false => TransmitRequest::read(slice, &peer, wild),
                };
                let refused = pair[A].endpoint.post(request).unwrap_err();
                assert!(matches!(refused.reason, Refusal::OutOfBounds { .. }), "{refused}");
            }
            let refused = pair[A].endpoint.inject_write(&[0x41; 8], &peer, wild, None).unwrap_err();
            assert!(matches!(refused, Refusal::OutOfBounds { .. }), "{refused}");
        }
        let request = TransmitRequest::write(pair[A].slice(&pattern(1, 64)), &peer, told);
        pair.post(A, request);
        pair.success(A);
    }
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn an_offer_of_another_fabric_opens_no_domain() {
    let offers = Info::query(&Hints::rdm()).unwrap();
    let mut refused = 0;
    for of in &offers {
        let fabric = Fabric::open(of).unwrap();
        for offer in &offers {
            if (offer.provider(), offer.fabric()) == (of.provider(), of.fabric()) {
                continue;
            }
            let error = fabric.open_domain(offer).unwrap_err();
            assert_eq!(error, Error::NotOfThis { object: "offer", of: "fabric" });
            refused += 1;
        }
    }
    assert!(refused >= 2, "{offers:#?}");
}

/// Providers may lack all functions for capabilities that were not asked for.
#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn an_endpoint_for_messages_alone_writes_and_reads_nothing() {
    let hints = Hints::rdm().capabilities(Capabilities::MSG);
    let offers = Info::query(&hints).unwrap();
    let is_without = |offer: &&Info| !offer.capabilities().contains(Capabilities::RMA);
    let mut refused = 0;
    for offer in offers.iter().filter(is_without) {
        let domain = Fabric::open(offer).unwrap().open_domain(offer).unwrap();
        let (cq, av) = (domain.open_cq().unwrap(), domain.open_av().unwrap());
        // Some are offered for addresses that do not exist, and some do not accept their own.
        let Ok(endpoint) = EndpointBuilder::new(&cq, &av).build(&domain) else { continue };
        let Ok(peer) = av.insert(endpoint.address()) else { continue };
        let region = RemoteRegion::new(0, 4096, 1);
        for is_write in [true, false] {
            let slice = domain.allocate(64).unwrap();
            let request = match is_write {
                true => TransmitRequest::write(slice, &peer, region),
                false => TransmitRequest::read(slice, &peer, region),
            };
            let error = endpoint.post(request).unwrap_err();
            assert!(
                matches!(error.reason, Refusal::Unsupported("one-sided operations")),
                "{}: {error}",
                offer.provider()
            );
        }
        let error = endpoint.inject_write(&[], &peer, region, None).unwrap_err();
        assert!(
            matches!(error, Refusal::Unsupported("one-sided operations")),
            "{}: {error}",
            offer.provider()
        );
        refused += 1;
    }
    assert!(refused > 0, "{offers:#?}");
}

/// Closing unmaps the memory through which the other one reads sent data.
#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn an_endpoint_that_others_look_into_is_not_closed_under_them() {
    alone("an_endpoint_that_others_look_into_is_not_closed_under_them", || {
        for len in [64, 65_536] {
            let mut pair = Pair::open(&SHM);
            let room = pair[B].domain.allocate(len).unwrap();
            pair.post_receive(B, room);
            let request = TransmitRequest::send(pair[A].slice(&pattern(3, len)), &pair[A].peer());
            pair.post(A, request);
            let [Side { endpoint, cq, .. }, mut other] = pair.into_sides();
            let error = endpoint.close().unwrap_err();
            assert!(matches!(error, Error::InUse { object: "endpoint", .. }), "{error}");
            let end = Instant::now() + Duration::from_millis(300);
            while Instant::now() < end {
                other.poll();
                cq.poller().poll().unwrap().for_each(drop);
            }
            // The last one closes both.
            other.endpoint.close().unwrap();
        }
    });
}

/// Reading a completion queue makes progress on its endpoints, also while another thread closes the
/// last of them.
#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn endpoints_are_closed_beside_threads_that_poll() {
    alone("endpoints_are_closed_beside_threads_that_poll", || {
        for round in 0..100 {
            let mut pair = Pair::open(&SHM);
            let room = pair[B].domain.allocate(4096).unwrap();
            pair.post_receive(B, room);
            let request = TransmitRequest::send(pair[A].slice(&pattern(round, 4096)), &pair[A].peer());
            pair.post(A, request);
            let [a, b] = pair.into_sides();
            let is_over = AtomicBool::new(false);
            thread::scope(|scope| {
                for cq in [&a.cq, &b.cq] {
                    scope.spawn(|| {
                        while !is_over.load(Ordering::SeqCst) {
                            let _ = cq.may_sleep();
                            cq.poller().poll().unwrap().for_each(drop);
                        }
                    });
                }
                thread::sleep(Duration::from_micros(round * 20));
                drop(a.endpoint);
                b.endpoint.close().unwrap();
                is_over.store(true, Ordering::SeqCst);
            });
        }
    });
}

/// libfabric keeps the name of a closed endpoint, and the address of its memory, which it accesses
/// again by the name.
#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn the_address_of_a_closed_endpoint_leads_nowhere() {
    alone("the_address_of_a_closed_endpoint_leads_nowhere", || {
        let Side { endpoint, cq, av, domain, .. } = Side::open(&SHM);
        let address = endpoint.address().clone();
        // A vector that learns of it while it is open, and one that does not.
        let knowing = domain.open_av().unwrap();
        let known = knowing.insert(&address).unwrap();
        endpoint.close().unwrap();
        // Memory that may be mapped at the address of the closed one.
        let mapped: Vec<_> = (0..64).map(|_| Memory::allocate(1 << 20).unwrap()).collect();

        let refused = |error: Error| assert!(matches!(error, Error::AddressRefused { .. }), "{error}");
        refused(EndpointBuilder::new(&cq, &knowing).build(&domain).unwrap_err());
        let other = EndpointBuilder::new(&cq, &av).build(&domain).unwrap();
        refused(av.insert(&address).unwrap_err());
        // The same with another notation.
        let text = String::from_utf8(address.bytes().to_vec()).unwrap();
        let bare = text.split_once("://").map_or(&*text, |(_, name)| name);
        for text in [bare.to_owned(), format!("fi_ns://{bare}"), format!("a://b://{bare}")] {
            refused(av.insert(&Address::new(address.format(), text)).unwrap_err());
        }
        let own = av.insert(other.address()).unwrap();
        own.look_up().unwrap();
        assert!(mapped.iter().all(|slice| slice.iter().all(|byte| *byte == 0)));
        drop(known);
    });
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn the_last_endpoint_of_a_process_gives_its_receives_back() {
    alone("the_last_endpoint_of_a_process_gives_its_receives_back", || {
        let side = Side::open(&SHM);
        side.endpoint.post_receive(ReceiveRequest::new(side.slice(&pattern(5, 64))).tag(7)).unwrap();
        let returned = side.endpoint.close().unwrap();
        let [operation] = returned.try_into().unwrap();
        assert_eq!((operation.tag, operation.kind), (7, OperationKind::Receive));
        assert_eq!(operation.buffers.into_slice().unwrap()[..], pattern(5, 64));
    });
}

/// The content of the sender's memory when it sends, and afterwards.
const SENT: u8 = 0xaa;
const LATER: u8 = 0x55;
/// More than is sent eagerly: the receiver fetches it from the sender's memory.
const LEN: usize = 65_536;

/// Another process of this program. The two exchange addresses by lines of text.
struct Other {
    child: Child,
    told: BufReader<ChildStdout>,
    tell: ChildStdin,
}

impl Other {
    fn start(test: &str, role: &str) -> Self {
        let mut command = again(test, role);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (told, tell) = (BufReader::new(child.stdout.take().unwrap()), child.stdin.take().unwrap());
        Self { child, told, tell }
    }

    /// Returns its line about `of`, among the lines of the test harness.
    fn line(&mut self, of: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.told.read_line(&mut line).unwrap(), 0, "it has ended without {of}");
            if let Some((_, said)) = line.split_once(&format!("{of}: ")) {
                return said.trim().to_owned();
            }
        }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.tell, "{line}").unwrap();
    }
}

#[expect(clippy::print_stdout, reason = "the other process reads it")]
fn tell(line: &str) {
    println!("{line}");
}

fn read_line() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// Sends, ends the endpoint according to its role, and overwrites all memory that it has then.
fn sender(role: &str) {
    let side = Side::open(&SHM);
    tell(&format!("address: {}", side.endpoint.address().to_hex()));
    let format = side.domain.info().address_format();
    let peer = side.av.insert(&Address::parse_hex(format, &read_line()).unwrap()).unwrap();
    // The peers connect by a small message first.
    post(&side, TransmitRequest::send(side.slice(b"hello"), &peer));
    wait_for("the first message", || {
        side.cq.poller().poll().unwrap().for_each(drop);
        (side.endpoint.transmits_in_flight() == 0).then_some(())
    });
    tell("met: yes");
    read_line();
    post(&side, TransmitRequest::send(side.slice(&[SENT; LEN]), &peer));
    let before = (leaked().operations, leaked_bytes());
    let Side { endpoint, .. } = side;
    let is_unfinished = endpoint.transmits_in_flight() == 1;
    let mut ours: Vec<_> = match role {
        "closes" => {
            endpoint.close().unwrap().into_iter().map(|it| it.buffers.into_slice().unwrap()).collect()
        }
        _ => {
            drop(endpoint);
            Vec::new()
        }
    };
    // Freed memory is likely to be allocated again.
    ours.extend((0..64).map(|_| Memory::allocate(LEN).unwrap()));
    for slice in &mut ours {
        slice.fill(LATER);
    }
    assert!(is_unfinished, "it was to be in flight");
    assert_eq!(
        (leaked().operations, leaked_bytes()),
        (before.0 + 1, before.1),
        "the buffer is kept, and counted"
    );
    tell("ended: yes");
    read_line();
}

fn post(side: &Side, request: TransmitRequest) {
    let mut waiting = Some(request);
    wait_for("room", || match side.endpoint.post(waiting.take().expect("a refused request is returned")) {
        Ok(()) => Some(()),
        Err(refused) => {
            assert!(matches!(refused.reason, Refusal::QueueFull { .. }), "{refused}");
            waiting = Some(refused.request);
            side.cq.poller().poll().unwrap().for_each(drop);
            None
        }
    });
}

fn what_was_sent_is_what_arrives(test: &str, role: &str) {
    if let Ok(role) = env::var(ROLE) {
        return sender(&role);
    }
    let mut side = Side::open(&SHM);
    let mut other = Other::start(test, role);
    let format = side.domain.info().address_format();
    side.av.insert(&Address::parse_hex(format, &other.line("address")).unwrap()).unwrap();
    side.endpoint.post_receive(ReceiveRequest::new(side.domain.allocate(64).unwrap())).unwrap();
    other.say(&side.endpoint.address().to_hex());
    // Nothing polls here before the large message is sent: it is fetched when the sender's endpoint
    // is gone.
    wait_for("the first message", || {
        side.poll();
        (side.endpoint.receives_in_flight() == 0).then_some(())
    });
    other.line("met");
    side.endpoint.post_receive(ReceiveRequest::new(side.domain.allocate(LEN).unwrap())).unwrap();
    other.say("send");
    other.line("ended");
    let end = Instant::now() + Duration::from_secs(2);
    let mut received = None;
    while received.is_none() && Instant::now() < end {
        let mut poller = side.cq.poller();
        for event in poller.poll().unwrap() {
            if let farreach_fabric::Event::Completed(completion) = event {
                let (outcome, buffers) = completion.into_parts();
                received = outcome.is_ok().then(|| buffers.into_slice().unwrap());
            }
        }
    }
    if let Some(slice) = received {
        assert!(slice.iter().all(|byte| *byte == SENT), "{:x?}: memory that was not sent", &slice[..8]);
    }
    other.say("end");
    let status = other.child.wait().unwrap();
    assert!(status.success(), "{status}");
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn a_peer_reads_nothing_that_came_back_at_close() {
    what_was_sent_is_what_arrives("a_peer_reads_nothing_that_came_back_at_close", "closes");
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn a_peer_reads_nothing_that_was_freed_by_a_drop() {
    what_was_sent_is_what_arrives("a_peer_reads_nothing_that_was_freed_by_a_drop", "drops");
}

/// The library remembers a peer that connects to an endpoint and sends nothing until it is closed,
/// together with freed memory. Queues of that domain are therefore not read any more, and a new
/// domain replaces it.
#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn a_connection_that_was_not_finished_does_no_harm_after_a_close() {
    alone("a_connection_that_was_not_finished_does_no_harm_after_a_close", || {
        for provider in [TCP, TCP_UNDER_RXM, SOCKETS] {
            let Side { endpoint, cq, av, domain, .. } = Side::open(&provider);
            let to = endpoint.address().socket_addr().unwrap();
            let mut strangers: Vec<_> = (0..8).map(|_| TcpStream::connect(to).unwrap()).collect();
            poll_for(&cq, Duration::from_millis(100));
            endpoint.close().unwrap();
            // Other data is allocated where the library had its own.
            let _others: Vec<Vec<u8>> = (0..4000).map(|len| vec![0x41; 64 + len]).collect();
            let next = if domain.is_spent() { domain.renew().unwrap() } else { domain.clone() };
            let next_cq = next.open_cq().unwrap();
            let next_av = next.open_av().unwrap();
            let _endpoint = EndpointBuilder::new(&next_cq, &next_av).build(&next).unwrap();
            for stranger in &mut strangers {
                // The other end may be closed by now.
                let _ = stranger.write_all(&[0; 64]);
            }
            for cq in [&cq, &next_cq] {
                poll_for(cq, Duration::from_millis(100));
            }
            if domain.is_spent() {
                let spent = Error::DomainSpent { provider: domain.info().provider().to_owned() };
                assert_eq!(cq.poller().poll().err(), Some(spent.clone()));
                assert_eq!(EndpointBuilder::new(&cq, &av).build(&domain).err(), Some(spent));
            }
            drop((cq, av, domain));
            poll_for(&next_cq, Duration::from_millis(50));
        }
    });
}

/// Reads a queue for a while, whatever the result.
fn poll_for(cq: &CompletionQueue, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        let _ = cq.poller().poll().map(Iterator::count);
        thread::sleep(Duration::from_millis(1));
    }
}

/// The same while another thread reads the queue continuously.
#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn a_queue_is_read_beside_a_close_that_leaves_connections() {
    alone("a_queue_is_read_beside_a_close_that_leaves_connections", || {
        for _ in 0..20 {
            let Side { endpoint, cq, domain, .. } = Side::open(&TCP);
            let to = endpoint.address().socket_addr().unwrap();
            thread::scope(|scope| {
                let reading = scope.spawn(|| {
                    wait_for("an end of reading", || cq.poller().poll().map(Iterator::count).err())
                });
                let mut strangers = [(); 4].map(|()| TcpStream::connect(to).unwrap());
                thread::sleep(Duration::from_millis(5));
                endpoint.close().unwrap();
                let _others: Vec<Vec<u8>> = (0..1000).map(|len| vec![0x41; 64 + len]).collect();
                // The other end may be closed by now.
                strangers.iter_mut().for_each(|stranger| drop(stranger.write_all(&[0; 64])));
                assert!(matches!(reading.join().unwrap(), Error::DomainSpent { .. }));
            });
            assert!(domain.is_spent());
        }
    });
}

/// A domain is spent when its last endpoint is closed, and not before.
#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn an_endpoint_is_not_closed_under_another_of_its_domain() {
    let domain = TCP.domain();
    let (cq, av) = (domain.open_polled_cq_of(1024).unwrap(), domain.open_av().unwrap());
    let [first, second] = [(); 2].map(|()| EndpointBuilder::new(&cq, &av).build(&domain).unwrap());
    let error = first.close().unwrap_err();
    assert_eq!(error, Error::InUse { object: "endpoint", by: "other endpoints of its domain" });
    cq.poller().poll().unwrap();
    let third = EndpointBuilder::new(&cq, &av).build(&domain).unwrap();
    drop(second);
    assert!(!domain.is_spent() && cq.poller().poll().is_ok());
    third.close().unwrap();
    assert!(domain.is_spent() && cq.poller().poll().is_err());
}

/// Peers that know a key continue to use it in the domain that it was moved to.
#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn a_key_is_the_same_in_the_domain_that_it_was_moved_to() {
    let old = TCP.domain();
    let exposed = old.allocate(4096).unwrap().expose();
    let mut key = old.expose_also(&exposed, RemoteAccess::WRITE).unwrap();
    let (told, domain) = (key.remote(), old.renew().unwrap());
    let mut other = domain.expose_also(&exposed, RemoteAccess::WRITE).unwrap();
    assert_ne!(other.remote().key(), told.key(), "no key is given twice");
    key.move_to(&domain).unwrap();
    assert_eq!((key.remote(), exposed.keys()), (told, 2));
    let error = other.move_to(&domain).expect_err("it is there already");
    assert!(matches!(error, Error::Failed { .. }), "{error}");
    assert_eq!(exposed.keys(), 2);
    // An unrelated domain may use that number for other memory, after this one was closed.
    let error = key.move_to(&TCP.domain()).unwrap_err();
    assert!(matches!(error, Error::NotOfThis { object: "key", .. }), "{error}");
    drop((key, other));
    assert_eq!(exposed.keys(), 0);
}
