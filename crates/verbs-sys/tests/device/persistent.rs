//! Tests of ATOMIC WRITE and FLUSH. Soft-RoCE has both since Linux 6.2. rdma-core has the first
//! since 44, which is Debian 12's, and the second since 45.

use farreach_testkit::{on_host_a, rdma_core_release};
use farreach_verbs_sys::*;

use crate::extended::ExtendedPair;
use crate::rig::*;

/// The kernel's bits of `device_cap_flags_ex` for FLUSH and ATOMIC WRITE, which `verbs.h` does not
/// name.
const DEVICE_HAS_BOTH: u64 = 1 << 38 | 1 << 40;

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn eight_bytes_are_written_at_once_and_flushed() {
    on_host_a(|| {
        let host = Host::open();
        if rdma_core_release(lib().path()) < 45 {
            return refused_or_not_offered(&host);
        }
        assert_eq!(host.capabilities() & DEVICE_HAS_BOTH, DEVICE_HAS_BOTH, "{:x}", host.capabilities());
        let access = ACCESS | IBV_ACCESS_FLUSH_GLOBAL;
        let to = host.region(access);
        let operations = IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_FLUSH;
        let pair = ExtendedPair::new(&host, operations, access).expect("librxe has both operations");

        let qp = pair.sender();
        let value = 0x0123_4567_89ab_cdef_u64.to_ne_bytes();
        // SAFETY: the queue pair lives and has both operations; the value is copied into the queue.
        unsafe {
            assert!((*qp).wr_atomic_write.is_some() && (*qp).wr_flush.is_some());
            ibv_wr_start(qp);
            (*qp).wr_id = 1;
            (*qp).wr_flags = IBV_SEND_SIGNALED;
            ibv_wr_atomic_write(qp, to.rkey(), to.buffer.address(16), value.as_ptr().cast());
            (*qp).wr_id = 2;
            let (placement, level) = (IBV_FLUSH_GLOBAL as u8, IBV_FLUSH_RANGE as u8);
            ibv_wr_flush(qp, to.rkey(), to.buffer.address(16), value.len(), placement, level);
            assert_eq!(ibv_wr_complete(qp), 0);
        }
        let told = [pair.success(), pair.success()].map(|completion| (completion.id, completion.opcode));
        assert_eq!(told, [(1, IBV_WC_ATOMIC_WRITE), (2, IBV_WC_FLUSH)]);
        assert_eq!(to.buffer.read(16, 8), value);
        assert_eq!((to.buffer.read(8, 8), to.buffer.read(24, 8)), (vec![0; 8], vec![0; 8]));
    });
}

/// Checks Debian 12's library on Debian 12's kernel.
fn refused_or_not_offered(host: &Host) {
    assert_eq!(host.capabilities() & DEVICE_HAS_BOTH, 0, "{:x}", host.capabilities());
    // The library's structure ends before the entry. This refusal ensures that it is never called.
    let refused = ExtendedPair::new(host, IBV_QP_EX_WITH_FLUSH, ACCESS).err();
    let errno = refused.expect("the library has no entry for FLUSH").raw_os_error();
    assert_eq!(errno, Some(libc::EOPNOTSUPP));

    // The library has this entry and does not ask the kernel, which lacks the operation. So it is
    // not called here.
    let pair = ExtendedPair::new(host, IBV_QP_EX_WITH_ATOMIC_WRITE, ACCESS).expect("librxe has the entry");
    // SAFETY: the queue pair lives, and was created with the operation.
    assert!(unsafe { (*pair.sender()).wr_atomic_write }.is_some());
}
