//! The bare machine, for comparison: processes that bounce a cache line, sleep on an eventfd, or copy
//! pages; and how two things are measured alternately.
//!
//! Programs that measure `farreach-shm` and the engine share it. It forks, so it is used before a
//! program has a second thread.

use std::hint::spin_loop;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

/// Pages are scattered over this many bytes.
pub(crate) const AREA: usize = 16 << 20;

/// The sizes of pages, and how often the area is copied in one measurement.
pub(crate) const PAGES: [(usize, usize); 3] = [(4 << 10, 2), (64 << 10, 4), (1 << 20, 4)];

/// The times after which a process that sleeps is woken, in microseconds.
pub(crate) const PAUSES_US: [u64; 3] = [200, 2000, 20_000];

/// Round trips of one measurement, and those before it that only warm up.
pub(crate) const PINGS: u64 = 2000;
pub(crate) const WARM_UP: u64 = 200;

/// Wake-ups of one measurement.
const WAKES: u32 = 3;

/// Runs both alternately: bare, other, other, bare. Returns the results of both, and their ratios.
pub(crate) fn contest(
    rounds: usize,
    mut bare: impl FnMut() -> f64,
    mut other: impl FnMut() -> f64,
) -> [Vec<f64>; 3] {
    let (mut bares, mut others, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    bare();
    other();
    for _ in 0..rounds {
        let (first, second, third, fourth) = (bare(), other(), other(), bare());
        ratios.push(((second * third) / (first * fourth)).sqrt());
        bares.extend([first, fourth]);
        others.extend([second, third]);
    }
    [bares, others, ratios]
}

/// Prints a line of JSON.
pub(crate) fn report(label: &str, field: &str, [bare, other, ratios]: &[Vec<f64>; 3]) {
    println!(
        "{{\"label\":\"{label}\",\"field\":\"{field}\",\"bare\":{bare:?},\"engine\":{other:?},\"ratios\":{ratios:?}}}"
    );
}

/// Returns the places of pages in an order that a prefetcher does not know.
pub(crate) fn scattered(page: usize) -> Vec<usize> {
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

/// Copies pages to these places.
pub(crate) fn copy_pages(target: &mut [u8], source: &[u8], places: &[usize], page: usize) {
    for (index, place) in places.iter().enumerate() {
        target[*place..][..page].copy_from_slice(&source[index * page..][..page]);
    }
    std::hint::black_box(target);
}

/// A cache line that two processes bounce. The other process is stopped between measurements: one
/// that spins would take a core from what is measured in between.
pub(crate) struct Bounce {
    line: &'static AtomicU64,
    value: u64,
    other: Child,
}

impl Bounce {
    pub(crate) fn start() -> Self {
        let [line, ..] = shared_words();
        let other = Child::fork(|| {
            let mut expected = 1;
            loop {
                match line.load(Ordering::Acquire) {
                    u64::MAX => return,
                    value if value == expected => {
                        line.store(value + 1, Ordering::Release);
                        expected = value + 2;
                    }
                    _ => spin_loop(),
                }
            }
        });
        other.stop();
        Self { line, value: 0, other }
    }

    /// Returns the microseconds of a round trip.
    pub(crate) fn measure(&mut self) -> f64 {
        self.other.cont();
        self.bounce(WARM_UP);
        let start = Instant::now();
        self.bounce(PINGS);
        let us = start.elapsed().as_secs_f64() * 1e6 / PINGS as f64;
        self.other.stop();
        us
    }

    fn bounce(&mut self, times: u64) {
        for _ in 0..times {
            self.line.store(self.value + 1, Ordering::Release);
            self.value += 2;
            while self.line.load(Ordering::Acquire) != self.value {
                spin_loop();
            }
        }
    }
}

impl Drop for Bounce {
    fn drop(&mut self) {
        self.line.store(u64::MAX, Ordering::Release);
        self.other.cont();
    }
}

/// A process that sleeps on an eventfd.
pub(crate) struct Sleeper {
    words: [&'static AtomicU64; 3],
    event_fd: OwnedFd,
    _other: Child,
}

impl Sleeper {
    pub(crate) fn start() -> Self {
        let words = shared_words();
        let event_fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let other = Child::fork(|| {
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
        Self { words, event_fd, _other: other }
    }

    /// Returns the microseconds until it runs, after it has slept for this time.
    pub(crate) fn measure(&self, pause: Duration) -> f64 {
        woken_after(|| std::thread::sleep(pause), self.words[0], || self.signal())
    }

    fn signal(&self) {
        rustix::io::write(&self.event_fd, &1_u64.to_ne_bytes()).unwrap();
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.words[1].store(1, Ordering::Release);
        self.signal();
    }
}

/// Returns the mean of the microseconds from `wake` to the time that the other process stores in
/// `word`, with a pause before each.
pub(crate) fn woken_after(mut pause: impl FnMut(), word: &AtomicU64, mut wake: impl FnMut()) -> f64 {
    let mut sum = 0.0;
    for _ in 0..WAKES {
        pause();
        word.store(0, Ordering::Relaxed);
        let start = nanoseconds();
        wake();
        let woken = loop {
            match word.load(Ordering::Acquire) {
                0 => spin_loop(),
                at => break at,
            }
        };
        sum += woken.saturating_sub(start).max(1) as f64 / 1e3;
    }
    sum / f64::from(WAKES)
}

pub(crate) fn sleep_on(fd: &impl AsFd) {
    let _ = poll(&mut [PollFd::new(fd, PollFlags::IN)], None);
}

pub(crate) fn nanoseconds() -> u64 {
    wall_time().as_nanos() as u64
}

pub(crate) fn wall_time() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap()
}

/// The processor time of all threads of this process.
pub(crate) fn processor_time() -> Duration {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

pub(crate) fn clock(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes the time to the local.
    let status = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(status, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Binds this thread, and those that it starts, to a processor. Programs bind themselves to the first
/// one and their children to the second: two processes that wait for each other by spinning, with
/// equal priority and on one processor, take turns of 100 ms.
pub(crate) fn pin(processor: usize) {
    // SAFETY: an empty set is all zeros, and the number is within the set.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        set
    };
    // It fails where there is no such processor.
    // SAFETY: the kernel reads the local, whose size is given.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
}

/// A child process. It is waited for when it is dropped.
pub(crate) struct Child(libc::pid_t);

impl Child {
    /// Runs `work` in a child. It ends with this process.
    pub(crate) fn fork(work: impl FnOnce()) -> Self {
        // SAFETY: this program has one thread so far, so a child may do everything.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: it sets a property of this process. If this program ends early, a child
                // that spins must not remain.
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
                pin(1);
                work();
                // SAFETY: it ends the process.
                unsafe { libc::_exit(0) }
            }
            child => Self(child),
        }
    }

    /// Stops it, and waits until it has stopped.
    pub(crate) fn stop(&self) {
        self.signal(libc::SIGSTOP);
        let mut status = 0;
        // SAFETY: the kernel writes the status to the local.
        unsafe { libc::waitpid(self.0, &raw mut status, libc::WUNTRACED) };
        assert!(libc::WIFSTOPPED(status), "a child has ended: {status:#x}");
    }

    pub(crate) fn cont(&self) {
        self.signal(libc::SIGCONT);
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: it is a child that was not waited for, so the number is its own.
        unsafe { libc::kill(self.0, signal) };
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let mut status = 0;
        // SAFETY: the kernel writes the status to the local.
        unsafe { libc::waitpid(self.0, &raw mut status, 0) };
    }
}

/// Returns words that children share, in different cache lines.
pub(crate) fn shared_words() -> [&'static AtomicU64; 3] {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping overlaps nothing that exists.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), 4096, access, flags, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    // SAFETY: the words are within the page, aligned, never unmapped, and accessed by atomics only.
    [0, 16, 32].map(|index| unsafe { AtomicU64::from_ptr(start.cast::<u64>().add(index)) })
}
