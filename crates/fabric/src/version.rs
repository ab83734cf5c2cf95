//! Versions of libfabric.

use std::fmt;

use farreach_fabric_sys as sys;

/// A version of libfabric, or of one of its providers.
///
/// ```
/// use farreach_fabric::Version;
///
/// let version = Version { major: 1, minor: 17 };
/// assert!(version < Version { major: 2, minor: 1 });
/// assert_eq!(version.to_string(), "1.17");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The major version.
    pub major: u16,
    /// The minor version.
    pub minor: u16,
}

impl Version {
    /// The oldest supported version. Older libraries are refused.
    pub const OLDEST: Self = Self::from_c(sys::API_VERSION);

    pub(crate) const fn from_c(version: u32) -> Self {
        // FI_MAJOR and FI_MINOR are the two halves.
        Self { major: sys::FI_MAJOR(version) as u16, minor: sys::FI_MINOR(version) as u16 }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}
