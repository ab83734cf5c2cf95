//! What a peer may do with granted memory.

use bitflags::bitflags;

bitflags! {
    /// What a peer may do with granted memory.
    ///
    /// ```
    /// use farreach_proto::rights::Rights;
    ///
    /// assert!((Rights::READ | Rights::WRITE).contains(Rights::WRITE));
    /// ```
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Rights: u8 {
        /// Read it.
        const READ = 1;
        /// Write to it.
        const WRITE = 2;
        /// Add to its words, and compare and swap them.
        const ATOMIC = 4;
    }
}
