//! Ids of what one side offers to the other: grants, publications and shared counters.
//!
//! Each is a random number that the offering side draws, so that no other peer can guess it. They are types of
//! their own, so that none is passed where another, or a time, is meant.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! ids {
    ($($(#[$doc:meta])* $id:ident;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
            pub struct $id(pub(crate) u64);

            impl $id {
                /// Returns the id as a number, for tokens and display.
                #[inline]
                pub const fn to_raw(self) -> u64 {
                    self.0
                }

                /// Restores an id from such a number. It need not name anything that exists.
                #[inline]
                pub const fn from_raw(raw: u64) -> Self {
                    Self(raw)
                }
            }

            impl fmt::Display for $id {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    self.0.fmt(f)
                }
            }
        )*
    };
}

ids! {
    /// Names memory that one side has granted to the other, and by it the keys of that memory.
    GrantId;
    /// Names published memory of one side, which each permitted peer may open.
    PublicationId;
    /// Names a counter of one side that each permitted peer may open, and then raises by a counter of its own.
    SharedCounterId;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_on_the_wire_what_its_number_is() {
        for raw in [0, 7, 1 << 20, u64::MAX] {
            let id = postcard::to_allocvec(&GrantId(raw)).unwrap();
            assert_eq!(id, postcard::to_allocvec(&raw).unwrap());
        }
    }
}
