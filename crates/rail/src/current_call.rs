//! The call of a rail that the carrier is in, so that another thread can tell which one does not
//! return.
//!
//! A rail's call runs in its library, on the thread that drives the engine. No thread can end such a
//! call. Other threads can read here that it has not returned, and for how long.

use farreach_proto::time::Time;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A function of the trait [`Rail`](crate::Rail) that may call the rail's library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RailCall {
    /// `Rail::open_link`
    OpenLink = 1,
    /// `Rail::connect`
    Connect,
    /// `Rail::close_link`
    CloseLink,
    /// `Rail::reset`
    Reset,
    /// `Rail::register`
    Register,
    /// `Rail::make_key`
    MakeKey,
    /// `Rail::bind_key`
    BindKey,
    /// `Rail::end_key`
    EndKey,
    /// `Rail::prove_key`
    ProveKey,
    /// `Rail::post`
    Post,
    /// `Rail::poll`
    Poll,
    /// `Rail::may_sleep`
    MaySleep,
}

impl RailCall {
    const ALL: [Self; 12] = [
        Self::OpenLink,
        Self::Connect,
        Self::CloseLink,
        Self::Reset,
        Self::Register,
        Self::MakeKey,
        Self::BindKey,
        Self::EndKey,
        Self::ProveKey,
        Self::Post,
        Self::Poll,
        Self::MaySleep,
    ];

    /// Returns its name, such as `Rail::poll`.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenLink => "Rail::open_link",
            Self::Connect => "Rail::connect",
            Self::CloseLink => "Rail::close_link",
            Self::Reset => "Rail::reset",
            Self::Register => "Rail::register",
            Self::MakeKey => "Rail::make_key",
            Self::BindKey => "Rail::bind_key",
            Self::EndKey => "Rail::end_key",
            Self::ProveKey => "Rail::prove_key",
            Self::Post => "Rail::post",
            Self::Poll => "Rail::poll",
            Self::MaySleep => "Rail::may_sleep",
        }
    }
}

/// The call that a carrier is in, if it is in one. Any thread reads it without a lock.
#[derive(Debug)]
pub struct CurrentCall {
    start: Instant,
    /// The names of the rails.
    rails: Vec<String>,
    /// 0 outside of calls. Otherwise the time at which the call began, in nanoseconds since
    /// `start`, whose lowest 20 bits are replaced: 12 bits with the number of the rail, 8 with the
    /// [`RailCall`].
    stamp: AtomicU64,
}

/// The bits of a stamp that are not time: the time has a resolution of a millisecond.
const NOT_TIME: u64 = (1 << 20) - 1;

/// A call that has not returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallInProgress {
    /// The call.
    pub call: RailCall,
    /// The name of the rail.
    pub rail: String,
    /// For how long it has been running, with a resolution of a millisecond.
    pub elapsed: Duration,
    /// Equal for two reads if both found the same call.
    pub stamp: u64,
}

impl CurrentCall {
    /// Returns the call that the carrier is in.
    ///
    /// A post or a poll counts from the beginning of the step that made it.
    pub fn get(&self) -> Option<CallInProgress> {
        // Relaxed: the stamp is one value, and says nothing about other memory.
        let stamp = self.stamp.load(Ordering::Relaxed);
        // Outside of calls the stamp is 0, which is no call.
        let call = *RailCall::ALL.iter().find(|call| **call as u64 == stamp & 0xFF)?;
        let rail = ((stamp & NOT_TIME) >> 8) as usize;
        // Rounded down to a multiple of 2^20 ns, because the low bits name the rail and the call.
        let began = Duration::from_nanos(stamp & !NOT_TIME);
        Some(CallInProgress {
            call,
            rail: self.rails.get(rail).cloned().unwrap_or_default(),
            // The driver's clock, which the time of a step is from, begins a moment after this one.
            elapsed: self.start.elapsed().saturating_sub(began),
            stamp,
        })
    }
}

/// Stamps the calls of a carrier.
#[derive(Debug)]
pub(crate) struct CallStamps {
    current: Arc<CurrentCall>,
    /// The current time, as a stamp has it. It is as old as the step, so that a post or a poll reads
    /// no clock.
    time: u64,
}

impl CallStamps {
    pub(crate) fn new(rails: Vec<String>) -> Self {
        let (start, stamp) = (Instant::now(), AtomicU64::new(0));
        Self { current: Arc::new(CurrentCall { start, rails, stamp }), time: 0 }
    }

    pub(crate) fn current(&self) -> Arc<CurrentCall> {
        Arc::clone(&self.current)
    }

    /// Sets the current time in nanoseconds since about the creation.
    #[inline]
    pub(crate) fn set_time(&mut self, now: Time) {
        self.time = now.to_nanos() & !NOT_TIME;
    }

    /// Notes that a short call begins.
    #[inline]
    pub(crate) fn begin(&self, rail: usize, call: RailCall) {
        // Bits of the rail's number that do not fit are cut off, because they would change the
        // time.
        let stamp = self.time | (((rail as u64) << 8) & NOT_TIME) | call as u64;
        self.current.stamp.store(stamp, Ordering::Relaxed);
    }

    /// Notes that the call has returned.
    #[inline]
    pub(crate) fn end(&self) {
        self.current.stamp.store(0, Ordering::Relaxed);
    }

    /// Runs a call that may take longer than a step should: it reads the clock before and after it.
    pub(crate) fn timed<R>(&mut self, rail: usize, call: RailCall, run: impl FnOnce() -> R) -> R {
        self.read_clock();
        self.begin(rail, call);
        let result = run();
        self.end();
        // Calls that follow in the same step must not count from before this one.
        self.read_clock();
        result
    }

    fn read_clock(&mut self) {
        self.set_time(Time::from_nanos(self.current.start.elapsed().as_nanos() as u64));
    }
}

/// A call that panics does not return, and no other one follows.
impl Drop for CallStamps {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamps() -> CallStamps {
        CallStamps::new(vec!["mlx5_0".to_owned(), "tcp".to_owned()])
    }

    #[test]
    fn another_thread_reads_the_call_its_rail_and_its_time() {
        let mut stamps = stamps();
        let current = stamps.current();
        assert_eq!(current.get(), None);
        let read = stamps.timed(1, RailCall::Reset, || {
            std::thread::sleep(Duration::from_millis(30));
            std::thread::scope(|scope| scope.spawn(|| current.get()).join().unwrap()).unwrap()
        });
        assert_eq!((read.call, read.rail.as_str()), (RailCall::Reset, "tcp"));
        assert!((29..10_000).contains(&read.elapsed.as_millis()), "{read:?}");
        assert_eq!(current.get(), None, "it has returned");
    }

    #[test]
    fn each_call_has_a_stamp_of_its_own_and_its_name() {
        let stamps = stamps();
        for call in RailCall::ALL {
            stamps.begin(0, call);
            let read = stamps.current().get().unwrap();
            assert_eq!((read.call, read.rail.as_str()), (call, "mlx5_0"));
            assert!(read.call.name().starts_with("Rail::"));
        }
    }

    #[test]
    fn a_short_call_counts_from_its_step_and_not_from_a_slow_call_before() {
        let mut stamps = stamps();
        stamps.timed(0, RailCall::Register, || std::thread::sleep(Duration::from_millis(50)));
        stamps.begin(0, RailCall::Poll);
        let read = stamps.current().get().unwrap();
        assert!(read.elapsed < Duration::from_millis(50), "{read:?}");
        stamps.set_time(Time::ZERO);
        stamps.begin(0, RailCall::Poll);
        let older = stamps.current().get().unwrap();
        assert!(older.elapsed >= Duration::from_millis(50) && older.stamp != read.stamp, "{older:?}");
    }
}
