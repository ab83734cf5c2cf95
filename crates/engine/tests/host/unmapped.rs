//! Granted memory that this process cannot map.

use std::time::{Duration, Instant};

use farreach::{Engine, ErrorKind, Rights, Settings};
use farreach_testkit::in_own_process;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::suite::{Pair, SOON};

const LEN: usize = 1 << 20;
const LARGE: usize = 256 << 20;

fn open() -> Engine {
    Engine::with(Settings::new().rails(["shm"])).unwrap()
}

/// Returns the bytes of address space that this process uses.
fn address_space() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096
}

fn limit(bytes: Option<u64>) {
    let maximum = getrlimit(Resource::As).maximum;
    setrlimit(Resource::As, Rlimit { current: bytes.or(maximum), maximum }).unwrap();
}

#[test]
fn a_write_to_memory_that_cannot_be_mapped_fails_and_others_go_on() {
    in_own_process(&[], || {
        let pair = Pair::of(open(), open());
        let (small, to_small) = pair.granted(LEN, Rights::WRITE);
        let peer = &pair.a_to_b;
        peer.write(vec![1; 64], &to_small).wait(SOON).unwrap();
        let memory = pair.b.allocate(LARGE).wait(SOON).unwrap();
        // Room for everything but the second mapping of the large memory.
        limit(Some(address_space() + LARGE as u64 / 2));
        let large = pair.b_to_a.grant(memory, Rights::WRITE).wait(SOON).unwrap();
        let to_large = peer.remote(large.token()).wait(SOON).unwrap();
        let mut stuck = peer.write(vec![2; 64], &to_large);
        let mut written = 0;
        // Those that are refused at once, too.
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(300) || written < 1000 {
            peer.write(vec![3; 64], &to_small).wait(SOON).unwrap();
            let refused = peer.write(vec![4; 64], &to_large).wait(SOON).unwrap_err();
            assert_eq!(refused.error.kind(), ErrorKind::Rail, "{}", refused.error);
            written += 1;
        }
        let error = stuck.wait(SOON).unwrap_err().error;
        let text = error.to_string();
        assert!(text.contains("RLIMIT_AS") && text.contains("ENOMEM"), "{text}");
        assert!(error.fix().contains("ulimit -v"), "{}", error.fix());
        let links = [peer, &pair.b_to_a].map(|peer| peer.link_errors());
        assert!(links.iter().all(Vec::is_empty), "{links:?}");
        // It is tried again, and works when there is room.
        limit(None);
        let until = Instant::now() + SOON;
        while let Err(refused) = peer.write(vec![5; 64], &to_large).wait(SOON) {
            assert!(Instant::now() < until, "{}", refused.error);
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut found = [0; 64];
        large.read_at(0, &mut found);
        assert_eq!(found, [5; 64]);
        drop(small);
    });
}
