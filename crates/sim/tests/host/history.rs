//! Equal seeds give equal histories; and networks in real time.

use std::time::{Duration, Instant};

use farreach_rail::Rail;
use farreach_sim::{SimCard, SimNetwork, SimSettings};

use crate::pair::{Pair, Side};
use crate::storm;

#[test]
fn a_seed_replays_its_history() {
    let mut histories: Vec<u64> = (0..40).map(|seed| storm::run(seed).history).collect();
    let again: Vec<u64> = (0..40).map(|seed| storm::run(seed).history).collect();
    assert_eq!(histories, again);
    histories.sort_unstable();
    histories.dedup();
    assert_eq!(histories.len(), 40, "other seeds, other histories");
}

#[test]
fn the_last_notes_are_kept_for_whoever_looks_for_the_cause() {
    let settings = SimSettings { notes_max: 3, ..SimSettings::new(0) };
    let mut pair = Pair::with(settings, SimCard::rc());
    pair.write(1, 0, b"page", None).unwrap();
    pair.settle();
    let notes = pair.network.notes();
    assert_eq!(notes.len(), 3);
    assert!(notes[1].contains("complete") && notes[2].contains("poll"), "{notes:?}");
}

/// Two threads, one for each side, without a driver that advances the time.
#[test]
fn time_may_be_the_clocks() {
    for card in SimCard::kinds() {
        let network = SimNetwork::real_time(SimSettings::new(0));
        let here = Side::new(&network, 0, card.clone());
        let there = Side::new(&network, 1, card);
        let mut pair = Pair { network, here, there };
        pair.connect();
        for tag in 0..50 {
            pair.write(tag, tag as usize, &[7], Some(tag as u32)).unwrap();
        }
        let Pair { network, mut here, mut there } = pair;
        let ends = Instant::now() + Duration::from_secs(20);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while here.completed().len() < 50 && Instant::now() < ends {
                    here.poll();
                }
            });
            while there.immediates().len() < 50 && Instant::now() < ends {
                there.poll();
            }
        });
        // Operations that a tcp-like card has reported as sent may still be in flight to a side
        // that is no longer polled.
        assert_eq!((here.completed().len(), there.immediates().len()), (50, 50));
        assert_eq!(there.bytes(0, 50), [7; 50]);
        assert_eq!((network.violations(), here.rail.in_flight()), (vec![], 0));
    }
}
