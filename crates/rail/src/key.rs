//! Keys: by what peers reach memory.

/// A key that was made, as its own side's provider names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub u64);

/// A key that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Its name on this side.
    pub id: KeyId,
    /// Where the memory begins, in the words of the peer's requests.
    pub address: u64,
    /// The key.
    pub key: u64,
}
