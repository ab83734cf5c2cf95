//! Requests that are performed within the call that asks for them.

use farreach_memory::Buffer;

use super::{IMMEDIATE, Link};
use crate::operation::{Cursor, Direction, Request, STEP, Step, View};
use crate::sleep;

impl Link {
    /// Performs a write or read of one range within this call, with the bytes of the buffer from
    /// `offset` on. Returns `true` if it is done. No event follows.
    ///
    /// Returns `false` if it is not: an operation is queued before it, it is longer than one step, the
    /// ring has no room for the immediate, or something is wrong. Then the peer gets no immediate, but
    /// bytes may have been written.
    /// [`post`](Self::post) does the same work later, or tells what is wrong.
    #[inline]
    pub fn perform(&mut self, request: Request<'_>, buffer: &mut Buffer, offset: usize) -> bool {
        let (direction, target, immediate) = match request {
            Request::Write { targets: [target], immediate } => (Direction::Write, *target, immediate),
            Request::Read { targets: [target] } if buffer.is_writable() => (Direction::Read, *target, None),
            _ => return false,
        };
        let is_within = buffer.len().checked_sub(offset).is_some_and(|left| target.len <= left as u64);
        let is_short = target.len <= STEP as u64;
        if !is_within || !is_short || !self.operations.is_empty() || self.check().is_err() {
            return false;
        }
        let view = View { keys: &self.keys, segment: &self.segment, peer: self.side.other() };
        let (targets, buffers) = (&[target], std::slice::from_ref(buffer));
        let step = view.copy(direction, targets, buffers, &mut Cursor::from_offset(offset), STEP);
        matches!(step, Ok(Step::Done)) && immediate.is_none_or(|bits| self.tell(bits))
    }

    /// Passes an immediate. Returns whether the peer gets it.
    #[inline]
    fn tell(&mut self, immediate: u32) -> bool {
        let is_in_ring = self.producer.push(IMMEDIATE, &immediate.to_le_bytes());
        match is_in_ring {
            Ok(true) => self.wake(sleep::FOR_ENTRIES),
            Ok(false) => {}
            Err(nonsense) => self.go_down(nonsense.into()),
        }
        is_in_ring == Ok(true)
    }
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use std::time::{Duration, Instant};

    use farreach_memory::{Buffers, Exposed, Memory};

    use super::*;
    use crate::map::Access;
    use crate::meet::{Connecting, Expected, Listener};
    use crate::operation::Target;

    /// Returns the end of a link that may access memory of this length, the other end, and the key.
    fn granted(len: usize) -> (Link, Link, Exposed, u64) {
        let [ours, theirs] = [[1; 32], [2; 32]];
        let mut listener = Listener::bind(Duration::from_secs(60)).unwrap();
        listener.expect(Expected { id: 5, theirs, ours });
        let mut connecting = Connecting::new(listener.name(), theirs, ours).unwrap();
        let (mut client, mut server) = (None, None);
        while client.is_none() || server.is_none() {
            client = client.or_else(|| connecting.poll().unwrap());
            server = server.or_else(|| listener.poll(Instant::now()).unwrap().map(|met| met.link));
        }
        let (mut client, mut server) = (client.unwrap(), server.unwrap());
        let memory = Memory::allocate(len).unwrap().expose();
        let key = server.grant(&memory, Access::ReadWrite).unwrap();
        while client.keys.get(crate::grants::Key(key)).is_none() {
            client.poll(|_| {});
        }
        (client, server, memory, key)
    }

    #[test]
    fn only_the_bytes_of_a_buffer_are_moved_and_only_if_nobody_else_reads_them() {
        let (mut client, _server, memory, key) = granted(4096);
        let targets = [Target { key, offset: 0, len: 8 }];
        let (read, write) =
            (Request::Read { targets: &targets }, Request::Write { targets: &targets, immediate: None });
        let mut shared = Buffer::from(Memory::allocate(8).unwrap().share());
        assert!(client.perform(write, &mut shared, 0) && !client.perform(read, &mut shared, 0));
        let mut slice = Buffer::from(Memory::allocate(8).unwrap());
        assert!(client.perform(read, &mut slice, 0));
        for offset in [1, 8, 9, usize::MAX] {
            assert!(!client.perform(write, &mut slice, offset) && !client.perform(read, &mut slice, offset));
        }
        drop(memory);
    }

    #[test]
    fn nothing_overtakes_what_is_queued() {
        let (mut client, _server, memory, key) = granted(1 << 20);
        let targets = [Target { key, offset: 0, len: 1 << 20 }];
        let long = Buffers::from(Memory::allocate(1 << 20).unwrap());
        client.post(1, Request::Write { targets: &targets, immediate: None }, long).unwrap();
        let targets = [Target { key, offset: 0, len: 8 }];
        let short = Request::Write { targets: &targets, immediate: None };
        let mut slice = Buffer::from(Memory::allocate(8).unwrap());
        assert!(!client.perform(short, &mut slice, 0));
        while client.in_flight() > 0 {
            client.poll(|_| {});
        }
        assert!(client.perform(short, &mut slice, 0));
        drop(memory);
    }
}
