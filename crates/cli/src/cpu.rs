//! Pins the two sides of a test to CPUs.

use std::fmt;
use std::str::FromStr;

use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};

use crate::exit::{Exit, Failure};

/// The CPUs of each side, as typed: `2`, `2,4`, `,4` or `2-3,4-5`. A side without CPUs runs
/// anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cpus {
    pub(crate) client: Option<CpuRange>,
    pub(crate) server: Option<CpuRange>,
}

/// One CPU, or a range of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CpuRange {
    first: usize,
    last: usize,
}

impl CpuRange {
    /// Pins this thread, and the threads that it starts from now on. To be called before an engine
    /// starts its threads.
    pub(crate) fn pin(self) -> Result<(), Failure> {
        let refused = |cause: String| {
            Failure::new(Exit::Unavailable, format!("cannot run on CPU {self}"))
                .cause(cause)
                .fix("choose one of the CPUs that this command lists:\ntaskset -cp $$")
        };
        // The peer may send any numbers.
        if self.first > self.last || self.last >= CpuSet::MAX_CPU {
            return Err(refused(format!("CPUs are numbered 0 to {}", CpuSet::MAX_CPU - 1)));
        }
        let mut set = CpuSet::new();
        (self.first..=self.last).for_each(|cpu| set.set(cpu));
        sched_setaffinity(None, &set).map_err(|error| {
            refused(format!(
                "sched_setaffinity(2): {error}: this host has no such CPU, or the process may not use it"
            ))
        })
    }
}

impl fmt::Display for CpuRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { first, last } if first == last => write!(f, "{first}"),
            Self { first, last } => write!(f, "{first}-{last}"),
        }
    }
}

impl FromStr for CpuRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| match text.trim().parse::<usize>() {
            Ok(number) if number < CpuSet::MAX_CPU => Ok(number),
            _ => Err(format!(
                "{text:?} is not a CPU: use 2, 2,4 or 2-3,4-5, with numbers below {}",
                CpuSet::MAX_CPU
            )),
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (number(first)?, number(last)?) {
            (first, last) if first > last => {
                Err(format!("{first} is greater than {last}: put the smaller number first"))
            }
            (first, last) => Ok(Self { first, last }),
        }
    }
}

impl FromStr for Cpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let side = |text: &str| if text.is_empty() { Ok(None) } else { text.parse().map(Some) };
        let (client, server) = text.split_once(',').unwrap_or((text, ""));
        match (side(client)?, side(server)?) {
            (None, None) => Err("no CPU is given: use 2, or 2,4 for client and server".to_owned()),
            (client, server) => Ok(Self { client, server }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rustix::thread::sched_getaffinity;

    use super::*;

    #[test]
    fn each_side_may_have_one_or_several() {
        let range = |first, last| Some(CpuRange { first, last });
        for (text, client, server) in [
            ("2", range(2, 2), None),
            ("2,4", range(2, 2), range(4, 4)),
            (",4", None, range(4, 4)),
            ("2-3,4-5", range(2, 3), range(4, 5)),
        ] {
            assert_eq!(text.parse(), Ok(Cpus { client, server }), "{text}");
        }
        for (text, told) in [
            ("", "no CPU is given"),
            ("x", "is not a CPU"),
            ("3-2", "smaller number first"),
            ("1,2,3", "is not a CPU"),
        ] {
            let error = text.parse::<Cpus>().expect_err(text);
            assert!(error.contains(told), "{text}: {error}");
        }
    }

    #[test]
    fn a_thread_runs_where_it_is_pinned_and_nowhere_else() {
        let pinned = thread::spawn(|| {
            let allowed = sched_getaffinity(None).expect("every thread has some");
            let last = (0..CpuSet::MAX_CPU).rfind(|cpu| allowed.is_set(*cpu)).expect("one at least");
            CpuRange { first: last, last }.pin().expect("it may run there");
            (last, sched_getaffinity(None).expect("every thread has some"))
        });
        let (cpu, set) = pinned.join().expect("it does not panic");
        assert!(set.is_set(cpu) && set.count() == 1, "{set:?}");
        for none in [CpuRange { first: 1023, last: 1023 }, CpuRange { first: 0, last: usize::MAX }] {
            let refused = thread::spawn(move || none.pin())
                .join()
                .expect("it does not panic")
                .expect_err("no host has it");
            assert_eq!(refused.exit, Exit::Unavailable, "{refused:?}");
        }
    }
}
