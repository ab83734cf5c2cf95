//! Priorities of transfers, and what each may keep in flight.

use crate::plan::Limits;
use crate::rail::Scope;

/// The priority of a transfer: which one is posted first, and how much of it may be in flight.
///
/// ```
/// use farreach_proto::priority::Priority;
///
/// assert!(Priority::Urgent < Priority::Bulk, "in the order in which they are posted");
/// assert_eq!(Priority::default(), Priority::Normal);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Priority {
    /// Small transfers that somebody waits for. They are posted before all others.
    Urgent,
    /// Transfers that say nothing.
    #[default]
    Normal,
    /// Large transfers that nobody waits for. They are posted last, and keep little in flight, so that
    /// others do not wait behind them.
    Bulk,
}

impl Priority {
    /// All priorities, in the order in which they are posted.
    pub const ALL: [Self; 3] = [Self::Urgent, Self::Normal, Self::Bulk];
}

/// How much of one priority may be in flight over one link.
///
/// What a link has in flight cannot be overtaken, so this is what an urgent transfer may have to wait
/// for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    /// An operation is posted while fewer bytes than these are in flight.
    pub(crate) bytes: u64,
    /// The maximum length of an operation, if nothing can overtake a part of it.
    pub(crate) operation: u64,
    /// Whether that is so over links without an order of posting, too. Elsewhere a short operation can
    /// overtake a long one there.
    is_for_all: bool,
    /// Whether it leaves a quarter of the operations that the link may have in flight to others.
    leaves_room: bool,
    /// Whether `bytes` are those of `Normal` and `Bulk` together, and not those of one priority.
    pub(crate) is_joint: bool,
}

/// Alone: more than any network holds (400 Gb/s for 0.6 ms), so nothing is lost. It is also what the
/// default depth has in flight of joined pages, which have 256 KiB each.
static NORMAL: Share =
    Share { bytes: 32 << 20, operation: 4 << 20, leaves_room: false, is_joint: false, is_for_all: false };

/// While nothing is urgent: what 100 Gb/s hold for 160 µs.
static BULK: Share =
    Share { bytes: 2 << 20, operation: 256 << 10, leaves_room: true, is_joint: false, is_for_all: false };

/// While something is urgent: what a connection over tcp within a host moves in 50 µs, or 100 Gb/s in 5 µs.
/// 256 KiB would move no faster within a host, and urgent reads of 4 KiB took six times as long as alone
/// there, instead of three times.
static BESIDE_URGENT: Share =
    Share { bytes: 64 << 10, operation: 32 << 10, leaves_room: true, is_joint: true, is_for_all: false };

/// The same within the host, where operations are copies of this process: it does nothing else during one,
/// some 4 µs. A copy needs no other one in flight to be as fast as it can.
static BESIDE_URGENT_HERE: Share =
    Share { bytes: 16 << 10, operation: 16 << 10, leaves_room: true, is_joint: true, is_for_all: true };

static UNLIMITED: Share =
    Share { bytes: u64::MAX, operation: u64::MAX, leaves_room: false, is_joint: false, is_for_all: false };

impl Share {
    /// Returns the share of a priority over links of this scope. `is_urgent_lately`: there are or were urgent
    /// transfers.
    #[inline]
    pub(crate) fn of(priority: Priority, scope: Scope, is_urgent_lately: bool) -> &'static Self {
        match (priority, is_urgent_lately) {
            // Nothing waits behind it that goes first.
            (Priority::Urgent, _) => &UNLIMITED,
            (_, true) if scope == Scope::Host => &BESIDE_URGENT_HERE,
            (_, true) => &BESIDE_URGENT,
            (Priority::Normal, false) => &NORMAL,
            (Priority::Bulk, false) => &BULK,
        }
    }

    /// Returns whether an operation may be posted on a link with so many bytes in flight, that may have
    /// `free` more operations of `window` in flight.
    #[inline]
    pub(crate) fn has_room(&self, bytes: u64, free: u32, window: u32) -> bool {
        // The last operation may exceed the share, or one longer than it would never be posted.
        bytes < self.bytes && free > if self.leaves_room { window / 4 } else { 0 }
    }

    /// Limits the length of an operation.
    #[inline]
    pub(crate) fn limit(&self, limits: &mut Limits) {
        if limits.is_ordered || self.is_for_all {
            limits.bytes = limits.bytes.min(self.operation);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgent_ones_have_no_limit_and_others_have_less_beside_them() {
        for scope in [Scope::Host, Scope::Network] {
            let most = |priority, lately| Share::of(priority, scope, lately).bytes;
            for lately in [false, true] {
                assert!(most(Priority::Urgent, lately) > most(Priority::Normal, lately));
                assert!(most(Priority::Normal, lately) >= most(Priority::Bulk, lately));
            }
            for priority in [Priority::Normal, Priority::Bulk] {
                assert!(most(priority, true) < most(priority, false));
            }
        }
    }

    #[test]
    fn bulk_leaves_operations_of_the_window_to_others_but_needs_only_one() {
        let bulk = Share::of(Priority::Bulk, Scope::Network, false);
        assert!(bulk.has_room(0, 33, 128) && !bulk.has_room(0, 32, 128));
        assert!(!bulk.has_room(bulk.bytes, 128, 128));
        for window in 1..9 {
            assert!(bulk.has_room(0, window, window), "it would never move");
        }
        assert!(Share::of(Priority::Normal, Scope::Network, false).has_room(0, 1, 128));
    }

    #[test]
    fn operations_are_short_where_nothing_can_overtake_them() {
        let limits = |is_ordered| Limits { bytes: 1 << 30, pieces: 1, targets: 1, pages: 1, is_ordered };
        for (scope, there) in [(Scope::Network, 1 << 30), (Scope::Host, 16 << 10)] {
            let (mut ordered, mut unordered) = (limits(true), limits(false));
            let share = Share::of(Priority::Bulk, scope, true);
            share.limit(&mut ordered);
            share.limit(&mut unordered);
            assert_eq!((ordered.bytes, unordered.bytes), (share.operation, there));
        }
    }
}
