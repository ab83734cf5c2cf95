//! Admission of peers: how many accepted connections may have one, in all and per address.
//!
//! Each operation takes constant time.

use std::collections::HashMap;

use super::exceeded::Exceeded;
use crate::Origin;
use crate::budgets::ControlBudgets;

/// The peers that were admitted and whose connections have not ended.
#[derive(Debug)]
pub(super) struct Admission {
    max: u32,
    per_address_max: u32,
    count: u32,
    /// By origin. Peers choose their addresses, so the hash needs its secret keys.
    by_address: HashMap<Origin, u32>,
}

impl Admission {
    pub(super) fn new(budgets: &ControlBudgets) -> Self {
        Self {
            max: budgets.peers,
            per_address_max: budgets.peers_per_address,
            count: 0,
            by_address: HashMap::new(),
        }
    }

    /// Admits a peer, unless there are too many.
    pub(super) fn admit(&mut self, address: Origin) -> Result<(), Exceeded> {
        let same = self.by_address.get(&address).copied().unwrap_or(0);
        // The budget of the address comes first: it is the one that this newcomer can change.
        if same >= self.per_address_max {
            return Err(Exceeded::PeersPerAddress(self.per_address_max));
        }
        if self.count >= self.max {
            return Err(Exceeded::Peers(self.max));
        }
        self.count += 1;
        self.by_address.insert(address, same + 1);
        Ok(())
    }

    /// Removes a peer that was admitted.
    pub(super) fn release(&mut self, address: Origin) {
        let Some(same) = self.by_address.get_mut(&address) else { return };
        self.count -= 1;
        *same -= 1;
        // Otherwise each address from which a peer has ever come would keep an entry.
        if *same == 0 {
            self.by_address.remove(&address);
        }
    }

    /// Returns how many peers are admitted.
    #[cfg(test)]
    pub(super) fn count(&self) -> u32 {
        assert_eq!(self.count, self.by_address.values().sum::<u32>());
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_limits_for_an_address_and_for_all_and_an_end_makes_room() {
        let budgets = ControlBudgets { peers: 3, peers_per_address: 2, ..ControlBudgets::default() };
        let mut admission = Admission::new(&budgets);
        let [one, two, three]: [Origin; 3] = [1, 2, 3].map(|last| Origin::V4([10, 0, 0, last]));
        assert_eq!(admission.admit(one), Ok(()));
        assert_eq!(admission.admit(one), Ok(()));
        assert_eq!(admission.admit(one), Err(Exceeded::PeersPerAddress(2)));
        assert_eq!(admission.admit(two), Ok(()));
        assert_eq!(admission.admit(three), Err(Exceeded::Peers(3)));
        assert_eq!(admission.count(), 3);
        admission.release(three);
        assert_eq!(admission.count(), 3, "it was not admitted");
        admission.release(one);
        assert_eq!(admission.admit(three), Ok(()));
        assert_eq!(admission.admit(one), Err(Exceeded::Peers(3)));
        [one, two, three].iter().for_each(|address| admission.release(*address));
        assert!(admission.count() == 0 && admission.by_address.is_empty());
    }
}
