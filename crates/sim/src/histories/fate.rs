//! Hosts start, stop and end.

use farreach_memory::Memory;
use farreach_proto::machine::Machine;
use farreach_proto::wire::Hello;
use farreach_rail::{Carrier, Rail};

use super::party::Host;
use super::scenario::Fault;
use super::thing::Hold;
use super::world::{What, World, broken, tell};
use crate::SimRail;

/// The bytes of one piece of a user's memory, and the number of pieces.
pub(super) const PIECE: usize = 2048;
const PIECES: usize = 40;

/// The maximum number of attempts to start an engine on cards that fail at random.
const STARTS_MAX: usize = 1000;

impl World {
    /// Starts or restarts a host.
    pub(super) fn start(&mut self, host: usize) {
        let life = self.hosts[host].life + 1;
        let mut started = None;
        for _ in 0..STARTS_MAX {
            started = self.try_start(host, life);
            if started.is_some() {
                break;
            }
        }
        let Some(there) = started else { broken!(self, "host {host} cannot be started") };
        self.homes.extend(there.cards.iter().map(|card| (*card, (host, life))));
        let disturbed_until = self.hosts[host].disturbed_until;
        self.hosts[host] = Host { step_at: u64::MAX, disturbed_until, ..there };
        if self.is_liar(host)
            && let (Some(liar), Some(carrier)) = (&mut self.liar, &mut self.hosts[host].carrier)
        {
            liar.start(carrier);
        }
        tell!(self, "start: host, life", host, life);
        let at = self.now;
        self.step_by(host, at);
    }

    fn try_start(&mut self, host: usize, life: u64) -> Option<Host> {
        let cards = self.scenario.hosts[host].clone().into_iter();
        let rails: Vec<SimRail> = cards.map(|card| SimRail::new(&self.network, host as u32, card)).collect();
        let cards = rails.iter().map(SimRail::id).collect();
        let rails = rails.into_iter().map(|rail| Box::new(rail) as Box<dyn Rail>);
        let hello = Hello::new(incarnation(host, life));
        let tuning = self.scenario.tuning.clone();
        let mut carrier = Carrier::new(rails.collect(), tuning.message_max).ok()?;
        let mut seed = [host as u8; 32];
        seed[..8].copy_from_slice(&life.to_le_bytes());
        let machine = Machine::new(carrier.infos(), hello, tuning, seed);
        let mut rest = Memory::allocate(PIECE * PIECES).ok()?;
        carrier.register(rest.memory()).ok()?;
        let mut free: Vec<_> = (1..PIECES).map(|_| rest.split_to(PIECE)).collect();
        free.push(rest);
        Some(Host { machine: Some(machine), carrier: Some(carrier), life, cards, free, ..Host::default() })
    }

    /// Applies a fault to a host, if there is one to which it can be applied.
    pub(super) fn strike(&mut self, fault: Fault) {
        let now = self.now;
        let forgiven = self.scenario.forgiven_ns();
        // Stops in close succession add up.
        let is_fit =
            |host: &Host| host.is_alive() && now >= host.disturbed_until + self.scenario.tuning.silence;
        let fit: Vec<usize> = (0..self.hosts.len()).filter(|host| is_fit(&self.hosts[*host])).collect();
        let Some(host) = self.chance.one_of(&fit) else { return };
        let others: Vec<usize> = fit.into_iter().filter(|other| *other != host).collect();
        self.count(fault.name(), 1);
        let silence = self.scenario.tuning.silence;
        match fault {
            Fault::StopShortly => {
                let for_ns = 1 + self.chance.below(forgiven);
                self.stop(host, for_ns);
            }
            Fault::StopLong => {
                let for_ns = silence + self.chance.below(2 * silence);
                self.stop(host, for_ns);
                self.hosts[host].stopped_long_until = now + for_ns;
            }
            Fault::Kill => self.kill(host, true),
            Fault::Crash => self.kill(host, false),
            Fault::Hang => {
                let for_ns = silence + self.chance.below(2 * silence);
                let life = self.hosts[host].life;
                // It does nothing more by itself.
                self.stop(host, for_ns + silence);
                self.hosts[host].stopped_long_until = now + for_ns;
                self.schedule(now + for_ns, What::KillHung { host, life });
            }
            Fault::PartShortly | Fault::PartLong => {
                if let Some(other) = self.chance.one_of(&others) {
                    self.part([host, other], fault == Fault::PartLong);
                }
            }
        }
    }

    pub(super) fn kill_hung(&mut self, host: usize, life: u64) {
        if self.hosts[host].life == life && self.hosts[host].is_alive() {
            let is_told = self.chance.once_in(2);
            self.kill(host, is_told);
        }
    }

    fn stop(&mut self, host: usize, for_ns: u64) {
        tell!(self, "stop: host, for ns", host, for_ns);
        let there = &mut self.hosts[host];
        (there.stopped_at, there.stopped_until) = (self.now, self.now + for_ns);
        there.disturbed_until = there.disturbed_until.max(there.stopped_until);
        self.network.stop_host(host as u32, for_ns);
        self.hosts[host].step_at = u64::MAX;
        let at = self.now + for_ns + 1;
        self.step_by(host, at);
    }

    /// Kills an engine at once, with everything that its user has.
    pub(super) fn kill(&mut self, host: usize, is_told: bool) {
        self.kill_for_good(host, is_told);
        let at = self.now + self.chance.within(100_000..=3 * self.scenario.tuning.silence);
        self.schedule(at, What::Restart { host });
    }

    /// As [`kill`](Self::kill), without another life.
    pub(super) fn kill_for_good(&mut self, host: usize, is_told: bool) {
        tell!(self, "kill: host, told", host, is_told);
        self.network.kill_host(host as u32);
        for (connection, end) in self.ends_of(host) {
            self.connections[connection].ends[end].killed_at = Some(self.now);
            match is_told {
                true => self.close(connection, end),
                false => self.connections[connection].ends[end].is_open = false,
            }
        }
        self.transfers.retain(|transfer| transfer.host != host);
        self.changes.retain(|change| change.host != host);
        self.sources.iter_mut().filter(|source| source.host == host).for_each(|source| source.shared = None);
        self.kept.retain(|(of, ..)| *of != host);
        self.unproven.retain(|(of, _)| *of != host);
        for grant in self.grants.iter_mut().filter(|grant| grant.host == host) {
            (grant.hold, grant.rest) = (Hold::Over, None);
        }
        self.kill_published(host);
        self.kill_shared(host);
        self.kill_flushes(host);
        self.counts.iter_mut().filter(|count| count.host == host).for_each(|count| count.is_closed = true);
        let life = self.hosts[host].life;
        let disturbed_until = self.hosts[host].disturbed_until;
        self.hosts[host] = Host { life, disturbed_until, ..Host::default() };
        if self.is_liar(host)
            && let Some(liar) = &mut self.liar
        {
            (liar.source, liar.sink) = (None, None);
        }
    }

    /// Returns all connections of a host's life, including those that it does not know of yet.
    fn ends_of(&self, host: usize) -> Vec<(usize, usize)> {
        let life = self.hosts[host].life;
        let all = self.connections.iter().enumerate().flat_map(|(connection, it)| {
            it.ends.iter().enumerate().map(move |(end, it)| (connection, end, it.host, it.life))
        });
        all.filter(|(.., of, born)| (*of, *born) == (host, life))
            .map(|(connection, end, ..)| (connection, end))
            .collect()
    }
}

fn incarnation(host: usize, life: u64) -> u64 {
    (host as u64) << 32 | life
}
