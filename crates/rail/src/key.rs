//! Keys that rails make.

/// Identifies a key on the rail of its own side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub u64);

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// The identifier on this side.
    pub id: KeyId,
    /// The address of the memory, as the peer's work requests use it. Not used if keys are
    /// [bound](crate::Rail::bind_key).
    pub address: u64,
    /// The key that the peer's work requests carry. Not used if keys are [bound](crate::Rail::bind_key).
    pub key: u64,
}
