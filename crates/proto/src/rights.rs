//! Access rights of granted memory.

use bitflags::bitflags;

bitflags! {
    /// The operations that a peer may do on granted memory.
    ///
    /// ```
    /// use farreach_proto::rights::Rights;
    ///
    /// assert!((Rights::READ | Rights::WRITE).contains(Rights::WRITE));
    /// ```
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Rights: u8 {
        /// Reads.
        const READ = 1;
        /// Writes.
        const WRITE = 2;
        /// Fetch-and-add and compare-and-swap.
        const ATOMIC = 4;
    }
}
