//! Tests that the traffic class that a program has chosen is in the packets that leave the host.
//!
//! The packets go to an address without a host. So no peer is needed; packets from a device to
//! itself would cross no wire.

use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use farreach_testkit::{Device, WAIT_MAX, on_host_a, wait_for};
use farreach_verbs::cm::{CmId, CmParameters, Connector, Listener, PortSpace};
use farreach_verbs::context::Context;
use farreach_verbs::cq::WorkStatus;
use farreach_verbs::device::DeviceList;
use farreach_verbs::qp::state::{ConnectionParameters, PeerAddress};
use farreach_verbs::qp::{QueuePair, QueuePairBuilder, QueuePairType};
use farreach_verbs::wr::SendRequest;

/// DSCP 26, without congestion notification.
const CHOSEN: u8 = 26 << 2;

/// An address of the device's network without a host, with a made-up hardware address.
struct NobodyThere {
    device: Device,
    address: Ipv4Addr,
}

impl NobodyThere {
    fn add() -> Self {
        let device = Device::find();
        let [a, b, c, _] = device.address.octets();
        let address = Ipv4Addr::new(a, b, c, 99);
        let neighbour = [&address.to_string(), "lladdr", "02:00:00:00:00:99", "dev", &device.net_device];
        let status = Command::new("ip").args(["neighbour", "replace"]).args(neighbour).status();
        assert!(status.expect("ip, which every guest has").success());
        Self { device, address }
    }

    fn open(&self) -> Context {
        DeviceList::get().unwrap().find(&self.device.name).expect("it is listed").open().unwrap()
    }
}

impl Drop for NobodyThere {
    fn drop(&mut self) {
        let neighbour = [&self.address.to_string(), "dev", &self.device.net_device];
        let _ = Command::new("ip").args(["neighbour", "delete"]).args(neighbour).status();
    }
}

/// tcpdump, which prints each RoCE packet to an address.
struct Tcpdump {
    child: Child,
    lines: Receiver<String>,
}

impl Tcpdump {
    fn start(to: &NobodyThere) -> Self {
        let filter = format!("udp dst port 4791 and dst host {}", to.address);
        let mut command = Command::new("tcpdump");
        // One line has a packet's header with the type of service, and one the rest. A guest lacks
        // the user that tcpdump would switch to.
        command
            .args(["-i", &to.device.net_device, "-n", "-v", "-l", "-Z", "root", &filter])
            .stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("tcpdump");
        // It captures packets from this message on.
        let mut said = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut all = String::new();
        while !all.contains("listening on") {
            assert_ne!(said.read_line(&mut all).unwrap(), 0, "tcpdump does not listen: {all}");
        }
        let (sender, lines) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        // Ends with the program.
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, lines }
    }

    /// Returns the type of service of the next packet.
    fn next_type_of_service(&self) -> u8 {
        loop {
            let line = self.lines.recv_timeout(WAIT_MAX).expect("a packet on the wire");
            if let Some((_, rest)) = line.split_once("(tos 0x") {
                let digits = rest.split(',').next().expect("a number before the comma");
                return u8::from_str_radix(digits, 16).unwrap();
            }
        }
    }
}

impl Drop for Tcpdump {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn queue_pair(context: &Context, cq_depth: u32) -> QueuePair {
    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(cq_depth).unwrap());
    QueuePairBuilder::new(QueuePairType::Rc, &cq, &cq).max_send_wr(4).max_recv_wr(4).build(&pd).unwrap()
}

/// Sends a message over a connection without a connection manager and without a peer, and returns
/// the type of service of its packet.
fn sent_by_hand(traffic_class: Option<u8>) -> u8 {
    let nobody = NobodyThere::add();
    let context = nobody.open();
    let qp = queue_pair(&context, 8);
    let peer_gid = nobody.address.into();
    let mut parameters = ConnectionParameters::choose(&context, nobody.device.port, Some(peer_gid)).unwrap();
    parameters.traffic_class = traffic_class.unwrap_or(parameters.traffic_class);
    parameters.retry_count = 1;
    let own = qp.to_init(&parameters).unwrap();
    qp.connect(&parameters, &own, &PeerAddress { gid: peer_gid, qp_num: 17, ..own }).unwrap();
    let tcpdump = Tcpdump::start(&nobody);
    qp.post_send(SendRequest::send(Vec::new())).unwrap();
    let seen = tcpdump.next_type_of_service();
    // There is no peer, so the message fails.
    let cq = qp.send_cq().expect("RC has queues");
    let failure = wait_for("completion", || {
        let mut poller = cq.poller();
        let completion = poller.poll().unwrap().next()?;
        completion.outcome().err()
    });
    assert_eq!(failure.status, WorkStatus::RetryExceeded, "{failure}");
    seen
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn the_traffic_class_of_a_connection_by_hand_is_on_the_wire() {
    on_host_a(|| {
        assert_eq!(sent_by_hand(Some(CHOSEN)), CHOSEN);
        assert_eq!(sent_by_hand(None), 0);
    });
}

/// Requests a connection without a peer, and returns the type of service of the request's packet.
fn asked_by_cm(type_of_service: Option<u8>) -> u8 {
    let nobody = NobodyThere::add();
    let deadline = Instant::now() + WAIT_MAX;
    let set = |id: &CmId| type_of_service.map_or(Ok(()), |it| id.set_type_of_service(it));
    let connector =
        Connector::resolve_with(PortSpace::Tcp, (nobody.address, 18520).into(), deadline, set).unwrap();
    let qp = queue_pair(&connector.context().unwrap(), 8);
    let tcpdump = Tcpdump::start(&nobody);
    let soon = Instant::now() + Duration::from_millis(100);
    connector.connect(&qp, &CmParameters::new(), soon).expect_err("there is no peer");
    tcpdump.next_type_of_service()
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn the_type_of_service_of_the_connection_manager_is_on_the_wire() {
    on_host_a(|| {
        assert_eq!(asked_by_cm(Some(CHOSEN)), CHOSEN);
        assert_eq!(asked_by_cm(None), 0);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn both_queue_pairs_of_the_connection_have_the_type_of_service() {
    on_host_a(|| {
        let deadline = Instant::now() + WAIT_MAX;
        let listener = Listener::bind((Device::find().address, 0).into()).unwrap();
        let address = listener.local_address().unwrap();
        let passive = thread::spawn(move || {
            let request = listener.wait_request(deadline).unwrap();
            let qp = queue_pair(&request.context().unwrap(), 8);
            let connection = request.accept(&qp, &CmParameters::new(), deadline).unwrap();
            (qp, connection)
        });
        let set = |id: &CmId| id.set_type_of_service(CHOSEN);
        let connector = Connector::resolve_with(PortSpace::Tcp, address, deadline, set).unwrap();
        let qp = queue_pair(&connector.context().unwrap(), 8);
        let _connection = connector.connect(&qp, &CmParameters::new(), deadline).unwrap();
        let (far, _far_connection) = passive.join().unwrap();
        // The same value as on the wire above.
        assert_eq!(qp.query().unwrap().traffic_class, CHOSEN);
        assert_eq!(far.query().unwrap().traffic_class, CHOSEN, "the request carries it over");
    });
}
