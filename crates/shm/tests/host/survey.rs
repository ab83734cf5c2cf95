//! What a survey says where the kernel refuses something.

use std::io;
use std::thread;

use farreach_shm::Survey;

/// Forbids this thread a system call, for good: it returns `EPERM`.
fn forbid(call: libc::c_long) {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut filter = [
        // The number of the call is at the beginning of `seccomp_data`.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        libc::sock_filter {
            code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
            jt: 0,
            jf: 1,
            k: call as u32,
        },
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the first call takes numbers. The second one reads the program, whose length is that of
    // the array, and keeps a copy of it.
    let status = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            | libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
    };
    assert_eq!(status, 0, "{}", io::Error::last_os_error());
}

/// Takes a survey in a thread that may not make a system call.
fn without(call: libc::c_long) -> Survey {
    let survey = thread::spawn(move || {
        forbid(call);
        Survey::take()
    });
    survey.join().unwrap()
}

#[test]
fn each_forbidden_call_is_named() {
    for (call, names) in [
        (libc::SYS_memfd_create, &["memfd_create"][..]),
        (libc::SYS_fcntl, &["fcntl(F_ADD_SEALS)"]),
        (libc::SYS_mmap, &["mmap"]),
        (libc::SYS_madvise, &["madvise"]),
        (libc::SYS_eventfd2, &["eventfd"]),
        (libc::SYS_socketpair, &["socketpair"]),
        (libc::SYS_getsockopt, &["getsockopt(SO_PEERCRED)"]),
        (libc::SYS_bind, &["bind"]),
        (libc::SYS_sendmsg, &["sendmsg"]),
        (libc::SYS_recvmsg, &["recvmsg", "connect"]),
    ] {
        let survey = without(call);
        let first = survey.obstacles.first().unwrap_or_else(|| panic!("{names:?} are not missed"));
        assert!(names.contains(&first.call), "{names:?}: {first}");
        if first.call != "connect" {
            assert_eq!(first.error.raw_os_error(), Some(libc::EPERM), "{first}");
            assert!(first.fix().contains("seccomp"), "{}", first.fix());
        }
    }
    let survey = Survey::take();
    assert!(survey.obstacles.is_empty(), "the filters are of their threads: {:?}", survey.obstacles);
}

#[test]
fn a_seal_that_is_refused_is_no_obstacle_for_links() {
    // Without memory nothing is said of its seals.
    assert!(without(libc::SYS_memfd_create).read_only_seal.is_none());
    assert!(without(libc::SYS_fcntl).read_only_seal.is_some());
}
