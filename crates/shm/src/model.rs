//! Models of the ring and of sleeping for loom, which tries every order of threads and every value
//! that a load may see: `cargo xtask model`.

use std::sync::atomic::Ordering;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, fence};
use loom::thread;

use crate::ring::{Area, Consumer, Producer, SLOT_BYTES, SLOT_WORDS};
use crate::sleep;
use crate::words::Words;

#[derive(Debug, Clone)]
struct Modelled(Arc<Vec<AtomicU64>>);

impl Modelled {
    fn new(count: usize) -> Self {
        Self(Arc::new((0..count).map(|_| AtomicU64::new(0)).collect()))
    }
}

impl Words for Modelled {
    fn load(&self, index: usize, order: Ordering) -> u64 {
        self.0[index].load(order)
    }

    fn store(&self, index: usize, value: u64, order: Ordering) {
        self.0[index].store(value, order);
    }

    fn swap(&self, index: usize, value: u64, order: Ordering) -> u64 {
        self.0[index].swap(value, order)
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}

const SLOTS: usize = 2;
const AREA: Area = Area { slots_at: 2, slots: SLOTS, head_at: 0 };
/// The word by which the consumer says that it sleeps.
const SLEEPS: usize = 1;
const WORDS: usize = 2 + SLOTS * SLOT_WORDS;

/// What is seen is whole, in order, and not overwritten while it is read.
#[test]
fn entries_are_whole_and_in_order() {
    loom::model(|| {
        let words = Modelled::new(WORDS);
        let mut producer = Producer::new(words.clone(), AREA);
        let sender = thread::spawn(move || {
            (1..=3_u8).take_while(|number| producer.push(*number, &[*number]).unwrap()).count()
        });
        let mut consumer = Consumer::new(words, AREA);
        let mut seen = 0;
        let mut take = |consumer: &mut Consumer<Modelled>| {
            let mut bytes = Vec::new();
            while let Some(kind) = consumer.pop(&mut bytes).unwrap() {
                seen += 1;
                assert_eq!((kind, &bytes[..]), (seen, &[seen][..]));
                bytes.clear();
            }
            seen
        };
        take(&mut consumer);
        let sent = sender.join().unwrap();
        assert_eq!(usize::from(take(&mut consumer)), sent);
    });
}

/// An entry of several slots is seen as a whole.
#[test]
fn long_entries_are_whole() {
    const AREA: Area = Area { slots_at: 2, slots: 8, head_at: 0 };
    loom::model(|| {
        let words = Modelled::new(2 + 8 * SLOT_WORDS);
        let mut producer = Producer::new(words.clone(), AREA);
        let sender = thread::spawn(move || assert!(producer.push(1, &[7; SLOT_BYTES + 1]).unwrap()));
        let mut consumer = Consumer::new(words, AREA);
        let mut bytes = Vec::new();
        if consumer.pop(&mut bytes).unwrap().is_some() {
            assert_eq!(bytes, [7; SLOT_BYTES + 1]);
        }
        sender.join().unwrap();
    });
}

/// A consumer that sleeps is woken if there is an entry.
#[test]
fn no_wakeup_is_lost() {
    loom::model(|| {
        let words = Modelled::new(WORDS);
        let is_woken = Arc::new(AtomicBool::new(false));
        let mut producer = Producer::new(words.clone(), AREA);
        let sender = {
            let (words, is_woken) = (words.clone(), Arc::clone(&is_woken));
            thread::spawn(move || {
                assert!(producer.push(1, &[]).unwrap());
                if sleep::must_wake(&words, SLEEPS, sleep::FOR_ENTRIES) {
                    is_woken.store(true, Ordering::Relaxed);
                }
            })
        };
        let consumer = Consumer::new(words.clone(), AREA);
        sleep::announce(&words, SLEEPS, sleep::FOR_ENTRIES);
        let sleeps = consumer.is_empty();
        sender.join().unwrap();
        assert!(!sleeps || is_woken.load(Ordering::Relaxed), "asleep for good");
    });
}

/// A producer that sleeps until there is room is woken when an entry was taken.
#[test]
fn no_room_is_lost() {
    loom::model(|| {
        let words = Modelled::new(WORDS);
        let is_woken = Arc::new(AtomicBool::new(false));
        let mut producer = Producer::new(words.clone(), AREA);
        assert!(producer.push(1, &[]).unwrap() && producer.push(2, &[]).unwrap());
        let mut consumer = Consumer::new(words.clone(), AREA);
        let receiver = {
            let (words, is_woken) = (words.clone(), Arc::clone(&is_woken));
            thread::spawn(move || {
                assert_eq!(consumer.pop(&mut Vec::new()), Ok(Some(1)));
                if sleep::must_wake(&words, SLEEPS, sleep::FOR_ROOM) {
                    is_woken.store(true, Ordering::Relaxed);
                }
            })
        };
        sleep::announce(&words, SLEEPS, sleep::FOR_ROOM);
        let sleeps = !producer.has_room(0).unwrap();
        receiver.join().unwrap();
        assert!(!sleeps || is_woken.load(Ordering::Relaxed), "asleep for good");
    });
}
