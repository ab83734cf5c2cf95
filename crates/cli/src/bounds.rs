//! The bounds of the numbers in an order.
//!
//! A client chooses every number of its order, and may be hostile. The server compares each of them
//! with its bound when it has received the order, before anything is allocated and before an agent
//! is started (`Order::check`). The steps of a bench, which come later, are checked by its agent in
//! the same way. Invariant: no number of a client is used in arithmetic or for an allocation before
//! it was checked here.

use crate::exit::{Exit, Failure};
use crate::units;

/// The range of one number of an order.
#[derive(Debug)]
pub(crate) struct Bound {
    /// What the number is, for the error.
    what: &'static str,
    min: u64,
    max: u64,
    /// Why there is no more.
    why: &'static str,
}

impl Bound {
    /// Returns the smallest value.
    pub(crate) const fn min(&self) -> u64 {
        self.min
    }

    /// Returns the largest value.
    pub(crate) const fn max(&self) -> u64 {
        self.max
    }

    /// Returns an error that names the bound, unless the value is in its range.
    pub(crate) fn check(&self, asked: impl TryInto<u64>) -> Result<(), Failure> {
        // A number that 64 bits do not hold is beyond every bound.
        let asked = asked.try_into().unwrap_or(u64::MAX);
        let Self { what, min, max, why } = *self;
        if (min..=max).contains(&asked) {
            return Ok(());
        }
        Err(Failure::new(Exit::Usage, format!("the order has a {what} of {asked}"))
            .cause(format!("the {what} is {min} to {max}: {why}"))
            .fix("use a value in this range"))
    }
}

/// Operations in flight. The engine and the cards have a place for each of them. Cards have some
/// thousand at most.
pub(crate) const DEPTH: Bound =
    Bound { what: "depth", min: 1, max: 4096, why: "each operation in flight takes a place in the queues" };

/// Message slots on each side: more than a test that waits for answers has in flight.
pub(crate) const MESSAGES: Bound = Bound {
    what: "number of message slots",
    min: 1,
    max: 256,
    why: "the engine holds this many messages in memory",
};

/// The longest message. Each side has memory for all its message slots, and the engine holds a
/// whole message until it is received.
pub(crate) const MESSAGE_BYTES: Bound = Bound {
    what: "message size in bytes",
    min: 1,
    max: 1 << 20,
    why: "the engine and each rail have some hundred buffers of this size",
};

/// Connections of one test, each with an agent of its own.
pub(crate) const CONNECTIONS: Bound =
    Bound { what: "number of connections", min: 1, max: 256, why: "each has a process of its own" };

/// Kinds of rails that an order names. libfabric has some twenty providers.
pub(crate) const RAIL_KINDS: Bound = Bound {
    what: "number of rail kinds",
    min: 0,
    max: 64,
    why: "each name is compared with each rail of the server",
};

/// Names of hosts, versions, rails and cards. The kernel limits those of hosts and devices to 64
/// bytes.
pub(crate) const NAME_BYTES: Bound =
    Bound { what: "name length in bytes", min: 0, max: 255, why: "names are logged" };

/// The service level of packets has four bits.
pub(crate) const SERVICE_LEVEL: Bound =
    Bound { what: "service level", min: 0, max: 15, why: "it has four bits" };

/// Sizes of a ping.
pub(crate) const SIZES: Bound =
    Bound { what: "number of sizes", min: 1, max: 256, why: "each size is a measurement of its own" };

/// A message of a ping, or the memory of `chip`: 1 GiB.
pub(crate) const SIZE_BYTES: Bound =
    Bound { what: "size in bytes", min: 1, max: 1 << 30, why: "both sides allocate memory for each size" };

/// The memory of `chip` holds its message, the lock and the counter.
pub(crate) const CHIP_BYTES: Bound = Bound {
    what: "memory size in bytes",
    min: 4096,
    max: 1 << 30,
    why: "it holds a message of 4096 bytes, and the server has a copy",
};

/// Queue pairs of `chip`. Their addresses have to fit one message.
pub(crate) const CHIP_CLIENTS: Bound =
    Bound { what: "number of lock clients", min: 1, max: 128, why: "each has a queue pair on the server" };

/// Pages in a region. The number of a place has 32 bits, and a region has a quarter more places than
/// pages.
pub(crate) const PAGES: Bound =
    Bound { what: "number of pages", min: 1, max: 1 << 28, why: "place numbers have 32 bits" };

/// Regions of a fill. Their grants have to fit one message.
pub(crate) const REGIONS: Bound =
    Bound { what: "number of regions", min: 1, max: 64, why: "all grants are sent in one message" };

/// A page of a fill, and a message of blast or bench. The memory of all of them is limited
/// separately.
pub(crate) const TRANSFER_BYTES: Bound =
    Bound { what: "transfer size in bytes", min: 1, max: 1 << 40, why: "no host has more memory to spare" };

/// Inline bytes of a work request. No known card has more than 1 KiB.
pub(crate) const INLINE_BYTES: Bound = Bound {
    what: "number of inline bytes",
    min: 0,
    max: 1 << 16,
    why: "each place in the send queue has room for them",
};

/// Work requests that one call posts.
pub(crate) const POST_LIST: Bound =
    Bound { what: "post list length", min: 1, max: 64, why: "the client keeps a list of this length" };

/// Steps of a trial between two cards. The client makes one connection for each of five packet
/// sizes.
pub(crate) const TRIAL_STEPS: Bound =
    Bound { what: "number of trial steps", min: 0, max: 64, why: "each step makes a queue pair" };

/// Returns an error if an order needs more memory than a client may have.
pub(crate) fn check_memory(needed: u64, max: u64) -> Result<(), Failure> {
    if needed <= max {
        return Ok(());
    }
    Err(Failure::new(
        Exit::Unavailable,
        format!("the order needs {} of the server's memory", units::amount(needed)),
    )
    .cause(format!("the server allows one client {}", units::amount(max)))
    .fix("use fewer, smaller or less deep transfers, or start the server with a larger --memory-max"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_allowed_and_one_past_it_is_not() {
        for bound in [
            DEPTH,
            MESSAGES,
            MESSAGE_BYTES,
            CONNECTIONS,
            RAIL_KINDS,
            NAME_BYTES,
            SERVICE_LEVEL,
            SIZES,
            SIZE_BYTES,
            CHIP_BYTES,
            CHIP_CLIENTS,
            PAGES,
            REGIONS,
            TRANSFER_BYTES,
            INLINE_BYTES,
            POST_LIST,
            TRIAL_STEPS,
        ] {
            bound.check(bound.min).expect("the minimum");
            bound.check(bound.max).expect("the maximum");
            for asked in [bound.max + 1, 1 << 62, u64::MAX] {
                let failure = bound.check(asked).expect_err("more than the maximum");
                assert!(failure.error.contains(bound.what) && failure.error.contains(&asked.to_string()));
                assert!(failure.cause.is_some_and(|cause| cause.contains(&bound.max.to_string())));
                assert_eq!(failure.exit, Exit::Usage);
            }
            if bound.min > 0 {
                bound.check(bound.min - 1).expect_err("less than the minimum");
            }
        }
        DEPTH.check(u128::MAX).expect_err("more than 64 bits hold");
    }

    #[test]
    fn memory_has_a_limit_of_its_own() {
        check_memory(1 << 30, 1 << 30).expect("the limit");
        let failure = check_memory((1 << 30) + 1, 1 << 30).expect_err("one past it");
        assert_eq!(failure.exit, Exit::Unavailable);
        assert!(failure.fix.is_some_and(|fix| fix.contains("--memory-max")));
    }
}
