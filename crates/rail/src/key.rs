//! Keys with which peers access memory.

/// Names a key on its own side's rail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub u64);

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Its name on this side.
    pub id: KeyId,
    /// The address of the memory, as the peer's work requests use it.
    pub address: u64,
    /// The key that the peer's work requests carry.
    pub key: u64,
}
