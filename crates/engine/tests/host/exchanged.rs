//! Memory that its owner gets back while its pages are being exchanged.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use farreach::{Engine, Rights, Settings};

use crate::suite::{Pair, SOON};

const LEN: usize = 64 << 20;
const PAGE: usize = 4096;
const ROUNDS: u64 = 8;

struct Blocks;

impl Wake for Blocks {
    fn wake(self: Arc<Self>) {
        thread::sleep(Duration::from_secs(2) * ROUNDS as u32);
    }
}

/// A wait for a revoke times out while the pages are being exchanged, because the peer confirms
/// nothing. The owner has its grant again, and writes: no byte may be lost.
#[test]
fn what_the_owner_writes_after_a_timeout_is_not_lost() {
    let open = || Engine::with(Settings::new().rails(["shm"]).peer_timeout(Duration::from_secs(60))).unwrap();
    let pair = Pair::of(open(), open());
    let grants: Vec<_> = (0..ROUNDS).map(|_| pair.granted(LEN, Rights::WRITE).0).collect();
    // The peer's worker is in a waker, and nobody else polls its rail.
    let waker = Waker::from(Arc::new(Blocks));
    let mut message = pin!(pair.a_to_b.recv());
    assert!(message.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    pair.b_to_a.send("block").wait(SOON).unwrap();
    thread::sleep(Duration::from_millis(50));
    let mut handed_back = 0;
    for (round, grant) in grants.into_iter().enumerate() {
        // The exchange begins a quarter of a second and a sixteenth before the deadline.
        let mut revoking = grant.begin_revoke(Duration::from_secs(1));
        let Err(refused) = revoking.wait(Duration::from_millis(690 + 6 * round as u64)) else { continue };
        let grant = refused.grant.expect("the engine runs");
        let mark = [round as u8 + 1; 8];
        (0..LEN / PAGE).for_each(|page| grant.write_at(page * PAGE, &mark));
        thread::sleep(Duration::from_millis(50));
        let mut found = [0; 8];
        let is_lost = |page: &usize| {
            grant.read_at(page * PAGE, &mut found);
            found != mark
        };
        let lost = (0..LEN / PAGE).filter(is_lost).count();
        assert_eq!(lost, 0, "round {round}: pages in which a write was lost");
        handed_back += 1;
    }
    assert!(handed_back > 0, "no wait has timed out");
}
