//! What a survey says where the kernel refuses something.

use std::thread;

use farreach_shm::Survey;

use crate::filter::forbid;

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
        (libc::SYS_socketpair, &["socketpair"]),
        (libc::SYS_getsockopt, &["getsockopt(SO_PEERCRED)"]),
        (libc::SYS_bind, &["bind"]),
        (libc::SYS_timerfd_create, &["timerfd_create"]),
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
