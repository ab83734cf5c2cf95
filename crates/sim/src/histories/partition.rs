//! Control connections that are silent for a while, with both sides alive and their links at work.

use super::party::Connection;
use super::world::{World, tell};

/// A silence between two hosts. Packets wait until it ends, as with TCP.
#[derive(Debug, Clone, Copy)]
pub(super) struct Partition {
    /// Packets of the first host do not reach the second.
    pub(super) hosts: [usize; 2],
    /// Nor the other way round.
    pub(super) is_both_ways: bool,
    pub(super) from: u64,
    pub(super) until: u64,
    /// Whether it is long enough for one to lose the other.
    pub(super) is_long: bool,
}

impl Partition {
    fn cuts(&self, from: usize, to: usize) -> bool {
        let ends = [from, to];
        ends == self.hosts || (self.is_both_ways && ends == [self.hosts[1], self.hosts[0]])
    }

    /// Returns `true` if it is between the two hosts of a connection, in any direction.
    fn is_between(&self, connection: &Connection) -> bool {
        let hosts = [connection.ends[0].host, connection.ends[1].host];
        hosts == self.hosts || hosts == [self.hosts[1], self.hosts[0]]
    }
}

impl World {
    /// Begins a silence between two hosts that nothing else has disturbed lately.
    pub(super) fn part(&mut self, hosts: [usize; 2], is_long: bool) {
        let (now, silence, forgiven) = (self.now, self.scenario.tuning.silence, self.scenario.forgiven_ns());
        let for_ns = match is_long {
            true => silence + self.chance.below(2 * silence),
            false => 1 + self.chance.below(forgiven),
        };
        let is_both_ways = self.chance.once_in(2);
        tell!(self, "part: first, second, both ways, for ns", hosts[0], hosts[1], is_both_ways, for_ns);
        let until = now + for_ns;
        self.partitions.push(Partition { hosts, is_both_ways, from: now, until, is_long });
        for host in hosts {
            let there = &mut self.hosts[host];
            there.disturbed_until = there.disturbed_until.max(until);
        }
    }

    /// Returns the time until which packets of one host do not reach another.
    pub(super) fn cut_until(&self, from: usize, to: usize) -> Option<u64> {
        let cuts = self.partitions.iter().filter(|it| it.until > self.now && it.cuts(from, to));
        cuts.map(|it| it.until).max()
    }

    /// Returns the beginning of the silence that an end of a connection hears.
    pub(super) fn cut_since(&self, connection: &Connection, end: usize) -> Option<u64> {
        let (from, to) = (connection.ends[1 - end].host, connection.ends[end].host);
        let cuts = self.partitions.iter().filter(|it| it.until > self.now && it.cuts(from, to));
        cuts.map(|it| it.from).min()
    }

    /// Returns `true` if a silence since this time was long enough for one to lose the other.
    pub(super) fn was_parted(&self, connection: &Connection, since: u64) -> bool {
        self.partitions.iter().any(|it| it.is_long && it.until >= since && it.is_between(connection))
    }
}
