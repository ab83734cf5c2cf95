//! Operations on several ranges of a peer's memory.

use farreach_fabric_sys as sys;

use super::Open;
use crate::{Refusal, RemoteParts, RemoteRegion};

impl Open {
    pub(super) fn check_parts(&self, parts: &RemoteParts, len: usize) -> Result<(), Refusal> {
        let (count, max) = (parts.count(), self.limits.remote_parts_max);
        if count > max {
            return Err(Refusal::TooManyParts { count, max });
        }
        if len as u64 > parts.len() {
            return Err(Refusal::OutOfBounds { len, remote_len: parts.len() });
        }
        self.check_remote(parts.region(), 0)
    }
}

#[inline(always)]
pub(super) fn rma_iov(remote: RemoteRegion, len: usize) -> sys::fi_rma_iov {
    sys::fi_rma_iov { addr: remote.address(), len, key: remote.key() }
}

/// The ranges, as C structures.
pub(super) struct Ranges {
    ranges: [sys::fi_rma_iov; RemoteParts::MAX],
    count: usize,
}

impl Ranges {
    /// Returns as many of the parts as there are bytes for; at least one, because an operation
    /// without bytes must name something.
    pub(super) fn of(parts: &RemoteParts, len: usize) -> Self {
        let mut ranges = [rma_iov(parts.region(), 0); RemoteParts::MAX];
        let (mut count, mut left) = (0, len as u64);
        for part in parts.iter() {
            let taken = left.min(part.len());
            if taken == 0 {
                break;
            }
            ranges[count] = rma_iov(part, taken as usize);
            (count, left) = (count + 1, left - taken);
        }
        Self { ranges, count: count.max(1) }
    }

    pub(super) fn as_slice(&self) -> &[sys::fi_rma_iov] {
        &self.ranges[..self.count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_ranges_are_named_as_there_are_bytes_for() {
        let mut parts = RemoteParts::new(RemoteRegion::new(1000, 100, 7));
        assert!(parts.push(50, 10) && parts.push(0, 20) && parts.push(90, 10));
        for (len, expected) in [
            (40, vec![(1050, 10), (1000, 20), (1090, 10)]),
            (31, vec![(1050, 10), (1000, 20), (1090, 1)]),
            (30, vec![(1050, 10), (1000, 20)]),
            (10, vec![(1050, 10)]),
            (0, vec![(1000, 0)]),
        ] {
            let Ranges { ranges, count } = Ranges::of(&parts, len);
            let named: Vec<_> = ranges[..count].iter().map(|range| (range.addr, range.len)).collect();
            assert_eq!(named, expected, "{len} bytes");
            assert!(ranges[..count].iter().all(|range| range.key == 7));
        }
    }
}
