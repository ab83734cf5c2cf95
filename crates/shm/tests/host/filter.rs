//! System calls that a filter of the kernel forbids.

use std::io;

/// Forbids this thread a system call, for good: it returns `EPERM`.
pub(crate) fn forbid(call: libc::c_long) {
    forbid_if(call, None, libc::EPERM);
}

/// Lets a system call of this thread fail with an error, for good: always, or if an argument has a
/// value.
pub(crate) fn forbid_if(call: libc::c_long, argument: Option<(u32, u32)>, errno: libc::c_int) {
    let load = |at: u32| libc::sock_filter {
        code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16,
        jt: 0,
        jf: 0,
        k: at,
    };
    let skip_unless = |value: u32, skipped: u8| libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt: 0,
        jf: skipped,
        k: value,
    };
    let end = |verdict: u32| libc::sock_filter {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k: verdict,
    };
    // In `seccomp_data`, the number of the call is at the beginning, and arguments of 8 bytes follow
    // after 16. The lower half of an argument is first.
    let mut filter = match argument {
        None => vec![load(0), skip_unless(call as u32, 1)],
        Some((index, value)) => {
            vec![load(0), skip_unless(call as u32, 3), load(16 + 8 * index), skip_unless(value, 1)]
        }
    };
    filter.push(end(libc::SECCOMP_RET_ERRNO | errno as u32));
    filter.push(end(libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the first call takes numbers. The second one reads the program, whose length is that of
    // the list, and keeps a copy of it.
    let status = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            | libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
    };
    assert_eq!(status, 0, "{}", io::Error::last_os_error());
}
