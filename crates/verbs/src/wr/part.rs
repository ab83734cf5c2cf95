//! Messages in memory that peers can access.

use std::ops::Range;
use std::sync::Arc;

use crate::dm::OnChipRegion;
use crate::mr::MemoryRegion;
use crate::region::ExposedRegion;

/// A part of a region that peers may access, to be sent as a message in place: the device gathers
/// it, from host memory or from its own.
///
/// No reference to such bytes exists. Bytes that a peer changes during the gathering are sent in
/// their old or new state.
///
/// ```no_run
/// # use farreach_verbs::device::DeviceList;
/// use std::sync::Arc;
/// use farreach_verbs::mr::AccessFlags;
/// use farreach_verbs::wr::RegionPart;
///
/// # let context = DeviceList::get()?.iter().next().unwrap().open()?;
/// # let pd = context.alloc_pd()?;
/// let dm = context.alloc_dm(4096, 6)?;
/// let region = Arc::new(pd.expose_dm(&dm, 0, 4096, AccessFlags::REMOTE_READ)?);
/// let second_half = RegionPart::on_chip(&region, 2048..4096).expect("the range is inside");
/// assert_eq!(second_half.len(), 2048);
/// assert!(RegionPart::on_chip(&region, 4096..4097).is_none());
/// # Ok::<(), farreach_verbs::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct RegionPart {
    region: Region,
    address: u64,
    len: usize,
}

/// A region that is held while a work request names it.
#[derive(Debug, Clone)]
pub(crate) enum Region {
    Exposed(Arc<ExposedRegion>),
    OnChip(Arc<OnChipRegion>),
}

impl Region {
    pub(crate) fn mr(&self) -> &MemoryRegion {
        match self {
            Self::Exposed(region) => region.mr(),
            Self::OnChip(region) => region.mr(),
        }
    }
}

impl RegionPart {
    /// Returns a part of host memory, or `None` if the range exceeds the region.
    pub fn exposed(region: &Arc<ExposedRegion>, range: Range<usize>) -> Option<Self> {
        let whole = region.remote();
        Self::new(Region::Exposed(Arc::clone(region)), whole.address(), whole.len(), range)
    }

    /// Returns a part of the device's memory, or `None` if the range exceeds the region.
    pub fn on_chip(region: &Arc<OnChipRegion>, range: Range<usize>) -> Option<Self> {
        let whole = region.remote();
        Self::new(Region::OnChip(Arc::clone(region)), whole.address(), whole.len(), range)
    }

    fn new(region: Region, start: u64, region_len: u64, range: Range<usize>) -> Option<Self> {
        let is_inside = range.start <= range.end && range.end as u64 <= region_len;
        is_inside.then(|| Self { region, address: start + range.start as u64, len: range.end - range.start })
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// Returns the address that the device uses.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }
}
