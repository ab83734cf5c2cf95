//! The control connection: ordered, delayed, and closed when one side ends.

use farreach_proto::lost::LostReason;
use farreach_proto::machine::Output;
use farreach_proto::time::Time;
use farreach_proto::wire::{Decoder, Frame, check_preamble, encode, preamble};

use super::party::{Connection, End, Packet};
use super::publications::name_of;
use super::world::{What, World, broken, tell};

impl World {
    /// Connects one host to another.
    pub(super) fn connect(&mut self, from: usize, to: usize) -> usize {
        let lives = [from, to].map(|host| (host, self.hosts[host].life));
        let ends = lives.map(|(host, life)| End::new(host, life, self.now, !self.chance.once_in(3)));
        // Each side begins with it, before any frame.
        if let Err(error) = check_preamble(&preamble()) {
            broken!(self, "two engines of one release do not talk: {error}");
        }
        let connection = self.connections.len();
        let is_honest = !self.is_liar(from) && !self.is_liar(to);
        self.connections.push(Connection { is_honest, ends });
        tell!(self, "connect: connection, from, to", connection, from, to);
        self.count("connections", 1);
        // The accepting side knows of it first.
        let accepted_at = self.now + self.control_delay();
        let connected_at = accepted_at + self.control_delay();
        self.schedule(accepted_at, What::Introduce { connection, end: 1 });
        self.schedule(connected_at, What::Introduce { connection, end: 0 });
        connection
    }

    fn control_delay(&mut self) -> u64 {
        let range = self.scenario.control_ns.clone();
        self.chance.within(range)
    }

    pub(super) fn introduce(&mut self, connection: usize, end: usize) {
        let now = self.now;
        let (host, life) =
            (self.connections[connection].ends[end].host, self.connections[connection].ends[end].life);
        let there = &mut self.hosts[host];
        if there.life != life || !there.is_alive() {
            return;
        }
        if there.is_stopped(now) {
            let at = there.stopped_until;
            self.schedule(at, What::Introduce { connection, end });
            return;
        }
        let other = self.connections[connection].ends[1 - end].host;
        if let Some(at) = self.cut_until(other, host).or_else(|| self.cut_until(host, other)) {
            self.schedule(at, What::Introduce { connection, end });
            return;
        }
        let there = &mut self.hosts[host];
        let key = there.machine().add_peer(end == 0, Time::from_nanos(now));
        if self.scenario.has_names {
            there.machine().set_certificate_names(key, vec![name_of(other)]);
        }
        let view = there.answers.add_peer(key);
        assert_eq!(key.0 as usize, there.peers.len(), "peers are numbered in turn");
        there.peers.push((connection, end));
        (self.connections[connection].ends[end].peer, self.connections[connection].ends[end].since) =
            (Some((key, view)), now);
        // Nothing else may be due on this host: the peer may never send anything.
        let at = self.hosts[host].machine().poll_timeout().to_nanos();
        self.step_by(host, at);
        self.observe(host);
    }

    /// Delivers the first packet that waits at an end to its engine.
    pub(super) fn deliver(&mut self, connection: usize, end: usize) {
        let now = self.now;
        let there = &mut self.connections[connection].ends[end];
        let host = there.host;
        if there.killed_at.is_some() || there.inbox.is_empty() {
            return;
        }
        let later = match &there.peer {
            // It waits where it is, and all later ones behind it.
            None => Some(now + 1_000),
            Some(_) if self.hosts[host].is_stopped(now) => Some(self.hosts[host].stopped_until),
            Some(_) => self.cut_until(self.connections[connection].ends[1 - end].host, host),
        };
        if let Some(at) = later {
            self.schedule(at, What::Deliver { connection, end });
            return;
        }
        let there = &mut self.connections[connection].ends[end];
        let (key, packet) = (there.key(), there.inbox.pop_front());
        self.note_acknowledged(connection, end, packet.as_ref());
        let opened = match packet {
            Some(Packet::Frame(Frame::Open { publication })) => Some(publication),
            _ => None,
        };
        if matches!(packet, Some(Packet::Closed | Packet::Frame(Frame::Goodbye))) {
            // As an engine does: on its way, the packet may have overtaken pages.
            self.hosts[host].catch_up(now);
        }
        let machine = self.hosts[host].machine();
        match packet {
            Some(Packet::Frame(frame)) => machine.handle_frame(key, frame, Time::from_nanos(now)),
            Some(Packet::Closed) => {
                let (cause, fix) = ("the connection was closed".to_owned(), "connect again".to_owned());
                machine.handle_disconnected(
                    key,
                    LostReason::Disconnected { cause, fix },
                    Time::from_nanos(now),
                );
            }
            None => {}
        }
        self.wish_at_once(connection, end, opened);
        self.see(host);
        // The frame may have made room, or a link.
        let at = self.now + self.chance.below(self.scenario.poll_gap_ns);
        self.step_by(host, at);
    }

    /// Delivers outputs and events of a machine.
    pub(super) fn flush(&mut self, host: usize) {
        while let Some(output) = self.hosts[host].machine().poll_output() {
            match output {
                Output::Frame(key, frame) => {
                    self.count(frame.kind().name(), 1);
                    let (connection, end) = self.hosts[host].peers[key.0 as usize];
                    if self.connections[connection].ends[end].is_open {
                        match self.is_liar(host) {
                            true => self.speak(connection, end, frame),
                            false => self.put(connection, 1 - end, Packet::Frame(frame)),
                        }
                    }
                }
                Output::Close(key) => {
                    let (connection, end) = self.hosts[host].peers[key.0 as usize];
                    self.close(connection, end);
                }
            }
        }
        self.hosts[host].deliver();
    }

    /// Closes an end: it sends nothing more, and the other one is notified.
    pub(super) fn close(&mut self, connection: usize, end: usize) {
        if std::mem::replace(&mut self.connections[connection].ends[end].is_open, false) {
            self.put(connection, 1 - end, Packet::Closed);
        }
    }

    /// Returns a frame as the other side decodes it.
    fn coded(&mut self, frame: Frame) -> Frame {
        self.frame_bytes.clear();
        if let Err(error) = encode(&frame, &mut self.frame_bytes) {
            broken!(self, "{frame:?} cannot be sent: {error}");
        }
        let mut decoder = Decoder::new();
        decoder.feed(&self.frame_bytes);
        match decoder.next() {
            Ok(Some(decoded)) if decoded == frame && decoder.is_empty() => decoded,
            other => broken!(self, "{frame:?} was decoded as {other:?}"),
        }
    }

    pub(super) fn put(&mut self, connection: usize, end: usize, packet: Packet) {
        let delay = self.control_delay();
        let is_own = !self.connections[connection].is_honest;
        let is_lie = self.is_liar(self.connections[connection].ends[1 - end].host);
        if let (Packet::Frame(frame), Some(liar), false) = (&packet, &mut self.liar, is_lie) {
            liar.hear(frame, is_own);
        }
        let packet = match packet {
            Packet::Frame(frame) => Packet::Frame(self.coded(frame)),
            Packet::Closed => Packet::Closed,
        };
        self.log(|| format!("to connection {connection} end {end}: {packet:?}"));
        let there = &mut self.connections[connection].ends[end];
        there.inbox_until = there.inbox_until.max(self.now + delay);
        there.inbox.push_back(packet);
        let at = there.inbox_until;
        self.schedule(at, What::Deliver { connection, end });
    }
}
