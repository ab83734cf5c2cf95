//! Messages from one peer: each number once, in order, and never more than the peer has room for.

use std::collections::BTreeMap;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    next: u64,
    /// The number that was last confirmed to the peer.
    told: u64,
    /// The number of delivered messages that the application has not taken.
    untaken: u64,
    /// Messages that arrived before their turn.
    early: BTreeMap<u64, Vec<u8>>,
}

/// The peer has sent more messages than there is room for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

impl Incoming {
    /// Receives a message. Delivers it in its turn, with all later ones that waited for it. Returns
    /// `true` if any was delivered.
    pub(crate) fn receive(
        &mut self,
        sequence: u64,
        bytes: &[u8],
        room: u32,
        mut deliver: impl FnMut(Vec<u8>),
    ) -> Result<bool, TooMany> {
        // A duplicate of a message that was received already.
        let Some(ahead) = sequence.checked_sub(self.next) else { return Ok(false) };
        // Bounds the memory of one peer, even if it violates the protocol.
        if ahead >= u64::from(room).saturating_sub(self.untaken) {
            return Err(TooMany);
        }
        if ahead > 0 {
            self.early.insert(sequence, bytes.to_vec());
            return Ok(false);
        }
        let mut next = Some(bytes.to_vec());
        while let Some(bytes) = next {
            self.next += 1;
            self.untaken += 1;
            deliver(bytes);
            next = self.early.remove(&self.next);
        }
        Ok(true)
    }

    /// Accounts messages that the application has taken.
    pub(crate) fn taken(&mut self, count: u32) {
        self.untaken = self.untaken.saturating_sub(count.into());
    }

    /// Returns the number before which all messages are held, if it was not confirmed yet.
    pub(crate) fn untold(&mut self) -> Option<u64> {
        (std::mem::replace(&mut self.told, self.next) != self.next).then_some(self.next)
    }

    /// Returns the bytes of memory that are held.
    pub(crate) fn memory(&self) -> usize {
        self.early.values().map(|bytes| bytes.capacity() + size_of::<(u64, Vec<u8>)>()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Receives messages of these numbers, with room for four. Returns the delivered ones.
    fn receive(incoming: &mut Incoming, numbers: &[u64]) -> Result<Vec<u8>, TooMany> {
        let mut delivered = Vec::new();
        for number in numbers {
            incoming.receive(*number, &[*number as u8], 4, |bytes| delivered.extend(bytes))?;
        }
        Ok(delivered)
    }

    #[test]
    fn each_comes_once_and_in_its_turn() {
        let mut incoming = Incoming::default();
        assert_eq!(receive(&mut incoming, &[2, 1, 2]), Ok(vec![]));
        assert_eq!(incoming.untold(), None);
        assert_eq!(receive(&mut incoming, &[0, 1, 0, 2]), Ok(vec![0, 1, 2]));
        assert_eq!((incoming.untold(), incoming.untold()), (Some(3), None));
        assert_eq!(incoming.memory(), 0);
    }

    #[test]
    fn nobody_sends_more_than_there_is_room_for() {
        assert_eq!(receive(&mut Incoming::default(), &[4]), Err(TooMany), "ahead");
        let mut incoming = Incoming::default();
        assert_eq!(receive(&mut incoming, &[0, 1, 2, 3, 4]), Err(TooMany), "untaken");
        incoming.taken(2);
        assert_eq!(receive(&mut incoming, &[4, 5]), Ok(vec![4, 5]));
        assert_eq!(receive(&mut incoming, &[6]), Err(TooMany));
        assert_eq!(receive(&mut incoming, &[5]), Ok(vec![]), "one that came before does no harm");
    }
}
