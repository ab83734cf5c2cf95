//! Points in time, as the caller of a [machine](crate::machine) measures them.

use std::fmt;
use std::ops::Add;

/// A point in time: nanoseconds since the clock of a machine began. The machine never reads a clock, so
/// only its caller knows what moment that was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub(crate) u64);

impl Time {
    /// The beginning of the clock.
    pub const ZERO: Self = Self(0);

    /// Later than everything that happens: the deadline of what may take any time.
    pub const NEVER: Self = Self(u64::MAX);

    /// The last point before [`NEVER`](Self::NEVER): a deadline this late is one all the same.
    pub const LAST: Self = Self(u64::MAX - 1);

    /// Returns the point that is this many nanoseconds after the beginning of the clock.
    #[inline]
    pub const fn from_nanos(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// Returns the nanoseconds since the beginning of the clock.
    #[inline]
    pub const fn to_nanos(self) -> u64 {
        self.0
    }

    /// Returns the point that is this many nanoseconds later, or [`NEVER`](Self::NEVER) if there is none.
    #[inline]
    pub const fn saturating_add(self, nanoseconds: u64) -> Self {
        Self(self.0.saturating_add(nanoseconds))
    }

    /// Returns the nanoseconds since an earlier point, or 0 if that is later.
    #[inline]
    pub const fn saturating_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Adds nanoseconds. A clock does not run for as long as would overflow; for a duration that somebody else
/// chooses, there is [`saturating_add`](Time::saturating_add).
impl Add<u64> for Time {
    type Output = Self;

    #[inline]
    fn add(self, nanoseconds: u64) -> Self {
        Self(self.0 + nanoseconds)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ns", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_comes_after_every_time() {
        assert_eq!(Time::from_nanos(7).saturating_add(u64::MAX), Time::NEVER);
        assert_eq!(Time::NEVER.saturating_add(1), Time::NEVER);
        assert_eq!(Time::from_nanos(7).saturating_since(Time::from_nanos(5)), 2);
        assert_eq!(Time::from_nanos(5).saturating_since(Time::from_nanos(7)), 0);
    }
}
