//! Faults of the simulated network.

use super::action::Action;
use super::end::{CardState, EndState, Way};
use super::world::World;

impl World {
    /// Draws faults that follow a post a little later.
    pub(super) fn draw_faults(&mut self, card: usize, end: usize) {
        let (odds, host) = (self.settings.odds, self.cards[card].host);
        let faults = [
            (odds.link_dies, Action::KillLink { end }),
            (odds.card_fails, Action::CutCable { card }),
            (odds.host_stops, Action::StopHost { host }),
            (odds.host_killed, Action::KillHost { host }),
        ];
        for (once_in, fault) in faults {
            if self.draw(|_| once_in) {
                // Some steps later, so that it meets work requests at any stage.
                let at_ns = self.now_ns + 3 * self.chance.within(&self.settings.delay_ns);
                self.schedule(at_ns, fault);
            }
        }
        if self.draw(|odds| odds.queue_fills) {
            let for_ns = self.outage_ns();
            self.fill_queue(card, for_ns);
        }
    }

    fn outage_ns(&mut self) -> u64 {
        self.chance.within(&self.settings.outage_ns)
    }

    pub(super) fn fill_queue(&mut self, card: usize, for_ns: u64) {
        self.note("fill", card as u64, for_ns);
        let until_ns = self.now_ns + for_ns;
        self.cards[card].full_until_ns = until_ns;
        // Drivers that wait for room are woken.
        self.schedule(until_ns, Action::Wake);
    }

    /// Schedules a wake-up for a card: once, however often this is called meanwhile.
    pub(super) fn wake_soon(&mut self, card: usize) {
        if self.cards[card].wakes_at_ns <= self.now_ns {
            let at_ns = self.after_step().max(self.now_ns + 1);
            self.cards[card].wakes_at_ns = at_ns;
            self.schedule(at_ns, Action::Wake);
        }
    }

    /// Kills a link, in both directions. Bytes that have landed stay. The others are lost, or still
    /// land if the card allows that.
    pub(super) fn kill_link(&mut self, end: usize) {
        self.note("kill link", end as u64, 0);
        let peer = self.ends[end].peer.filter(|peer| self.ends[*peer].peer == Some(end));
        for end in [Some(end), peer].into_iter().flatten() {
            self.cut_way(end);
        }
    }

    fn cut_way(&mut self, end: usize) {
        if self.ends[end].way != Way::Open || self.ends[end].state == EndState::Unconnected {
            return;
        }
        let lands_late = self.cards[self.ends[end].card].kind.lands_late;
        self.ends[end].way = if lands_late && self.chance.coin() { Way::Draining } else { Way::Lost };
        self.ends[end].are_answers_lost = self.chance.coin();
        self.expect_break(end);
    }

    /// Kills all links of a card. Links that are made meanwhile do not work.
    pub(super) fn cut_cable(&mut self, card: usize) {
        if self.cards[card].has_no_cable || self.cards[card].state != CardState::Alive {
            return;
        }
        self.note("cut", card as u64, 0);
        self.cards[card].has_no_cable = true;
        for index in 0..self.cards[card].ends.len() {
            self.kill_link(self.cards[card].ends[index]);
        }
    }

    /// As [`cut_cable`](Self::cut_cable), with a repair after an outage.
    pub(super) fn cut_cable_for_a_while(&mut self, card: usize) {
        self.cut_cable(card);
        let at_ns = self.now_ns + self.outage_ns();
        self.schedule(at_ns, Action::MendCable { card });
    }

    pub(super) fn mend_cable(&mut self, card: usize) {
        self.note("mend", card as u64, 0);
        self.cards[card].has_no_cable = false;
    }

    /// Stops a host for a while. Its cards continue to do what they do without polls.
    pub(super) fn stop_host(&mut self, host: usize, for_ns: Option<u64>) {
        let for_ns = for_ns.unwrap_or_else(|| self.outage_ns());
        let until_ns = self.now_ns + for_ns;
        self.note("stop", host as u64, for_ns);
        self.hosts[host].stopped_until_ns = until_ns;
        self.schedule(until_ns, Action::Wake);
    }

    pub(super) fn kill_host(&mut self, host: usize) {
        self.note("kill", host as u64, 0);
        self.hosts[host].is_killed = true;
        self.hosts[host].stopped_until_ns = 0;
        for card in 0..self.cards.len() {
            if self.cards[card].host == host {
                self.kill_card(card);
            }
        }
    }

    /// Ends faults by chance, and repairs everything that repairs itself.
    pub(super) fn calm(&mut self) {
        self.is_calm = true;
        for card in &mut self.cards {
            (card.has_no_cable, card.full_until_ns) = (false, 0);
            (card.refusals_left, card.failing_polls_left) = (0, 0);
        }
        for host in &mut self.hosts {
            host.stopped_until_ns = 0;
        }
    }
}
