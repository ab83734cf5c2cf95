//! Tests of unreliable connections and datagrams by the safe API.

use std::time::Instant;

use farreach_memory::Slice;
use farreach_testkit::{Device, WAIT_MAX, on_host_a, pattern, wait_for};
use farreach_verbs::ah::GRH_BYTES;
use farreach_verbs::cm::{CmId, DatagramDestination, EventChannel, EventKind, Membership, PortSpace};
use farreach_verbs::context::Context;
use farreach_verbs::cq::{CompletionQueue, Success, WorkKind};
use farreach_verbs::device::DeviceList;
use farreach_verbs::imm::ImmediateData;
use farreach_verbs::mr::AccessFlags;
use farreach_verbs::pd::ProtectionDomain;
use farreach_verbs::qp::state::{ConnectionParameters, PeerAddress};
use farreach_verbs::qp::{QueuePair, QueuePairBuilder, QueuePairType};
use farreach_verbs::wr::{Buffers, RecvRequest, Refusal, SendRequest};

/// A queue pair and its completion queue.
struct End {
    qp: QueuePair,
    cq: CompletionQueue,
    pd: ProtectionDomain,
}

impl End {
    fn new(pd: &ProtectionDomain, kind: QueuePairType) -> Self {
        let cq = pd.context().create_cq(16).unwrap();
        let qp = QueuePairBuilder::new(kind, &cq, &cq).max_send_wr(4).max_recv_wr(4).build(pd).unwrap();
        Self { qp, cq, pd: pd.clone() }
    }

    fn filled(&self, seed: u8, len: usize) -> Slice {
        let mut slice = self.pd.allocate(len).unwrap();
        slice.copy_from_slice(&pattern(seed, len));
        slice
    }

    fn make_room(&self, len: usize) {
        self.qp.post_recv(RecvRequest::new(self.filled(0, len))).unwrap();
    }

    /// Returns the next completion, which must be a success of this kind.
    #[track_caller]
    fn next(&self, kind: WorkKind) -> (Success, Buffers) {
        wait_for("completion", || {
            let mut poller = self.cq.poller();
            let completion = poller.poll().unwrap().next()?;
            let success = completion.outcome().expect("it went well");
            assert_eq!(completion.kind(), kind);
            Some((success, completion.into_buffers()))
        })
    }

    fn received(&self) -> (Success, Slice) {
        let (success, buffers) = self.next(WorkKind::Recv);
        (success, buffers.into_slice().unwrap())
    }
}

struct Host {
    device: Device,
    context: Context,
    parameters: ConnectionParameters,
}

impl Host {
    fn open() -> Self {
        let device = Device::find();
        let context = DeviceList::get().unwrap().find(&device.name).expect("it is listed").open().unwrap();
        let own = Some(device.address.into());
        let mut parameters = ConnectionParameters::choose(&context, device.port, own).unwrap();
        parameters.access = AccessFlags::REMOTE_WRITE;
        Self { device, context, parameters }
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn an_unreliable_connection_carries_messages_and_writes() {
    on_host_a(|| {
        let host = Host::open();
        let pd = host.context.alloc_pd().unwrap();
        let [a, b] = [0, 1].map(|_| End::new(&pd, QueuePairType::Uc));
        let (at_a, at_b) = (a.qp.to_init(&host.parameters).unwrap(), b.qp.to_init(&host.parameters).unwrap());
        a.qp.connect(&host.parameters, &at_a, &at_b).unwrap();
        b.qp.connect(&host.parameters, &at_b, &at_a).unwrap();

        // More than one packet.
        b.make_room(6000);
        a.qp.post_send(SendRequest::send(a.filled(1, 5000)).immediate(7)).unwrap();
        let (_, sent) = a.next(WorkKind::Send);
        assert_eq!(*sent.into_slice().unwrap(), *pattern(1, 5000));
        let (success, slice) = b.received();
        assert_eq!((success.byte_len, success.immediate), (5000, Some(ImmediateData(7))));
        assert_eq!(slice[..5000], *pattern(1, 5000));

        let region = pd.expose(slice, AccessFlags::REMOTE_WRITE).map_err(|(error, _)| error).unwrap();
        b.make_room(1);
        a.qp.post_send(SendRequest::write(a.filled(2, 3000), region.remote()).immediate(8)).unwrap();
        a.next(WorkKind::Write);
        let (success, _) = b.received();
        assert_eq!((success.is_write, success.immediate), (true, Some(ImmediateData(8))));
        assert_eq!(region.revoke().unwrap()[..3000], *pattern(2, 3000));
    });
}

/// Returns two ready queue pairs for datagrams, with their addresses.
fn datagram_ends(host: &Host) -> [(End, PeerAddress); 2] {
    let pd = host.context.alloc_pd().unwrap();
    [0, 1].map(|_| {
        let end = End::new(&pd, QueuePairType::Ud);
        let own = end.qp.to_init(&host.parameters).unwrap();
        end.qp.activate(&host.parameters, &own).unwrap();
        (end, own)
    })
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_datagram_comes_with_its_routing_header() {
    on_host_a(|| {
        let host = Host::open();
        let [(a, at_a), (b, at_b)] = datagram_ends(&host);
        let there = a.pd.create_ah(&host.parameters.address_of(&at_b)).unwrap();
        b.make_room(GRH_BYTES + 600);
        let request = SendRequest::send(a.filled(3, 500)).immediate(9).to(&there, at_b.qp_num, at_b.qkey);
        a.qp.post_send(request).unwrap();
        // The work request holds the handle while the device may use it.
        drop(there);
        let (_, sent) = a.next(WorkKind::Send);
        assert_eq!(sent.len(), 500);

        let (success, slice) = b.received();
        assert_eq!(success.byte_len as usize, GRH_BYTES + 500);
        assert!(success.has_routing_header);
        assert_eq!((success.source_qp_num, success.immediate), (at_a.qp_num, Some(ImmediateData(9))));
        let (header, rest) = slice.split_at(GRH_BYTES);
        assert_eq!(rest[..500], *pattern(3, 500));
        // For IPv4 the header is in the last 20 bytes, which end with source and destination.
        let own = host.device.address.octets();
        assert_eq!((&header[32..36], &header[36..]), (&own[..], &own[..]));
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_datagram_without_the_key_is_not_taken() {
    on_host_a(|| {
        let host = Host::open();
        let [(a, _), (b, at_b)] = datagram_ends(&host);
        let there = a.pd.create_ah(&host.parameters.address_of(&at_b)).unwrap();
        b.make_room(GRH_BYTES + 8);
        for (seed, qkey) in [(1, at_b.qkey ^ 1), (2, at_b.qkey)] {
            a.qp.post_send(SendRequest::send(a.filled(seed, 8)).to(&there, at_b.qp_num, qkey)).unwrap();
            // The sender gets no error.
            a.next(WorkKind::Send);
        }
        let (_, slice) = b.received();
        assert_eq!(slice[GRH_BYTES..], *pattern(2, 8), "the first was discarded");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn what_is_no_datagram_is_refused() {
    on_host_a(|| {
        let host = Host::open();
        let [(a, _), (b, at_b)] = datagram_ends(&host);
        let there = a.pd.create_ah(&host.parameters.address_of(&at_b)).unwrap();
        let region =
            b.pd.expose(b.filled(0, 8), AccessFlags::REMOTE_WRITE).map_err(|(error, _)| error).unwrap();
        let to_nobody = a.qp.post_send(SendRequest::send(a.filled(1, 8))).unwrap_err();
        assert!(matches!(to_nobody.reason, Refusal::Unsupported(_)), "{to_nobody}");
        let write = SendRequest::write(a.filled(1, 8), region.remote()).to(&there, at_b.qp_num, at_b.qkey);
        let write = a.qp.post_send(write).unwrap_err();
        assert!(matches!(write.reason, Refusal::Unsupported(_)), "{write}");
        assert_eq!(write.request.into_buffers().len(), 8, "the buffers were returned");
        assert_eq!(a.qp.in_flight(), (0, 0));
    });
}

/// A member of a multicast group.
struct Member {
    end: End,
    _id: CmId,
    group: DatagramDestination,
}

impl Member {
    fn join(channel: &EventChannel, pd: &mut Option<ProtectionDomain>) -> Self {
        let id = channel.create_id(PortSpace::Udp).unwrap();
        id.bind((Device::find().address, 0).into()).unwrap();
        let pd = pd.get_or_insert_with(|| id.context().unwrap().alloc_pd().unwrap());
        let end = End::new(pd, QueuePairType::Ud);
        id.init_qp(&end.qp).unwrap();
        id.join_multicast([239, 1, 2, 9].into(), Membership::Full).unwrap();
        let joined = channel.wait_event(Instant::now() + WAIT_MAX).unwrap();
        assert_eq!((joined.kind(), joined.status()), (EventKind::MulticastJoin, 0));
        let group = joined.destination().expect("of datagrams").clone();
        Self { end, _id: id, group }
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_datagram_to_a_group_reaches_every_member() {
    on_host_a(|| {
        let (channel, mut pd) = (EventChannel::new().unwrap(), None);
        let [sender, first, second, elsewhere] = [0; 4].map(|_| Member::join(&channel, &mut pd));
        for member in [&first, &second, &elsewhere] {
            member.end.make_room(GRH_BYTES + 100);
        }
        for member in [&first, &second] {
            let address = &member.group.address;
            member.end.qp.attach_mcast(address.gid.expect("RoCE goes by GID"), address.lid).unwrap();
        }
        let group = &sender.group;
        let ah = sender.end.pd.create_ah(&group.address).unwrap();
        let request = SendRequest::send(sender.end.filled(5, 100)).immediate(10);
        sender.end.qp.post_send(request.to(&ah, group.qp_num, group.qkey)).unwrap();
        sender.end.next(WorkKind::Send);
        for member in [&first, &second] {
            let (success, slice) = member.end.received();
            assert_eq!(success.byte_len as usize, GRH_BYTES + 100);
            assert_eq!(success.source_qp_num, sender.end.qp.qp_num());
            assert_eq!(success.immediate, Some(ImmediateData(10)));
            assert_eq!(slice[GRH_BYTES..], *pattern(5, 100));
        }
        assert_eq!(elsewhere.end.qp.in_flight(), (0, 1), "joined, and its queue pair not attached");
    });
}
