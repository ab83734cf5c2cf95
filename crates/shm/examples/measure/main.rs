//! Measures links against the bare machine, alternately in one run. It prints a line of JSON for
//! each measurement: `cargo xtask bench shm` runs it.
//!
//! Usage: `measure ROUNDS [pages|cpu|ping|wake|idle]…`. `cpu` measures pages by the processor time of
//! the writer, for a machine that is busy with other work.

#![expect(clippy::print_stdout, reason = "it is a program")]

mod bare;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use farreach_memory::{Buffer, Buffers, Memory};
use farreach_shm::{Access, Connecting, Event, Expected, Link, Listener, Request, Target};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use bare::{
    AREA, Bounce, Child, PAGES, PAUSES_US, PINGS, Sleeper, WARM_UP, contest, copy_pages, nanoseconds,
    processor_time, report, scattered, shared_words, sleep_on, wall_time, woken_after,
};

const OURS: [u8; 32] = [1; 32];
const THEIRS: [u8; 32] = [2; 32];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let rounds: usize = words.first().and_then(|word| word.parse().ok()).unwrap_or(25);
    let wants = |what: &str| words.len() < 2 || words[1..].iter().any(|word| word == what);
    bare::pin(0);
    let by_cpu = words.iter().any(|word| word == "cpu");
    if wants("pages") || by_cpu {
        for (page, repeats) in PAGES {
            pages(rounds, page, repeats, if by_cpu { cpu_time } else { wall_time });
        }
    }
    if wants("ping") {
        ping(rounds);
    }
    if wants("wake") {
        for pause_us in PAUSES_US {
            wake(rounds, pause_us);
        }
    }
    if wants("idle") {
        idle();
    }
}

/// Pages written to another process, against memcpy within one.
fn pages(rounds: usize, page: usize, repeats: usize, now: fn() -> Duration) {
    let places = scattered(page);
    let mut target = Memory::allocate(AREA).unwrap();
    let mut source = Memory::allocate(AREA).unwrap();
    source.fill(7);
    let source = source.share();
    let (mut link, child) = with_child(|mut link| {
        let memory = Memory::allocate(AREA).unwrap().expose();
        let key = link.grant(&memory, Access::ReadWrite).unwrap();
        send(&mut link, &key.to_le_bytes());
        serve(&mut link);
    });
    let key = u64::from_le_bytes(message(&mut link).try_into().unwrap());
    let each = ((256 << 10) / page).max(1);
    let requests: Vec<(usize, Vec<Target>)> = places
        .chunks(each)
        .enumerate()
        .map(|(index, places)| {
            let target = |place: &usize| Target { key, offset: *place as u64, len: page as u64 };
            (index * each * page, places.iter().map(target).collect())
        })
        .collect();
    let rate = |elapsed: Duration| (AREA * repeats) as f64 / elapsed.as_secs_f64() / 1e9;
    let bare = || {
        let start = now();
        for _ in 0..repeats {
            copy_pages(&mut target, &source, &places, page);
        }
        rate(now() - start)
    };
    let shm = || {
        let start = now();
        for _ in 0..repeats {
            for (from, targets) in &requests {
                let buffers = Buffers::from(source.get(*from..*from + targets.len() * page).unwrap());
                link.post(1, Request::Write { targets, immediate: Some(targets.len() as u32) }, buffers)
                    .unwrap();
                while link.in_flight() > 0 {
                    link.poll(|event| {
                        if let Event::Completed { outcome, .. } = event {
                            outcome.unwrap()
                        }
                    });
                }
            }
        }
        rate(now() - start)
    };
    let results = contest(rounds, bare, shm);
    report(&format!("write shm {} KiB", page >> 10), "gb_per_s", &results);
    drop(link);
    drop(child);
}

/// Eight bytes written and counted, there and back, against a cache line that two processes bounce.
fn ping(rounds: usize) {
    let mut bounce = Bounce::start();
    let memory = Memory::allocate(4096).unwrap().expose();
    let (mut link, child) = with_child(|mut link| {
        let memory = Memory::allocate(4096).unwrap().expose();
        let key = link.grant(&memory, Access::ReadWrite).unwrap();
        send(&mut link, &key.to_le_bytes());
        let theirs = u64::from_le_bytes(message(&mut link).try_into().unwrap());
        let mut word = Buffer::from(Memory::allocate(8).unwrap());
        let (mut counted, mut is_over) = (false, false);
        while !is_over {
            link.poll(|event| match event {
                Event::Immediate(_) => counted = true,
                Event::Down(_) => is_over = true,
                _ => {}
            });
            if std::mem::take(&mut counted) {
                write_word(&mut link, theirs, &mut word);
            }
        }
    });
    let theirs = u64::from_le_bytes(message(&mut link).try_into().unwrap());
    let key = link.grant(&memory, Access::ReadWrite).unwrap();
    send(&mut link, &key.to_le_bytes());
    let mut word = Buffer::from(Memory::allocate(8).unwrap());
    let mut exchange = |times| {
        let start = Instant::now();
        for _ in 0..times {
            write_word(&mut link, theirs, &mut word);
            let mut is_back = false;
            while !is_back {
                link.poll(|event| is_back |= matches!(event, Event::Immediate(_)));
            }
        }
        start.elapsed().as_secs_f64() * 1e6 / times as f64
    };
    // The child polls without a pause, and would take a core from the other one.
    child.stop();
    let shm = || {
        child.cont();
        exchange(WARM_UP);
        let us = exchange(PINGS);
        child.stop();
        us
    };
    let results = contest(rounds, || bounce.measure(), shm);
    report("ping shm 8 B", "rtt_us", &results);
    drop(link);
    child.cont();
    std::mem::forget(memory);
}

fn write_word(link: &mut Link, key: u64, word: &mut Buffer) {
    let targets = [Target { key, offset: 0, len: 8 }];
    // The key may not have arrived yet.
    while !link.perform(Request::Write { targets: &targets, immediate: Some(1) }, word, 0) {
        link.poll(|_| {});
    }
}

/// The time until a process that sleeps runs, against a bare eventfd.
fn wake(rounds: usize, pause_us: u64) {
    let (sleeper, [word, ..]) = (Sleeper::start(), shared_words());
    let (mut link, child) = with_child(|mut link| {
        let mut is_over = false;
        while !is_over {
            if link.may_sleep() {
                sleep_on(&link);
            }
            let now = nanoseconds();
            link.poll(|event| match event {
                Event::Immediate(_) | Event::Message(_) => word.store(now, Ordering::Release),
                Event::Down(_) => is_over = true,
                _ => {}
            });
        }
    });
    let pause = Duration::from_micros(pause_us);
    let shm = || {
        woken_after(
            || std::thread::sleep(pause),
            word,
            || {
                link.post(1, Request::Send, Buffers::None).unwrap();
                link.poll(|_| {});
            },
        )
    };
    let results = contest(rounds, || sleeper.measure(pause), shm);
    report(&format!("wake shm after {} ms", pause_us as f64 / 1e3), "wake_us", &results);
    drop(link);
    drop(child);
}

/// The processor time of two processes with an idle link, in 10 s.
fn idle() {
    let words = shared_words();
    let (mut link, child) = with_child(|mut link| {
        words[0].store(idle_for(&mut link), Ordering::Release);
    });
    let own = idle_for(&mut link);
    drop(child);
    let ms = (own + words[0].load(Ordering::Acquire)) as f64 / 1e6;
    println!("{{\"label\":\"idle pair\",\"field\":\"cpu_ms_in_10_s\",\"value\":{ms}}}");
}

fn idle_for(link: &mut Link) -> u64 {
    let (before, until) = (processor_time(), Instant::now() + Duration::from_secs(10));
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        link.poll(|_| {});
        if link.may_sleep() {
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let _ = poll(&mut [PollFd::new(&*link, PollFlags::IN)], Some(&timeout));
        }
    }
    (processor_time() - before).as_nanos() as u64
}

/// The processor time of this thread.
fn cpu_time() -> Duration {
    bare::clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn serve(link: &mut Link) {
    let mut is_over = false;
    while !is_over {
        if link.may_sleep() {
            sleep_on(link);
        }
        link.poll(|event| is_over |= matches!(event, Event::Down(_)));
    }
}

fn send(link: &mut Link, bytes: &[u8]) {
    let mut slice = Memory::allocate(bytes.len()).unwrap();
    slice.copy_from_slice(bytes);
    link.post(3, Request::Send, slice.into()).unwrap();
    while link.in_flight() > 0 {
        link.poll(|_| {});
    }
}

fn message(link: &mut Link) -> Vec<u8> {
    let mut found = None;
    while found.is_none() {
        link.poll(|event| {
            if let Event::Message(bytes) = event {
                found = Some(bytes.to_vec())
            }
        });
    }
    found.unwrap()
}

/// Starts a child at the other end of a link.
fn with_child(work: impl FnOnce(Link)) -> (Link, Child) {
    let mut listener = Listener::bind(Duration::from_secs(60)).unwrap();
    listener.expect(Expected { id: 1, theirs: THEIRS, ours: OURS });
    let name = listener.name().to_owned();
    let child = Child::fork(|| {
        let mut connecting = Connecting::new(&name, THEIRS, OURS).unwrap();
        let link = std::iter::repeat_with(|| connecting.poll().unwrap()).flatten().next().unwrap();
        work(link);
    });
    let link = loop {
        if let Some(met) = listener.poll(Instant::now()).unwrap() {
            break met.link;
        }
    };
    (link, child)
}
