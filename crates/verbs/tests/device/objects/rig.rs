//! Shared by the tests of objects.

use std::ptr::null_mut;

use farreach_testkit::{Buffer, Device, wait_for};
use farreach_verbs::context::Context;
use farreach_verbs::cq::CompletionQueue;
use farreach_verbs::device::DeviceList;
use farreach_verbs::mr::{AccessFlags, MemoryRegion};
use farreach_verbs::pd::ProtectionDomain;
use farreach_verbs::qp::state::{ConnectionParameters, PeerAddress};
use farreach_verbs::qp::{QueuePair, QueuePairBuilder, QueuePairType};
use farreach_verbs::sys;

/// The size of a region, in bytes.
pub(crate) const REGION: usize = 8192;

/// The open device of this host.
pub(crate) struct Host {
    pub(crate) context: Context,
    pub(crate) device: Device,
}

impl Host {
    pub(crate) fn open() -> Self {
        let device = Device::find();
        let devices = DeviceList::get().expect("libibverbs is installed");
        let context = devices.find(&device.name).expect("the library lists it").open().expect("it opens");
        Self { context, device }
    }

    pub(crate) fn parameters(&self) -> ConnectionParameters {
        let peer = self.device.address.into();
        ConnectionParameters::choose(&self.context, self.device.port, Some(peer)).unwrap()
    }
}

/// Registered memory. The region is dropped first.
pub(crate) struct Region {
    pub(crate) mr: MemoryRegion,
    pub(crate) buffer: Buffer,
}

// SAFETY: the buffer has no other owner.
unsafe impl Send for Region {}

impl Region {
    pub(crate) fn new(pd: &ProtectionDomain, access: AccessFlags) -> Self {
        let buffer = Buffer::new(REGION);
        // SAFETY: the buffer outlives the region, by the order of the fields, and gives out no
        // reference.
        let mr = unsafe { pd.reg_mr_raw(buffer.as_ptr(), buffer.len(), access) }.unwrap();
        Self { mr, buffer }
    }

    pub(crate) fn sge(&self, offset: usize, length: usize) -> sys::ibv_sge {
        sys::ibv_sge { addr: self.buffer.address(offset), length: length as u32, lkey: self.mr.lkey().0 }
    }
}

/// One of two queue pairs, with a queue and memory of its own. The queue pair is destroyed before
/// the memory.
pub(crate) struct End {
    pub(crate) qp: QueuePair,
    pub(crate) cq: CompletionQueue,
    pub(crate) region: Region,
    pub(crate) own: PeerAddress,
}

impl End {
    pub(crate) fn new(host: &Host, pd: &ProtectionDomain, kind: QueuePairType) -> Self {
        let cq = host.context.create_cq(32).unwrap();
        Self::on(pd, kind, &cq, &host.parameters())
    }

    pub(crate) fn on(
        pd: &ProtectionDomain,
        kind: QueuePairType,
        cq: &CompletionQueue,
        parameters: &ConnectionParameters,
    ) -> Self {
        let qp = QueuePairBuilder::new(kind, cq, cq).max_send_wr(8).max_recv_wr(8).build(pd).unwrap();
        let own = qp.to_init(parameters).unwrap();
        let region = Region::new(pd, AccessFlags::LOCAL_WRITE);
        Self { qp, cq: cq.clone(), region, own }
    }

    /// Posts a signalled SEND of a part of the region. For datagrams, `fill` sets the destination.
    #[track_caller]
    pub(crate) fn post_send(&self, id: u64, mut sge: sys::ibv_sge, fill: impl FnOnce(&mut sys::ibv_send_wr)) {
        let mut wr = sys::ibv_send_wr {
            wr_id: id,
            opcode: sys::IBV_WR_SEND,
            sg_list: &raw mut sge,
            num_sge: 1,
            send_flags: sys::IBV_SEND_SIGNALED,
            ..Default::default()
        };
        fill(&mut wr);
        // SAFETY: the list is valid during the call, and the memory outlives the queue pair.
        unsafe { self.qp.post_send_raw(&raw mut wr, &mut null_mut()) }.unwrap();
    }

    #[track_caller]
    pub(crate) fn post_recv(&self, id: u64, mut sge: sys::ibv_sge) {
        let mut wr = sys::ibv_recv_wr { wr_id: id, sg_list: &raw mut sge, num_sge: 1, ..Default::default() };
        // SAFETY: as for a send.
        unsafe { self.qp.post_recv_raw(&raw mut wr, &mut null_mut()) }.unwrap();
    }
}

/// Creates two connected sides.
pub(crate) fn pair(host: &Host, pd: &ProtectionDomain, kind: QueuePairType) -> (End, End) {
    let (a, b) = (End::new(host, pd, kind), End::new(host, pd, kind));
    let parameters = host.parameters();
    a.qp.connect(&parameters, &a.own, &b.own).unwrap();
    b.qp.connect(&parameters, &b.own, &a.own).unwrap();
    (a, b)
}

/// Returns the next completion, with any status.
#[track_caller]
pub(crate) fn completion(cq: &CompletionQueue) -> sys::ibv_wc {
    wait_for("completion", || {
        let mut wc = [sys::ibv_wc::default()];
        // SAFETY: the test posts everything itself, and its memory outlives the queue pairs.
        match unsafe { cq.poll_raw(&mut wc) }.unwrap() {
            0 => None,
            _ => Some(wc[0]),
        }
    })
}

/// Returns the next completion, which must be a success of this work request.
#[track_caller]
pub(crate) fn success(cq: &CompletionQueue, id: u64) -> sys::ibv_wc {
    let wc = completion(cq);
    assert_eq!((wc.wr_id, wc.status), (id, sys::IBV_WC_SUCCESS));
    wc
}
