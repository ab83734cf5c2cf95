//! The objects of the tests. Each is destroyed at the end of its scope, so parents are declared
//! first.

use std::ffi::{CStr, c_int, c_uint};
use std::io::Error;
use std::os::fd::RawFd;
use std::ptr::{null, null_mut};

use farreach_testkit::{Buffer, Device, WAIT_MAX, wait_for};
use farreach_verbs_sys::*;

/// The depth of a completion queue and of a queue pair: more than any test here posts.
pub(crate) const DEPTH: u32 = 16;
/// The size of a region, in bytes: several packets of the path's MTU, so that a write is more than
/// one packet.
pub(crate) const REGION: usize = 8192;
/// The default access of every region and queue pair.
pub(crate) const ACCESS: c_uint =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND;

pub(crate) fn lib() -> &'static Ibverbs {
    Ibverbs::get().expect("libibverbs is installed")
}

/// A C object and the function that destroys it.
pub(crate) struct Owned<T> {
    object: *mut T,
    destroy: fn(*mut T) -> c_int,
}

impl<T> Owned<T> {
    /// Takes ownership of the result of a C function. Panics if it is null.
    #[track_caller]
    pub(crate) fn new(object: *mut T, destroy: fn(*mut T) -> c_int) -> Self {
        assert!(!object.is_null(), "{}: {}", std::any::type_name::<T>(), Error::last_os_error());
        Self { object, destroy }
    }

    pub(crate) fn get(&self) -> *mut T {
        self.object
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        let status = (self.destroy)(self.object);
        // A second panic would abort a test that has already failed.
        if !std::thread::panicking() {
            assert_eq!(
                status,
                0,
                "{} is not destroyed: {}",
                std::any::type_name::<T>(),
                Error::last_os_error()
            );
        }
    }
}

/// The open device of this host, with a protection domain.
pub(crate) struct Host {
    pub(crate) pd: Owned<ibv_pd>,
    pub(crate) context: Owned<ibv_context>,
    pub(crate) device: Device,
}

impl Host {
    pub(crate) fn open() -> Self {
        let device = Device::find();
        let context = open_by_name(&device.name);
        // SAFETY: the context is open. A domain is released after all its objects.
        let pd = unsafe {
            Owned::new(lib().ibv_alloc_pd(context.get()).unwrap(), |pd| lib().ibv_dealloc_pd(pd).unwrap())
        };
        Self { pd, context, device }
    }

    /// Returns `device_cap_flags_ex` of `ibv_query_device_ex(3)`.
    pub(crate) fn capabilities(&self) -> u64 {
        let mut attr = ibv_device_attr_ex::default();
        // SAFETY: the context is open and the attributes are valid for writing.
        let status = unsafe { ibv_query_device_ex(lib(), self.context.get(), null(), &raw mut attr) };
        assert_eq!(status, Ok(0));
        attr.device_cap_flags_ex
    }

    pub(crate) fn channel(&self) -> Owned<ibv_comp_channel> {
        // SAFETY: the context is open; a channel is destroyed after its queue.
        unsafe {
            Owned::new(lib().ibv_create_comp_channel(self.context.get()).unwrap(), |channel| {
                lib().ibv_destroy_comp_channel(channel).unwrap()
            })
        }
    }

    pub(crate) fn cq(&self, channel: Option<&Owned<ibv_comp_channel>>) -> Owned<ibv_cq> {
        let channel = channel.map_or(null_mut(), Owned::get);
        // SAFETY: the context is open, and the channel is null or lives.
        let cq = unsafe { lib().ibv_create_cq(self.context.get(), DEPTH as c_int, null_mut(), channel, 0) };
        // SAFETY: a queue is destroyed after its queue pairs, with all events acknowledged.
        Owned::new(cq.unwrap(), |cq| unsafe { lib().ibv_destroy_cq(cq) }.unwrap())
    }

    pub(crate) fn qp(&self, cq: *mut ibv_cq, srq: *mut ibv_srq) -> Owned<ibv_qp> {
        let mut attr = ibv_qp_init_attr {
            send_cq: cq,
            recv_cq: cq,
            srq,
            cap: capacity(),
            qp_type: IBV_QPT_RC,
            ..Default::default()
        };
        // SAFETY: the domain and the queues live.
        let qp = unsafe { lib().ibv_create_qp(self.pd.get(), &raw mut attr) }.unwrap();
        Owned::new(qp, destroy_qp)
    }

    pub(crate) fn region(&self, access: c_uint) -> Region {
        let buffer = Buffer::new(REGION);
        // SAFETY: the domain lives, and the buffer outlives the region, by the order of the fields.
        let mr = unsafe { ibv_reg_mr(lib(), self.pd.get(), buffer.as_ptr(), buffer.len(), access) }.unwrap();
        // SAFETY: a region is released when no work request names it any more.
        Region { mr: Owned::new(mr, |mr| unsafe { lib().ibv_dereg_mr(mr) }.unwrap()), buffer }
    }

    /// Connects two queue pairs with each other, over the device's own address.
    pub(crate) fn join(&self, a: *mut ibv_qp, b: *mut ibv_qp, access: c_uint) {
        for (own, other) in [(a, b), (b, a)] {
            self.modify(own, "INIT", to_init(self.device.port, access));
            // SAFETY: the queue pair lives.
            let number = unsafe { (*other).qp_num };
            self.modify(own, "RTR", to_ready_to_receive(&self.device, number));
            self.modify(own, "RTS", to_ready_to_send());
        }
    }

    fn modify(&self, qp: *mut ibv_qp, state: &str, (mut attr, mask): (ibv_qp_attr, c_uint)) {
        // SAFETY: the queue pair lives and the attributes are valid.
        let status = unsafe { lib().ibv_modify_qp(qp, &raw mut attr, mask as c_int) }.unwrap();
        assert_eq!(status, 0, "to {state}: {}", Error::from_raw_os_error(status));
    }
}

pub(crate) fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: called once, by the owner; posted work requests are discarded.
    unsafe { lib().ibv_destroy_qp(qp) }.unwrap()
}

pub(crate) fn capacity() -> ibv_qp_cap {
    let (wr, sge) = (DEPTH / 2, 2);
    ibv_qp_cap {
        max_send_wr: wr,
        max_recv_wr: wr,
        max_send_sge: sge,
        max_recv_sge: sge,
        ..Default::default()
    }
}

fn open_by_name(name: &str) -> Owned<ibv_context> {
    let mut count = 0;
    // SAFETY: the count is valid for writing. The list and its devices live until it is freed.
    unsafe {
        let list = lib().ibv_get_device_list(&raw mut count).unwrap();
        assert!(!list.is_null(), "{}", Error::last_os_error());
        let is_named = |device: &*mut ibv_device| {
            CStr::from_ptr(lib().ibv_get_device_name(*device).unwrap()).to_str() == Ok(name)
        };
        let device = (0..count as usize).map(|index| *list.add(index)).find(is_named);
        let context = lib().ibv_open_device(device.expect("sysfs and the library have the same devices"));
        lib().ibv_free_device_list(list).unwrap();
        Owned::new(context.unwrap(), |context| lib().ibv_close_device(context).unwrap())
    }
}

fn to_init(port: u8, access: c_uint) -> (ibv_qp_attr, c_uint) {
    let attr = ibv_qp_attr {
        qp_state: IBV_QPS_INIT,
        port_num: port,
        qp_access_flags: access & !(IBV_ACCESS_MW_BIND | IBV_ACCESS_LOCAL_WRITE),
        ..Default::default()
    };
    (attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
}

fn to_ready_to_receive(device: &Device, peer: u32) -> (ibv_qp_attr, c_uint) {
    let mut attr = ibv_qp_attr {
        qp_state: IBV_QPS_RTR,
        path_mtu: IBV_MTU_1024,
        dest_qp_num: peer,
        max_dest_rd_atomic: 8,
        min_rnr_timer: 12,
        ..Default::default()
    };
    (attr.ah_attr.is_global, attr.ah_attr.port_num) = (1, device.port);
    attr.ah_attr.grh = ibv_global_route {
        dgid: ibv_gid { raw: device.address.to_ipv6_mapped().octets() },
        sgid_index: device.gid_index,
        hop_limit: 64,
        ..Default::default()
    };
    let mask = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MIN_RNR_TIMER;
    (attr, IBV_QP_STATE | mask | IBV_QP_MAX_DEST_RD_ATOMIC)
}

fn to_ready_to_send() -> (ibv_qp_attr, c_uint) {
    // Four attempts of 4.096 µs × 2^14 each: a lost peer is reported within a second.
    let attr = ibv_qp_attr {
        qp_state: IBV_QPS_RTS,
        timeout: 14,
        retry_cnt: 3,
        rnr_retry: 7,
        max_rd_atomic: 8,
        ..Default::default()
    };
    let mask = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN;
    (attr, IBV_QP_STATE | mask | IBV_QP_MAX_QP_RD_ATOMIC)
}

/// Registered memory.
pub(crate) struct Region {
    pub(crate) mr: Owned<ibv_mr>,
    pub(crate) buffer: Buffer,
}

impl Region {
    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: the region lives.
        unsafe { (*self.mr.get()).rkey }
    }

    pub(crate) fn sge(&self, offset: usize, length: usize) -> ibv_sge {
        // SAFETY: the region lives.
        let lkey = unsafe { (*self.mr.get()).lkey };
        ibv_sge { addr: self.buffer.address(offset), length: length as u32, lkey }
    }
}

/// One of two queue pairs, with a completion queue and memory of its own.
pub(crate) struct End {
    pub(crate) qp: Owned<ibv_qp>,
    pub(crate) cq: Owned<ibv_cq>,
    pub(crate) region: Region,
}

impl End {
    fn new(host: &Host) -> Self {
        let cq = host.cq(None);
        Self { qp: host.qp(cq.get(), null_mut()), cq, region: host.region(ACCESS) }
    }
}

/// Creates two connected sides.
pub(crate) fn pair(host: &Host) -> (End, End) {
    let (a, b) = (End::new(host), End::new(host));
    host.join(a.qp.get(), b.qp.get(), ACCESS);
    (a, b)
}

/// Returns a signalled work request with one buffer.
pub(crate) fn request(id: u64, opcode: ibv_wr_opcode, sge: &mut ibv_sge) -> ibv_send_wr {
    ibv_send_wr {
        wr_id: id,
        opcode,
        sg_list: sge,
        num_sge: 1,
        send_flags: IBV_SEND_SIGNALED,
        ..Default::default()
    }
}

/// Returns a signalled write into the other side's memory.
pub(crate) fn write_request(id: u64, sge: &mut ibv_sge, remote_addr: u64, rkey: u32) -> ibv_send_wr {
    let mut wr = request(id, IBV_WR_RDMA_WRITE, sge);
    wr.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
    wr
}

#[track_caller]
pub(crate) fn post_send(qp: &Owned<ibv_qp>, mut wr: ibv_send_wr) {
    let mut bad = null_mut();
    // SAFETY: the queue pair lives. The work request and its list live until the call returns, and
    // its memory until completion.
    let status = unsafe { ibv_post_send(qp.get(), &raw mut wr, &raw mut bad) };
    assert_eq!(status, 0, "{}", Error::from_raw_os_error(status));
}

#[track_caller]
pub(crate) fn post_recv(qp: &Owned<ibv_qp>, id: u64, mut sge: ibv_sge) {
    let mut wr = ibv_recv_wr { wr_id: id, sg_list: &raw mut sge, num_sge: 1, ..Default::default() };
    let mut bad = null_mut();
    // SAFETY: as for a send.
    let status = unsafe { ibv_post_recv(qp.get(), &raw mut wr, &raw mut bad) };
    assert_eq!(status, 0, "{}", Error::from_raw_os_error(status));
}

/// Returns the next completion, with any status.
#[track_caller]
pub(crate) fn completion(cq: &Owned<ibv_cq>) -> ibv_wc {
    wait_for("completion", || {
        let mut wc = ibv_wc::default();
        // SAFETY: the queue lives and there is room for one completion.
        match unsafe { ibv_poll_cq(cq.get(), 1, &raw mut wc) } {
            0 => None,
            1 => Some(wc),
            failure => panic!("ibv_poll_cq returned {failure}"),
        }
    })
}

/// Returns the next completion, which must be a success of this work request.
#[track_caller]
pub(crate) fn success(cq: &Owned<ibv_cq>, id: u64, opcode: ibv_wc_opcode) -> ibv_wc {
    let wc = completion(cq);
    assert_eq!((wc.wr_id, wc.status, wc.opcode), (id, IBV_WC_SUCCESS, opcode), "{}", status_text(wc.status));
    wc
}

pub(crate) fn status_text(status: ibv_wc_status) -> String {
    // SAFETY: the function returns a static string for every number.
    unsafe { CStr::from_ptr(lib().ibv_wc_status_str(status).unwrap()) }.to_string_lossy().into_owned()
}

/// Waits until a descriptor is readable.
#[track_caller]
pub(crate) fn wait_readable(fd: RawFd) {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: the call gets one descriptor.
    let ready = unsafe { libc::poll(&raw mut poll, 1, WAIT_MAX.as_millis() as c_int) };
    assert_eq!(ready, 1, "nothing to read within {WAIT_MAX:?}");
}
