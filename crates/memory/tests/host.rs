//! Allocations where there can be no file for them. Limits are those of a process, so that each test
//! runs in a process of its own.

use std::process::Command;

use farreach_memory::{FileAccess, Memory, Slice};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Runs a test again in a process of its own, and returns `true` in that process.
fn alone(test: &str) -> bool {
    if std::env::var_os("FARREACH_ALONE").is_some() {
        return true;
    }
    let program = std::env::current_exe().unwrap();
    let output = Command::new(program).args(["--exact", test]).env("FARREACH_ALONE", "1").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    false
}

fn limit(resource: Resource, current: u64) {
    let maximum = getrlimit(resource).maximum;
    setrlimit(resource, Rlimit { current: Some(current), maximum }).unwrap();
}

/// Returns whether another process could map it.
fn has_file(slice: Slice) -> bool {
    let exposed = slice.expose();
    let guard = exposed.guard_key(farreach_memory::KeyAccess::Write).unwrap();
    // SAFETY: the descriptor is not passed.
    let has_file = unsafe { guard.backing(FileAccess::ReadWrite) }.is_ok();
    // SAFETY: the same.
    unsafe { guard.end() };
    has_file
}

#[test]
fn without_descriptors_memory_is_anonymous_with_a_note() {
    if !alone("without_descriptors_memory_is_anonymous_with_a_note") {
        return;
    }
    limit(Resource::Nofile, 64);
    let mut kept = Vec::new();
    for _ in 0..100 {
        let mut slice = Memory::allocate(5000).unwrap();
        slice.fill(7);
        kept.push(slice);
    }
    let files = kept.iter().filter(|slice| slice.memory().notes().is_empty()).count();
    assert!((20..49).contains(&files), "{files}: a quarter of the descriptors is for others");
    let note = &kept.last().unwrap().memory().notes()[0];
    assert!(note.contains("anonymous") && note.contains("ulimit -n"), "{note}");
    assert!(!has_file(kept.pop().unwrap()) && has_file(kept.swap_remove(0)));
    // The kernel itself has none left: EMFILE.
    let taken: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    let slice = Memory::allocate(5000).unwrap();
    assert!(slice.memory().notes()[0].contains("anonymous"), "{:?}", slice.memory().notes());
    drop((kept, taken));
    assert!(has_file(Memory::allocate(5000).unwrap()), "descriptors are returned");
}

#[test]
fn a_limit_of_file_sizes_does_not_end_the_process() {
    if !alone("a_limit_of_file_sizes_does_not_end_the_process") {
        return;
    }
    limit(Resource::Fsize, 8192);
    assert!(has_file(Memory::allocate(8192).unwrap()));
    let slice = Memory::allocate(8193).unwrap();
    assert!(slice.memory().notes()[0].contains("ulimit -f"), "{:?}", slice.memory().notes());
}
