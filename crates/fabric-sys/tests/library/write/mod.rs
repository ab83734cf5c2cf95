//! The bindings on real providers: operations that are posted through them move bytes from one
//! endpoint to another.
//!
//! The tests are one suite, run over each provider that every machine has.

mod rig;

use std::ptr::{null, null_mut};

use farreach_fabric_sys::*;
use farreach_testkit::pattern;
use libc::iovec;

use rig::{A, B, Pair, Provider};

/// Runs the suite over one provider.
macro_rules! suite {
    ($name:ident, $provider:expr; $($test:ident,)*) => {
        mod $name {
            $(
                #[test]
                #[ignore = "needs libfabric: cargo xtask test runs it"]
                fn $test() {
                    let pair = super::Pair::open($provider);
                    super::$test(&pair);
                    pair.assert_quiet();
                }
            )*
        }
    };
    ($($name:ident = $provider:expr;)*) => {
        $(
            suite! {
                $name, $provider;
                a_message_arrives_in_the_buffer_that_waits_for_it,
                an_injected_message_completes_at_its_target_alone,
                a_write_with_data_has_landed_when_its_target_is_told,
                a_write_is_silent_unless_its_completion_is_asked_for,
                a_read_brings_the_peers_memory,
                atomics_are_there_where_the_provider_says_so,
            }
        )*
    };
}

suite! {
    tcp_under_rxm = super::Provider::TcpUnderRxm;
    tcp = super::Provider::Tcp;
    shm = super::Provider::Shm;
}

const IMMEDIATE: u64 = 0xfa77_eac4;

fn a_message_arrives_in_the_buffer_that_waits_for_it(pair: &Pair) {
    let data = pattern(1, 3000);
    pair[A].buffer.write(64, &data);
    let (a, b) = (&pair[A], &pair[B]);

    // SAFETY: the endpoints and buffers live longer than the operations, whose completions are
    // waited for.
    pair.post(|| unsafe { fi_recv(b.ep(), b.at(4096), 4096, b.descriptor(), FI_ADDR_UNSPEC, b.context(0)) });
    // SAFETY: as above.
    pair.post(|| unsafe { fi_send(a.ep(), a.at(64), data.len(), a.descriptor(), a.peer(), a.context(1)) });

    let sent = pair.completion(A);
    assert_eq!((sent.op_context, sent.flags & FI_SEND), (a.context(1), FI_SEND));
    let received = pair.completion(B);
    assert_eq!((received.op_context, received.flags & FI_RECV), (b.context(0), FI_RECV));
    assert_eq!(received.len, data.len());
    assert_eq!(b.buffer.read(4096, data.len()), data);
}

fn an_injected_message_completes_at_its_target_alone(pair: &Pair) {
    let (a, b) = (&pair[A], &pair[B]);
    let data = pattern(2, a.inject_size().min(48));
    assert!(data.len() >= 8, "the provider injects {} bytes", a.inject_size());
    // SAFETY: the endpoint and the buffer live longer than the operation, whose completion is
    // waited for.
    pair.post(|| unsafe { fi_recv(b.ep(), b.at(0), 64, b.descriptor(), FI_ADDR_UNSPEC, b.context(0)) });
    a.buffer.write(0, &data);
    // SAFETY: the bytes stay valid until the call returns, which is all that an injection requires.
    pair.post(|| unsafe { fi_inject(a.ep(), a.at(0), data.len(), a.peer()) });
    a.buffer.write(0, &[0; 48]);

    let received = pair.completion(B);
    assert_eq!((received.op_context, received.len), (b.context(0), data.len()));
    assert_eq!(b.buffer.read(0, data.len()), data);
}

/// Writes two separate local buffers to one place at the peer.
fn write(pair: &Pair, parts: [(usize, usize); 2], target: usize, data: u64, context: usize, flags: u64) {
    let (a, b) = (&pair[A], &pair[B]);
    let iov = parts.map(|(offset, len)| iovec { iov_base: a.at(offset), iov_len: len });
    let mut descriptors = [a.descriptor(); 2];
    let (addr, key) = b.remote(target);
    let remote = fi_rma_iov { addr, len: parts[0].1 + parts[1].1, key };
    let msg = fi_msg_rma {
        msg_iov: iov.as_ptr(),
        desc: descriptors.as_mut_ptr(),
        iov_count: iov.len(),
        addr: a.peer(),
        rma_iov: &raw const remote,
        rma_iov_count: 1,
        context: a.context(context),
        data,
    };
    // SAFETY: everything in the structure lives until the call returns, and the buffers until the
    // completion.
    pair.post(|| unsafe { fi_writemsg(a.ep(), &raw const msg, flags) });
}

fn a_write_with_data_has_landed_when_its_target_is_told(pair: &Pair) {
    // More than any provider sends eagerly.
    let data = pattern(3, 40_000);
    let (first, second) = data.split_at(10_000);
    pair[A].buffer.write(0, first);
    pair[A].buffer.write(12_000, second);

    let parts = [(0, first.len()), (12_000, second.len())];
    write(pair, parts, 100, IMMEDIATE, 3, FI_REMOTE_CQ_DATA | FI_COMPLETION);

    let told = pair.completion(B);
    assert_eq!(told.flags & FI_REMOTE_CQ_DATA, FI_REMOTE_CQ_DATA, "{:x}", told.flags);
    assert_eq!(told.data, IMMEDIATE);
    let buffer = &pair[B].buffer;
    assert_eq!(buffer.read(100, data.len()), data);
    assert_eq!(buffer.read(0, 100), [0; 100], "nothing before it");
    assert_eq!(buffer.read(40_100, 100), [0; 100], "nothing behind it");

    let written = pair.completion(A);
    assert_eq!((written.op_context, written.flags & FI_WRITE), (pair[A].context(3), FI_WRITE));
}

fn a_write_is_silent_unless_its_completion_is_asked_for(pair: &Pair) {
    let data = pattern(4, 256);
    pair[A].buffer.write(0, &data);
    write(pair, [(0, 64), (64, 64)], 0, 0, 1, 0);
    write(pair, [(128, 64), (192, 64)], 128, 0, 2, FI_COMPLETION);

    if !pair.provider.should_complete_selectively() {
        assert_eq!(pair.completion(A).op_context, pair[A].context(1), "told all the same");
    }
    assert_eq!(pair.completion(A).op_context, pair[A].context(2));
    // A completion at the sender does not prove that the bytes have landed.
    pair.wait_for("landing", || pair[B].buffer.read(0, data.len()) == data);
}

fn a_read_brings_the_peers_memory(pair: &Pair) {
    let data = pattern(5, 40_000);
    pair[B].buffer.write(200, &data);
    let (a, (addr, key)) = (&pair[A], pair[B].remote(200));
    // SAFETY: the endpoint and the buffer live longer than the operation, whose completion is
    // waited for.
    pair.post(|| unsafe {
        fi_read(a.ep(), a.at(0), data.len(), a.descriptor(), a.peer(), addr, key, a.context(4))
    });
    let done = pair.completion(A);
    assert_eq!((done.op_context, done.flags & FI_READ), (a.context(4), FI_READ));
    assert_eq!(a.buffer.read(0, data.len()), data);
}

fn atomics_are_there_where_the_provider_says_so(pair: &Pair) {
    let (a, (addr, key)) = (&pair[A], pair[B].remote(64));
    let mut count = 0;
    // The capability is not sufficient: the `net` of 1.17 offers it, and then has no operation.
    // Without it there may be no table.
    // SAFETY: the endpoint has the capability.
    let has_sum =
        a.offers_atomics() && unsafe { fi_fetch_atomicvalid(a.ep(), FI_UINT64, FI_SUM, &raw mut count) } == 0;
    assert_eq!(has_sum, pair.provider.should_have_atomics());
    if !has_sum {
        return;
    }
    assert!(count >= 1, "{count} elements at once");

    pair[B].buffer.write(64, &40_u64.to_ne_bytes());
    a.buffer.write(0, &2_u64.to_ne_bytes());
    let (operand, descriptor) = (a.at(0), a.descriptor());
    // SAFETY: the endpoint has the capability; it and the buffer live longer than the operation.
    pair.post(|| unsafe {
        fi_fetch_atomic(
            a.ep(),
            operand,
            1,
            descriptor,
            a.at(8),
            descriptor,
            a.peer(),
            addr,
            key,
            FI_UINT64,
            FI_SUM,
            a.context(5),
        )
    });
    assert_eq!(pair.completion(A).op_context, a.context(5));
    assert_eq!(a.buffer.read(8, 8), 40_u64.to_ne_bytes(), "the old value");
    assert_eq!(pair[B].buffer.read(64, 8), 42_u64.to_ne_bytes());
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn a_provider_of_no_release_is_not_offered() {
    let libfabric = Libfabric::get().expect("libfabric is installed");
    let mut offers = null_mut();
    let hints = rig::Offer::hints(c"no_such_provider", FI_MSG);
    // SAFETY: the hints live, and the list is valid for writing.
    let status =
        unsafe { libfabric.fi_getinfo(API_VERSION, null(), null(), 0, hints.get(), &raw mut offers) };
    assert_eq!((status, offers.is_null()), (Ok(-FI_ENODATA), true));
}
