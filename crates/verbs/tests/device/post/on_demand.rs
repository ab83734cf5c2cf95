//! Tests of on-demand paging: a region whose pages are not pinned.

use std::ffi::c_void;

use farreach_testkit::{Buffer, on_host_a, pattern};
use farreach_verbs::Error;
use farreach_verbs::mr::{AccessFlags, MemoryRegion};
use farreach_verbs::wr::{RemoteRange, SendRequest};

use super::pair::{Pair, everything, next};

const PAGE: u64 = 4096;
const LEN: usize = 16 * PAGE as usize;

/// Less than one packet. In such regions, Soft-RoCE (Linux 7.2) writes the bytes of every packet at
/// the beginning of their page, whatever their offset: only data that fits one packet, at the
/// beginning of a page, is correct.
const SHORT: usize = 1000;

/// Returns the pages to the kernel: the next read gets zeroes, in other pages.
fn forget_pages(buffer: &Buffer) {
    let start: *mut c_void = buffer.as_ptr();
    // SAFETY: the range is whole pages of the buffer, into which no reference exists.
    let status = unsafe { libc::madvise(start, buffer.len(), libc::MADV_DONTNEED) };
    assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
}

/// A registered buffer. The region is deregistered before the buffer is freed.
struct OnDemand {
    mr: MemoryRegion,
    buffer: Buffer,
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_peer_reaches_pages_that_were_exchanged_after_they_were_registered() {
    on_host_a(|| {
        let pair = Pair::rc();
        let buffer = Buffer::new(LEN);
        let access = everything() | AccessFlags::LOCAL_WRITE;
        // SAFETY: the region is dropped before the buffer, which gives out no reference.
        let registered = unsafe { pair.pd.reg_on_demand(buffer.as_ptr(), LEN, access) };
        if !pair.pd.context().query_device().unwrap().on_demand.supported {
            // Debian 12's kernel: an error, and no fallback.
            let refused = registered.expect_err("the device reports none");
            assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
            assert!(std::env::var("FARREACH_KERNEL").is_ok_and(|version| version.starts_with("6.1.")));
            return;
        }
        let region = OnDemand { mr: registered.unwrap(), buffer };
        let remote = RemoteRange::new(region.buffer.address(0), LEN as u64, region.mr.rkey());
        let at = |offset: u64, len: u64| remote.get(offset, len).unwrap();

        // Writes into pages that are not present. With a pinned region they would go to the former
        // pages.
        region.buffer.write(0, &pattern(9, LEN));
        forget_pages(&region.buffer);
        for page in [0, 5] {
            pair.a
                .post_send(SendRequest::write(pair.filled(1, SHORT), at(page * PAGE, SHORT as u64)))
                .unwrap();
            next(&pair.cq_a).outcome.unwrap();
            assert_eq!(region.buffer.read((page * PAGE) as usize, SHORT), pattern(1, SHORT));
        }
        assert_eq!(region.buffer.read(SHORT, PAGE as usize - SHORT), vec![0; PAGE as usize - SHORT]);

        // A read of data that the program has written into new pages.
        forget_pages(&region.buffer);
        region.buffer.write(PAGE as usize, &pattern(2, SHORT));
        pair.a.post_send(SendRequest::read(pair.filled(0, SHORT), at(PAGE, SHORT as u64))).unwrap();
        let read = next(&pair.cq_a);
        read.outcome.unwrap();
        assert_eq!(*read.buffers.into_slice().unwrap(), *pattern(2, SHORT));

        // An atomic in a page that is not present.
        forget_pages(&region.buffer);
        pair.a.post_send(SendRequest::fetch_add(pair.filled(7, 8), at(2 * PAGE, 8), 5)).unwrap();
        let was = next(&pair.cq_a);
        was.outcome.unwrap();
        assert_eq!(*was.buffers.into_slice().unwrap(), [0; 8]);
        assert_eq!(region.buffer.read(2 * PAGE as usize, 8), 5_u64.to_ne_bytes());
    });
}
