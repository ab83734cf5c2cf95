//! Replays the corpora: every input that fuzzing has found worth keeping.

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;
use std::time::{Duration, Instant};

use farreach_fuzz::{TARGETS, run};

/// An input that takes longer costs more than its length. The slowest takes a hundredth of that.
const EACH_MAX: Duration = Duration::from_secs(5);

/// The corpora are in the repository, so they stay small.
const FILE_BYTES_MAX: u64 = 64 << 10;
const ALL_BYTES_MAX: u64 = 2 << 20;

fn replay(name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a file").path()).collect();
    paths.sort_unstable();
    assert!(!paths.is_empty(), "{} is empty", folder.display());
    for path in &paths {
        let input = fs::read(path).expect("a file that can be read");
        let start = Instant::now();
        let ran = catch_unwind(|| run(name, &input));
        assert!(ran.is_ok(), "{} breaks a promise", path.display());
        assert!(start.elapsed() < EACH_MAX, "{} takes {:?}", path.display(), start.elapsed());
    }
    println!("{name}: {} inputs", paths.len());
}

macro_rules! replays {
    ($($name:ident)*) => {
        $(#[test] fn $name() { replay(stringify!($name)); })*
        const REPLAYED: &[&str] = &[$(stringify!($name)),*];
    };
}

replays!(frames machine tls orders packs firewall sysfs names pages ends);

#[test]
fn every_target_is_replayed_and_every_corpus_has_a_target() {
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(names, REPLAYED);
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut bytes = 0;
    for folder in fs::read_dir(corpus).expect("the corpora").map(|entry| entry.expect("a folder").path()) {
        let name = folder.file_name().and_then(|name| name.to_str()).expect("a name");
        assert!(names.contains(&name), "{name} is no target");
        for file in fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("a file")) {
            let len = file.metadata().expect("a file").len();
            assert!(len < FILE_BYTES_MAX, "{} has {len} bytes", file.path().display());
            bytes += len;
        }
    }
    assert!(bytes < ALL_BYTES_MAX, "the corpora have {bytes} bytes");
}
