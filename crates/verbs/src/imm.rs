//! Immediate data.

use std::fmt;

/// Four bytes that a message or a write carries to the receiver's completion.
///
/// The value is in host order. The wire and the C structures are big-endian; only this module
/// converts.
///
/// ```
/// use farreach_verbs::imm::ImmediateData;
///
/// let immediate = ImmediateData(0x0102_0304);
/// assert_eq!(immediate.to_string(), "0x01020304");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ImmediateData(pub u32);

impl ImmediateData {
    /// Returns the value for a C structure.
    #[inline]
    pub(crate) fn to_wire(self) -> u32 {
        self.0.to_be()
    }

    /// Converts the value of a C structure.
    #[inline]
    pub(crate) fn from_wire(wire: u32) -> Self {
        Self(u32::from_be(wire))
    }
}

impl From<u32> for ImmediateData {
    fn from(value: u32) -> Self {
        Self(value)
    }
}

impl fmt::Display for ImmediateData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_is_big_endian() {
        assert_eq!(ImmediateData(0x0102_0304).to_wire().to_ne_bytes(), [1, 2, 3, 4]);
        assert_eq!(ImmediateData::from_wire(u32::from_ne_bytes([1, 2, 3, 4])), ImmediateData(0x0102_0304));
    }
}
