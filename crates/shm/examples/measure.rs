//! Measures links against the bare machine, alternately in one run. It prints a line of JSON for
//! each measurement: `cargo xtask bench shm` runs it.
//!
//! Usage: `measure ROUNDS [pages|cpu|ping|wake|idle]…`. `cpu` measures pages by the processor time of
//! the writer, for a machine that is busy with other work.

#![expect(clippy::print_stdout, reason = "it is a program")]

use std::hint::spin_loop;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use farreach_memory::{Buffers, Memory};
use farreach_shm::{Access, Connecting, Event, Expected, Link, Listener, Request, Target};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

const OURS: [u8; 32] = [1; 32];
const THEIRS: [u8; 32] = [2; 32];
/// Pages are scattered over this many bytes.
const AREA: usize = 16 << 20;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let rounds: usize = words.first().and_then(|word| word.parse().ok()).unwrap_or(25);
    let wants = |what: &str| words.len() < 2 || words[1..].iter().any(|word| word == what);
    let by_cpu = words.iter().any(|word| word == "cpu");
    if wants("pages") || by_cpu {
        for (page, repeats) in [(4 << 10, 2), (64 << 10, 4), (1 << 20, 4)] {
            pages(rounds, page, repeats, if by_cpu { cpu_time } else { wall_time });
        }
    }
    if wants("ping") {
        ping(rounds);
    }
    if wants("wake") {
        for pause_us in [200, 2000, 20_000] {
            wake(rounds, pause_us);
        }
    }
    if wants("idle") {
        idle();
    }
}

/// Runs both alternately: bare, shm, shm, bare.
fn contest(rounds: usize, mut bare: impl FnMut() -> f64, mut shm: impl FnMut() -> f64) -> [Vec<f64>; 3] {
    let (mut bares, mut shms, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    bare();
    shm();
    for _ in 0..rounds {
        let (first, second, third, fourth) = (bare(), shm(), shm(), bare());
        ratios.push(((second * third) / (first * fourth)).sqrt());
        bares.extend([first, fourth]);
        shms.extend([second, third]);
    }
    [bares, shms, ratios]
}

fn report(label: &str, field: &str, [bare, shm, ratios]: &[Vec<f64>; 3]) {
    println!(
        "{{\"label\":\"{label}\",\"field\":\"{field}\",\"bare\":{bare:?},\"engine\":{shm:?},\"ratios\":{ratios:?}}}"
    );
}

/// Returns the places of pages in an order that a prefetcher does not know.
fn scattered(page: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..AREA / page).map(|index| index * page).collect();
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for index in (1..places.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        places.swap(index, (state % (index as u64 + 1)) as usize);
    }
    places
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
            for (index, place) in places.iter().enumerate() {
                target[*place..][..page].copy_from_slice(&source[index * page..][..page]);
            }
            std::hint::black_box(&mut target);
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
    end(child);
}

/// Eight bytes written and counted, there and back, against a cache line that two processes bounce.
fn ping(rounds: usize) {
    const PINGS: u64 = 2000;
    let line = shared_words();
    let bouncer = fork(|| {
        let mut expected = 1;
        loop {
            match line[0].load(Ordering::Acquire) {
                u64::MAX => return,
                value if value == expected => {
                    line[0].store(value + 1, Ordering::Release);
                    expected = value + 2;
                }
                _ => spin_loop(),
            }
        }
    });
    let memory = Memory::allocate(4096).unwrap().expose();
    let (mut link, child) = with_child(|mut link| {
        let memory = Memory::allocate(4096).unwrap().expose();
        let key = link.grant(&memory, Access::ReadWrite).unwrap();
        send(&mut link, &key.to_le_bytes());
        let theirs = u64::from_le_bytes(message(&mut link).try_into().unwrap());
        let mut word = Some(Buffers::from(Memory::allocate(8).unwrap()));
        let (mut counted, mut is_over) = (false, false);
        while !is_over {
            link.poll(|event| match event {
                Event::Immediate(_) => counted = true,
                Event::Completed { buffers, .. } => word = Some(buffers),
                Event::Down(_) => is_over = true,
                _ => {}
            });
            if counted && let Some(buffers) = word.take() {
                counted = false;
                write_word(&mut link, theirs, buffers);
            }
        }
    });
    let theirs = u64::from_le_bytes(message(&mut link).try_into().unwrap());
    let key = link.grant(&memory, Access::ReadWrite).unwrap();
    send(&mut link, &key.to_le_bytes());
    let mut value = 0;
    let bare = || {
        let start = Instant::now();
        for _ in 0..PINGS {
            line[0].store(value + 1, Ordering::Release);
            value += 2;
            while line[0].load(Ordering::Acquire) != value {
                spin_loop();
            }
        }
        start.elapsed().as_secs_f64() * 1e6 / PINGS as f64
    };
    let mut word = Some(Buffers::from(Memory::allocate(8).unwrap()));
    let shm = || {
        let start = Instant::now();
        for _ in 0..PINGS {
            write_word(&mut link, theirs, word.take().unwrap());
            let mut is_back = false;
            while !is_back || word.is_none() {
                link.poll(|event| match event {
                    Event::Immediate(_) => is_back = true,
                    Event::Completed { buffers, .. } => word = Some(buffers),
                    _ => {}
                });
            }
        }
        start.elapsed().as_secs_f64() * 1e6 / PINGS as f64
    };
    let results = contest(rounds, bare, shm);
    report("ping shm 8 B", "rtt_us", &results);
    line[0].store(u64::MAX, Ordering::Release);
    drop(link);
    end(bouncer);
    end(child);
    std::mem::forget(memory);
}

fn write_word(link: &mut Link, key: u64, buffers: Buffers) {
    let targets = [Target { key, offset: 0, len: 8 }];
    link.post(2, Request::Write { targets: &targets, immediate: Some(1) }, buffers).unwrap();
}

/// The time until a process that sleeps runs, against a bare eventfd.
fn wake(rounds: usize, pause_us: u64) {
    const WAKES: u32 = 3;
    let words = shared_words();
    let event_fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let sleeper = fork(|| {
        loop {
            sleep_on(&event_fd);
            let mut count = [0; 8];
            let _ = rustix::io::read(&event_fd, &mut count);
            let now = nanoseconds();
            if words[1].load(Ordering::Acquire) != 0 {
                return;
            }
            words[0].store(now, Ordering::Release);
        }
    });
    let (mut link, child) = with_child(|mut link| {
        let mut is_over = false;
        while !is_over {
            if link.may_sleep() {
                sleep_on(&link);
            }
            let now = nanoseconds();
            link.poll(|event| match event {
                Event::Immediate(_) | Event::Message(_) => words[2].store(now, Ordering::Release),
                Event::Down(_) => is_over = true,
                _ => {}
            });
        }
    });
    let pause = Duration::from_micros(pause_us);
    let awaited = |index: usize, ring: &mut dyn FnMut()| {
        let mut sum = 0.0;
        for _ in 0..WAKES {
            std::thread::sleep(pause);
            words[index].store(0, Ordering::Relaxed);
            let start = nanoseconds();
            ring();
            let woken = loop {
                match words[index].load(Ordering::Acquire) {
                    0 => spin_loop(),
                    at => break at,
                }
            };
            sum += woken.saturating_sub(start).max(1) as f64 / 1e3;
        }
        sum / f64::from(WAKES)
    };
    let results = contest(
        rounds,
        || awaited(0, &mut || _ = rustix::io::write(&event_fd, &1_u64.to_ne_bytes()).unwrap()),
        || {
            awaited(2, &mut || {
                link.post(1, Request::Send, Buffers::None).unwrap();
                link.poll(|_| {});
            })
        },
    );
    report(&format!("wake shm after {} ms", pause_us as f64 / 1e3), "wake_us", &results);
    words[1].store(1, Ordering::Release);
    rustix::io::write(&event_fd, &1_u64.to_ne_bytes()).unwrap();
    drop(link);
    end(sleeper);
    end(child);
}

/// The processor time of two processes with an idle link, in 10 s.
fn idle() {
    let words = shared_words();
    let (mut link, child) = with_child(|mut link| {
        words[0].store(idle_for(&mut link), Ordering::Release);
    });
    let own = idle_for(&mut link);
    end(child);
    let ms = (own + words[0].load(Ordering::Acquire)) as f64 / 1e6;
    println!("{{\"label\":\"idle pair\",\"field\":\"cpu_ms_in_10_s\",\"value\":{ms}}}");
}

fn idle_for(link: &mut Link) -> u64 {
    let busy = || -> u64 {
        let text = std::fs::read_to_string("/proc/self/schedstat").unwrap();
        text.split(' ').next().unwrap().parse().unwrap()
    };
    let (before, until) = (busy(), Instant::now() + Duration::from_secs(10));
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        link.poll(|_| {});
        if link.may_sleep() {
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let _ = poll(&mut [PollFd::new(&*link, PollFlags::IN)], Some(&timeout));
        }
    }
    busy() - before
}

fn sleep_on(fd: &impl AsFd) {
    let _ = poll(&mut [PollFd::new(fd, PollFlags::IN)], None);
}

fn nanoseconds() -> u64 {
    wall_time().as_nanos() as u64
}

fn wall_time() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap()
}

/// The processor time of this thread.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes the time to the local.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(status, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
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
fn with_child(work: impl FnOnce(Link)) -> (Link, libc::pid_t) {
    let mut listener = Listener::bind(Duration::from_secs(60)).unwrap();
    listener.expect(Expected { id: 1, theirs: THEIRS, ours: OURS });
    let name = listener.name().to_owned();
    let child = fork(|| {
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

/// Runs `work` in a child.
fn fork(work: impl FnOnce()) -> libc::pid_t {
    // SAFETY: this program has one thread, so a child may do everything.
    match unsafe { libc::fork() } {
        0 => {
            work();
            // SAFETY: it ends the process.
            unsafe { libc::_exit(0) }
        }
        child => child,
    }
}

fn end(child: libc::pid_t) {
    let mut status = 0;
    // SAFETY: the kernel writes the status to the local.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
}

/// Returns words that children share, in different cache lines.
fn shared_words() -> [&'static AtomicU64; 3] {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping overlaps nothing that exists.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), 4096, access, flags, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    // SAFETY: the words are within the page, aligned, never unmapped, and accessed by atomics only.
    [0, 16, 32].map(|index| unsafe { AtomicU64::from_ptr(start.cast::<u64>().add(index)) })
}
