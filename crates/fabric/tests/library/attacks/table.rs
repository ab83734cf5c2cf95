//! Every operation × every way to end it × a peer that runs, is stopped or is killed. There are two
//! processes: one begins the operation and ends its endpoint, the other owns the target memory. The
//! first one then overwrites all memory that it has, and both look for bytes that should not be
//! there.

use std::env;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use farreach_fabric::{
    Address, ReceiveRequest, Refusal, RemoteAccess, RemoteParts, RemoteRegion, TransmitRequest,
};
use farreach_memory::{Memory, Slice};
use farreach_testkit::{try_combinations, wait_for};
use rustix::process::{Pid, Signal, kill_process};

use super::{LATER, LEN, Other, ROLE, SENT, read_line, tell};
use crate::over_providers::{SHM, SOCKETS, TCP, TCP_UNDER_RXM};
use crate::suite::pair::{Provider, Side};

const TEST: &str = "table::every_operation_ends_in_every_way";

const PROVIDERS: [(&str, Provider); 4] =
    [("tcp", TCP), ("shm", SHM), ("sockets", SOCKETS), ("tcp;ofi_rxm", TCP_UNDER_RXM)];
const OPERATIONS: [&str; 8] =
    ["send", "write", "delivered write", "scattered write", "read", "fetch-add", "compare-swap", "receive"];
const WAYS: [&str; 4] = ["close", "drop", "drop all", "wait and close"];
const STATES: [&str; 3] = ["well", "stopped", "killed"];
const COMBINATIONS: usize = PROVIDERS.len() * OPERATIONS.len() * WAYS.len() * STATES.len();
/// A step that visits each combination once.
const STEP: usize = 151;

/// The number of operations that are begun at once.
const AT_ONCE: usize = 4;
/// How long memory is watched.
const WATCHED: Duration = Duration::from_millis(150);

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn every_operation_ends_in_every_way() {
    match env::var(ROLE).as_deref().map(|role| role.split('/').collect::<Vec<_>>()).as_deref() {
        Ok(["holder", provider]) => return hold(provider_of(provider)),
        Ok(["ender", provider, operation, way]) => return end(provider_of(provider), operation, way),
        _ => {}
    }
    let of = |index: usize| {
        let (rest, (provider, _)) = (index / PROVIDERS.len(), PROVIDERS[index % PROVIDERS.len()]);
        let operation = OPERATIONS[rest % OPERATIONS.len()];
        let way = WAYS[rest / OPERATIONS.len() % WAYS.len()];
        (provider, operation, way, STATES[rest / OPERATIONS.len() / WAYS.len()])
    };
    let run = |index| {
        let (provider, operation, way, state) = of(index);
        combine(provider, operation, way, state);
    };
    try_combinations(COMBINATIONS, STEP, |index| format!("{:?}", of(index)), run);
}

fn provider_of(name: &str) -> &'static Provider {
    PROVIDERS
        .iter()
        .find(|(of, _)| *of == name)
        .map(|(_, provider)| provider)
        .expect("the provider is in the table")
}

/// Connects two processes, and ends one of them.
fn combine(provider: &str, operation: &str, way: &str, state: &str) {
    let mut holder = Other::start(TEST, &format!("holder/{provider}"));
    let mut ender = Other::start(TEST, &format!("ender/{provider}/{operation}/{way}"));
    let (holds, ends) = (holder.line("address"), ender.line("address"));
    holder.say(&ends);
    ender.say(&holds);
    ender.say(&holder.line("region"));
    ender.line("met");
    let signal = |other: &Other, signal| kill_process(Pid::from_child(&other.child), signal).unwrap();
    match state {
        "stopped" => signal(&holder, Signal::STOP),
        "killed" => signal(&holder, Signal::KILL),
        _ => {}
    }
    ender.say("go");
    ender.line("ended");
    if state == "stopped" {
        signal(&holder, Signal::CONT);
    }
    thread::sleep(WATCHED);
    ender.say("look");
    let status = ender.child.wait().unwrap();
    assert!(status.success(), "the one that ended: {status}");
    if state == "killed" {
        holder.child.wait().unwrap();
        return;
    }
    holder.say("end");
    let status = holder.child.wait().unwrap();
    assert!(status.success(), "the one that held memory: {status}");
}

/// Grants memory, receives messages, and looks for unexpected bytes until it is told to end.
fn hold(provider: &Provider) {
    let side = Side::open(provider);
    tell(&format!("address: {}", side.endpoint.address().to_hex()));
    let format = side.domain.info().address_format();
    let _peer = side.av.insert(&Address::parse_hex(format, &read_line()).unwrap()).unwrap();
    let mut memory = side.domain.allocate(AT_ONCE * LEN).unwrap();
    memory.fill(0x33);
    let exposed = memory.expose();
    let key = side.domain.expose_also(&exposed, RemoteAccess::all()).unwrap();
    for _ in 0..2 * AT_ONCE {
        side.endpoint.post_receive(ReceiveRequest::new(side.domain.allocate(LEN).unwrap())).unwrap();
    }
    tell(&format!("region: {} {}", key.remote().address(), key.remote().key()));
    let orders = lines();
    loop {
        let mut came = Vec::new();
        for event in side.cq.poller().poll().unwrap() {
            if let farreach_fabric::Event::Completed(completion) = event {
                let (outcome, buffers) = completion.into_parts();
                came.extend(buffers.into_slice().ok().filter(|_| outcome.is_ok()));
            }
        }
        let is_poisoned = |bytes: &[u8]| bytes.contains(&LATER);
        assert!(!came.iter().any(|slice| is_poisoned(slice)), "a message came that nobody has sent");
        assert!(!is_poisoned(&exposed.to_vec()), "bytes were written that nobody has sent");
        match orders.try_recv() {
            Err(TryRecvError::Empty) => {}
            _ => return,
        }
    }
}

fn lines() -> Receiver<String> {
    let (tell, told) = channel();
    thread::spawn(move || drop(tell.send(read_line())));
    told
}

/// Begins the operation, ends it, and overwrites all memory that it has then.
fn end(provider: &Provider, operation: &str, way: &str) {
    let side = Side::open(provider);
    tell(&format!("address: {}", side.endpoint.address().to_hex()));
    let format = side.domain.info().address_format();
    let peer = side.av.insert(&Address::parse_hex(format, &read_line()).unwrap()).unwrap();
    let region: Vec<u64> = read_line().split(' ').map(|word| word.parse().unwrap()).collect();
    super::post(&side, TransmitRequest::send(side.slice(b"hello"), &peer));
    wait_for("the first message", || {
        side.cq.poller().poll().unwrap().for_each(drop);
        (side.endpoint.transmits_in_flight() == 0).then_some(())
    });
    tell("met: yes");
    read_line();

    let mut ours: Vec<Slice> = Vec::new();
    for number in 0..AT_ONCE as u64 {
        let place = RemoteRegion::new(region[0], (AT_ONCE * LEN) as u64, region[1]);
        let place = place.get(number * LEN as u64, LEN as u64).unwrap();
        let word = place.get(0, 8).unwrap();
        let source = || side.slice(&[SENT; LEN]);
        let request = match operation {
            "send" => TransmitRequest::send(source(), &peer),
            "write" => TransmitRequest::write(source(), &peer, place),
            "delivered write" => TransmitRequest::write(source(), &peer, place).delivered(),
            "scattered write" => {
                let mut parts = RemoteParts::new(place);
                let half = LEN as u64 / 2;
                assert!(parts.push(0, half) && parts.push(half, half));
                TransmitRequest::write_scattered(source(), &peer, parts)
            }
            "read" => TransmitRequest::read(source(), &peer, place),
            "fetch-add" => TransmitRequest::fetch_add(side.slice(&[SENT; 8]), &peer, word, 1),
            "compare-swap" => TransmitRequest::compare_swap(side.slice(&[SENT; 8]), &peer, word, 1, 2),
            _ => {
                side.endpoint.post_receive(ReceiveRequest::new(source())).unwrap();
                continue;
            }
        };
        // A request that is refused, because the provider lacks it or the region is not vouched
        // for, is returned.
        if let Err(refused) = side.endpoint.post(request) {
            assert!(!matches!(refused.reason, Refusal::OutOfBounds { .. }), "{refused}");
            ours.extend(refused.request.into_buffers().into_slice());
        }
    }
    let Side { endpoint, cq, av, domain, .. } = side;
    if way == "wait and close" {
        let until = Instant::now() + WATCHED;
        while Instant::now() < until && endpoint.transmits_in_flight() > 0 {
            for event in cq.poller().poll().unwrap() {
                if let farreach_fabric::Event::Completed(completion) = event {
                    ours.extend(completion.into_parts().1.into_slice());
                }
            }
        }
    }
    match way {
        "drop" => drop(endpoint),
        "drop all" => drop((endpoint, cq, av, peer, domain)),
        _ => ours.extend(endpoint.close().unwrap().into_iter().flat_map(|it| it.buffers.into_slice())),
    }
    // Freed memory is likely to be allocated again.
    ours.extend((0..32).map(|_| Memory::allocate(LEN).unwrap()));
    ours.iter_mut().for_each(|slice| slice.fill(LATER));
    tell("ended: yes");
    read_line();
    let changed = ours.iter().flat_map(|slice| slice.iter()).filter(|byte| **byte != LATER).count();
    assert_eq!(changed, 0, "bytes of ours were changed after they had come back");
}
