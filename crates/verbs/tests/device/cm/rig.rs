//! Shared by the tests: a listener, two connected sides, a watchdog.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use farreach_testkit::{Device, WAIT_MAX};
use farreach_verbs::cm::{
    CmEvent, CmParameters, Connection, Connector, Error, EventChannel, EventKind, Listener,
};
use farreach_verbs::context::Context;
use farreach_verbs::qp::{QueuePair, QueuePairBuilder, QueuePairType};

/// A test that takes longer hangs.
const TEST_MAX: Duration = Duration::from_secs(90);

/// Ends the program when a test hangs: a deadlock in C cannot be ended otherwise.
pub(crate) struct Watchdog {
    _alive: Sender<()>,
}

impl Watchdog {
    pub(crate) fn new() -> Self {
        let (alive, ended) = mpsc::channel::<()>();
        let name = thread::current().name().unwrap_or("a test").to_owned();
        thread::spawn(move || {
            if ended.recv_timeout(TEST_MAX) == Err(RecvTimeoutError::Timeout) {
                let _ = writeln!(std::io::stderr(), "{name} hangs: no end within {TEST_MAX:?}");
                std::process::abort();
            }
        });
        Self { _alive: alive }
    }
}

pub(crate) fn deadline() -> Instant {
    Instant::now() + WAIT_MAX
}

/// Returns an address of the device, with a port for the kernel to choose.
pub(crate) fn any_port() -> SocketAddr {
    SocketAddr::from((Device::find().address, 0))
}

/// Returns an address of the device's network that no host has.
pub(crate) fn absent_host() -> SocketAddr {
    let [a, b, c, _] = Device::find().address.octets();
    SocketAddr::from((Ipv4Addr::new(a, b, c, 77), 18520))
}

pub(crate) fn listener() -> (Listener, SocketAddr) {
    let listener = Listener::bind(any_port()).unwrap();
    let address = listener.local_address().expect("a bound listener has an address");
    assert_ne!(address.port(), 0, "the kernel chose a port");
    (listener, address)
}

/// Returns a port that was free a moment ago.
pub(crate) fn unused_port() -> SocketAddr {
    listener().1
}

pub(crate) fn rc_queue_pair(context: &Context) -> QueuePair {
    queue_pair(context, QueuePairType::Rc)
}

pub(crate) fn ud_queue_pair(context: &Context) -> QueuePair {
    queue_pair(context, QueuePairType::Ud)
}

fn queue_pair(context: &Context, kind: QueuePairType) -> QueuePair {
    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(16).unwrap());
    QueuePairBuilder::new(kind, &cq, &cq).max_send_wr(4).max_recv_wr(4).build(&pd).unwrap()
}

/// One side. Its queue pair is the first field, so that it is dropped first; the tests of drops
/// take it apart.
pub(crate) struct End {
    pub(crate) qp: QueuePair,
    pub(crate) connection: Connection,
}

pub(crate) fn connect(address: SocketAddr, private_data: &[u8]) -> Result<End, Error> {
    let connector = Connector::resolve(address, deadline())?;
    let qp = rc_queue_pair(&connector.context()?);
    connector.prepare(&qp)?;
    let parameters = CmParameters::new().with_private_data(private_data);
    Ok(End { connection: connector.connect(&qp, &parameters, deadline())?, qp })
}

pub(crate) fn accept(listener: &Listener, private_data: &[u8]) -> Result<End, Error> {
    let request = listener.wait_request(deadline())?;
    let qp = rc_queue_pair(&request.context()?);
    request.prepare(&qp)?;
    let parameters = CmParameters::new().with_private_data(private_data);
    Ok(End { connection: request.accept(&qp, &parameters, deadline())?, qp })
}

/// Returns both sides of one connection: active and passive.
pub(crate) fn pair() -> (End, End) {
    let (listener, address) = listener();
    let passive = thread::spawn(move || accept(&listener, b"welcome"));
    let active = connect(address, b"hello").unwrap();
    (active, passive.join().unwrap().unwrap())
}

#[track_caller]
pub(crate) fn expect(channel: &EventChannel, kind: EventKind) -> CmEvent {
    let event = channel.wait_event(deadline()).unwrap();
    assert_eq!((event.kind(), event.status()), (kind, 0), "{event:?}");
    event
}

/// Runs a shell command, which must succeed.
#[track_caller]
pub(crate) fn run(command: &str) {
    let status = Command::new("sh").args(["-c", command]).status().expect("sh, which every guest has");
    assert!(status.success(), "{command}: {status}");
}
