//! Messages from one peer: each number once, in order, and never more than the peer was given room for.

use std::collections::BTreeMap;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    next: u64,
    /// The number that the peer was last told of.
    told: u64,
    /// How many the user has, and has not told us that he took them.
    untaken: u64,
    /// Came before their turn.
    early: BTreeMap<u64, Vec<u8>>,
}

/// The peer has sent more than it was given room for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

impl Incoming {
    /// One has come. It is delivered in its turn, and all that have waited for it; whether any was.
    pub(crate) fn receive(
        &mut self,
        sequence: u64,
        bytes: &[u8],
        room: u32,
        mut deliver: impl FnMut(Vec<u8>),
    ) -> Result<bool, TooMany> {
        // One that came already.
        let Some(ahead) = sequence.checked_sub(self.next) else { return Ok(false) };
        // Memory for one peer has a bound, also where it does not keep to it.
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

    /// The user has taken so many.
    pub(crate) fn taken(&mut self, count: u32) {
        self.untaken = self.untaken.saturating_sub(count.into());
    }

    /// The number before which all are held here, if the peer was not told.
    pub(crate) fn untold(&mut self) -> Option<u64> {
        (std::mem::replace(&mut self.told, self.next) != self.next).then_some(self.next)
    }

    /// Bytes that are held here.
    pub(crate) fn memory(&self) -> usize {
        self.early.values().map(|bytes| bytes.capacity() + size_of::<(u64, Vec<u8>)>()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Receives messages of these numbers, with room for four: what is delivered.
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
