//! Tests of the extended functions: `ibv_create_qp_ex`, work requests built by `ibv_wr_*`, and
//! completions read one field at a time.

use std::ffi::c_uint;
use std::io::Error;
use std::ptr::null_mut;

use farreach_testkit::{on_host_a, pattern, wait_for};
use farreach_verbs_sys::*;

use crate::rig::*;

/// The fields that the tests read.
const FIELDS: c_uint = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM;

/// Two queue pairs with one extended completion queue.
pub(crate) struct ExtendedPair {
    pub(crate) a: Owned<ibv_qp>,
    pub(crate) b: Owned<ibv_qp>,
    cq: Owned<ibv_cq_ex>,
}

impl ExtendedPair {
    /// Creates a pair with these operations, of `IBV_QP_EX_WITH_*`. Returns the errno if the
    /// creation is refused.
    pub(crate) fn new(host: &Host, operations: c_uint, access: c_uint) -> Result<Self, Error> {
        let cq = extended_cq(host);
        let create = || {
            let mut attr = ibv_qp_init_attr_ex {
                send_cq: ibv_cq_ex_to_cq(cq.get()),
                recv_cq: ibv_cq_ex_to_cq(cq.get()),
                cap: capacity(),
                qp_type: IBV_QPT_RC,
                comp_mask: IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
                pd: host.pd.get(),
                send_ops_flags: u64::from(operations),
                ..Default::default()
            };
            // SAFETY: the context is open, and the domain and the queue live.
            let qp = unsafe { ibv_create_qp_ex(lib(), host.context.get(), &raw mut attr) }.unwrap();
            if qp.is_null() { Err(Error::last_os_error()) } else { Ok(Owned::new(qp, destroy_qp)) }
        };
        let (a, b) = (create()?, create()?);
        host.join(a.get(), b.get(), access);
        Ok(Self { a, b, cq })
    }

    /// Returns the sending side's table of work-request functions.
    pub(crate) fn sender(&self) -> *mut ibv_qp_ex {
        // SAFETY: the queue pair lives and was created with operations.
        let qp = unsafe { lib().ibv_qp_to_qp_ex(self.a.get()) }.unwrap();
        assert!(!qp.is_null());
        qp
    }

    /// Returns the next completion, which must be a success.
    #[track_caller]
    pub(crate) fn success(&self) -> Completion {
        let cq = self.cq.get();
        let mut attr = ibv_poll_cq_attr::default();
        // SAFETY: the queue lives. Its fields are read between a start that found a completion and
        // the end.
        wait_for("completion", || unsafe {
            match ibv_start_poll(cq, &raw mut attr) {
                0 => {
                    let found = Completion::read(cq);
                    ibv_end_poll(cq);
                    Some(found)
                }
                libc::ENOENT => None,
                failure => panic!("{}", Error::from_raw_os_error(failure)),
            }
        })
    }
}

/// The fields of one successful completion.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    pub(crate) id: u64,
    pub(crate) opcode: ibv_wc_opcode,
    qp_num: u32,
    byte_len: Option<u32>,
    immediate: Option<u32>,
}

impl Completion {
    /// Reads the current completion.
    ///
    /// # Safety
    ///
    /// A completion of the queue is open, and the queue was created with [`FIELDS`].
    unsafe fn read(cq: *mut ibv_cq_ex) -> Self {
        // SAFETY: the caller guarantees an open completion and the fields.
        unsafe {
            let (id, status) = ((*cq).wr_id, (*cq).status);
            assert_eq!(status, IBV_WC_SUCCESS, "request {id}: {}", status_text(status));
            let opcode = ibv_wc_read_opcode(cq);
            // C defines length and immediate for receives only: rxe sets the flag for the sender's
            // own completion of a write with immediate too, without a value.
            let is_received = opcode & IBV_WC_RECV != 0;
            let has_immediate = is_received && ibv_wc_read_wc_flags(cq) & IBV_WC_WITH_IMM != 0;
            Self {
                id,
                opcode,
                qp_num: ibv_wc_read_qp_num(cq),
                byte_len: is_received.then(|| ibv_wc_read_byte_len(cq)),
                immediate: has_immediate.then(|| u32::from_be(ibv_wc_read_imm_data(cq))),
            }
        }
    }
}

fn extended_cq(host: &Host) -> Owned<ibv_cq_ex> {
    let mut attr = ibv_cq_init_attr_ex { cqe: DEPTH, wc_flags: u64::from(FIELDS), ..Default::default() };
    // SAFETY: the context is open and the attributes are valid.
    let cq = unsafe { ibv_create_cq_ex(host.context.get(), &raw mut attr) };
    // SAFETY: a queue is destroyed after its queue pairs.
    let cq = Owned::new(cq, |cq| unsafe { lib().ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) }.unwrap());
    // SAFETY: the queue lives.
    let table = unsafe { &*cq.get() };
    assert!(table.start_poll.is_some() && table.end_poll.is_some() && table.read_opcode.is_some());
    assert!(table.read_qp_num.is_some() && table.read_byte_len.is_some() && table.read_imm_data.is_some());
    cq
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_batch_of_writes_lands_and_is_read_field_by_field() {
    on_host_a(|| {
        let host = Host::open();
        let operations = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
        let (from, to) = (host.region(ACCESS), host.region(ACCESS));
        let pair = ExtendedPair::new(&host, operations, ACCESS).expect("rxe has these operations");
        let data = pattern(4, 4000);
        from.buffer.write(0, &data);
        post_recv(&pair.b, 9, to.sge(0, 0));

        let qp = pair.sender();
        // SAFETY: the queue pair lives and has both operations; the lists live until the batch is
        // complete.
        unsafe {
            assert!((*qp).wr_rdma_write.is_some() && (*qp).wr_rdma_write_imm.is_some());
            ibv_wr_start(qp);
            (*qp).wr_id = 1;
            (*qp).wr_flags = IBV_SEND_SIGNALED;
            ibv_wr_rdma_write(qp, to.rkey(), to.buffer.address(0));
            let sge = from.sge(0, 1000);
            ibv_wr_set_sge(qp, sge.lkey, sge.addr, sge.length);

            (*qp).wr_id = 2;
            ibv_wr_rdma_write_imm(qp, to.rkey(), to.buffer.address(1000), 77_u32.to_be());
            // Both have the same length: librxe of rdma-core 44 uses the length of the first
            // element for each.
            let list = [from.sge(1000, 1500), from.sge(2500, 1500)];
            ibv_wr_set_sge_list(qp, list.len(), list.as_ptr());
            assert_eq!(ibv_wr_complete(qp), 0);
        }

        // SAFETY: the queue pairs live.
        let (a, b) = unsafe { ((*pair.a.get()).qp_num, (*pair.b.get()).qp_num) };
        let mut told = [pair.success(), pair.success(), pair.success()];
        told.sort_by_key(|completion| completion.id);
        let sent =
            |id| Completion { id, opcode: IBV_WC_RDMA_WRITE, qp_num: a, byte_len: None, immediate: None };
        let received = Completion {
            id: 9,
            opcode: IBV_WC_RECV_RDMA_WITH_IMM,
            qp_num: b,
            byte_len: Some(3000),
            immediate: Some(77),
        };
        assert_eq!(told, [sent(1), sent(2), received]);
        assert_eq!(to.buffer.read(0, data.len()), data);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn an_aborted_batch_is_not_sent() {
    on_host_a(|| {
        let host = Host::open();
        let (from, to) = (host.region(ACCESS), host.region(ACCESS));
        let pair =
            ExtendedPair::new(&host, IBV_QP_EX_WITH_RDMA_WRITE, ACCESS).expect("rxe has this operation");
        from.buffer.write(0, &[1; 8]);
        let qp = pair.sender();
        // SAFETY: the queue pair lives and has the operation.
        let build = |id: u64, offset: usize| unsafe {
            (*qp).wr_id = id;
            (*qp).wr_flags = IBV_SEND_SIGNALED;
            ibv_wr_rdma_write(qp, to.rkey(), to.buffer.address(offset));
            let sge = from.sge(0, 8);
            ibv_wr_set_sge(qp, sge.lkey, sge.addr, sge.length);
        };
        // SAFETY: a batch is opened, filled, and ended, twice.
        unsafe {
            ibv_wr_start(qp);
            build(1, 0);
            ibv_wr_abort(qp);
            ibv_wr_start(qp);
            build(2, 8);
            assert_eq!(ibv_wr_complete(qp), 0);
        }
        assert_eq!(pair.success().id, 2);
        assert_eq!(to.buffer.read(0, 16), [[0; 8], [1; 8]].concat());
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_plain_queue_pair_has_no_table_of_requests() {
    on_host_a(|| {
        let host = Host::open();
        let cq = host.cq(None);
        let qp = host.qp(cq.get(), null_mut());
        // SAFETY: the queue pair lives.
        let extended = unsafe { lib().ibv_qp_to_qp_ex(qp.get()) }.unwrap();
        assert!(extended.is_null());
    });
}
