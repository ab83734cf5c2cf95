//! Messages that lie where peers can reach.

use std::ops::Range;
use std::sync::Arc;

use crate::dm::OnChipRegion;
use crate::mr::MemoryRegion;
use crate::region::ExposedRegion;

/// A part of a region that peers may touch, to be sent as a message from where it lies: the device gathers it, from the host's memory or
/// from its own.
///
/// There is no reference to such bytes. What a peer changes while the device gathers them is sent old or new.
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
/// let second_half = RegionPart::on_chip(&region, 2048..4096).expect("it is inside");
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

/// Kept while a request names it.
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
    /// Of the host's memory; nothing if the region does not have these bytes.
    pub fn exposed(region: &Arc<ExposedRegion>, range: Range<usize>) -> Option<Self> {
        let whole = region.remote();
        Self::new(Region::Exposed(Arc::clone(region)), whole.address(), whole.len(), range)
    }

    /// Of the device's memory; nothing if the region does not have these bytes.
    pub fn on_chip(region: &Arc<OnChipRegion>, range: Range<usize>) -> Option<Self> {
        let whole = region.remote();
        Self::new(Region::OnChip(Arc::clone(region)), whole.address(), whole.len(), range)
    }

    fn new(region: Region, start: u64, region_len: u64, range: Range<usize>) -> Option<Self> {
        let is_inside = range.start <= range.end && range.end as u64 <= region_len;
        is_inside.then(|| Self { region, address: start + range.start as u64, len: range.end - range.start })
    }

    /// Its bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// As the device counts.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }
}
