//! The memory of a test: on-chip memory of the card, or host memory. Only the allocation differs.

use std::ops::Range;
use std::sync::Arc;

use farreach_verbs::Error;
use farreach_verbs::dm::{DeviceMemory, OnChipRegion};
use farreach_verbs::mr::AccessFlags;
use farreach_verbs::region::ExposedRegion;
use farreach_verbs::wr::{RegionPart, RemoteRange};

use super::card::Card;
use super::failure::of_verbs;
use crate::exit::{Exit, Failure};

/// Memory that the peer may access.
#[derive(Debug)]
pub(crate) enum Memory {
    OnChip(Arc<OnChipRegion>),
    Host(Arc<ExposedRegion>),
}

/// Cards allocate it in blocks of 64 bytes, and copy words of four bytes.
const LOG_ALIGN: u32 = 6;

/// The smallest useful allocation.
const BYTES_MIN: usize = 4096;

impl Memory {
    /// Allocates this much memory on the card, or as much as is available if other programs use
    /// some of it.
    pub(crate) fn on_chip(card: &Card, bytes: usize, access: AccessFlags) -> Result<Self, Failure> {
        let most = usize::try_from(card.attributes.max_dm_bytes).unwrap_or(usize::MAX);
        if most == 0 {
            return Err(none(card));
        }
        let dm = allocate(card, bytes.min(most) >> LOG_ALIGN << LOG_ALIGN)?;
        let region = card.pd.expose_dm(&dm, 0, dm.len(), access).map_err(|error| of_verbs(&error))?;
        Ok(Self::OnChip(Arc::new(region)))
    }

    /// Allocates this much host memory.
    pub(crate) fn host(card: &Card, bytes: usize, access: AccessFlags) -> Result<Self, Failure> {
        let slice = card.pd.allocate(bytes).map_err(|error| of_verbs(&error))?;
        let region = card.pd.expose(slice, access).map_err(|(error, _slice)| of_verbs(&error))?;
        Ok(Self::Host(Arc::new(region)))
    }

    /// Returns the address and key for the peer.
    pub(crate) fn remote(&self) -> RemoteRange {
        match self {
            Self::OnChip(region) => region.remote(),
            Self::Host(region) => region.remote(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.remote().len() as usize
    }

    /// Returns a part of it, to be sent from in place.
    pub(crate) fn part(&self, range: Range<usize>) -> Option<RegionPart> {
        match self {
            Self::OnChip(region) => RegionPart::on_chip(region, range),
            Self::Host(region) => RegionPart::exposed(region, range),
        }
    }

    /// Copies bytes into it. The range must be inside.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Failure> {
        match self {
            Self::OnChip(region) => {
                region.memory().copy_to(offset as u64, bytes).map_err(|error| of_verbs(&error))
            }
            Self::Host(region) => {
                region.bytes().write_at(offset, bytes);
                Ok(())
            }
        }
    }

    /// Copies bytes out of it. The range must be inside.
    pub(crate) fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Failure> {
        match self {
            Self::OnChip(region) => {
                region.memory().copy_from(offset as u64, into).map_err(|error| of_verbs(&error))
            }
            Self::Host(region) => {
                region.bytes().read_at(offset, into);
                Ok(())
            }
        }
    }
}

/// Allocates on-chip memory, and halves the size on failure: the reported size is that of the card,
/// and another program may use some of it.
fn allocate(card: &Card, mut bytes: usize) -> Result<DeviceMemory, Failure> {
    loop {
        match card.context.alloc_dm(bytes, LOG_ALIGN) {
            Ok(dm) => return Ok(dm),
            Err(Error::Unsupported { .. }) => return Err(none(card)),
            Err(_) if bytes / 2 >= BYTES_MIN => bytes /= 2,
            Err(error) => {
                let cause = format!(
                    "it reports {} bytes, but an allocation of {bytes} bytes failed: {error}",
                    card.attributes.max_dm_bytes
                );
                return Err(Failure::new(
                    Exit::Unavailable,
                    format!("{} has no free on-chip memory", card.name),
                )
                .cause(cause)
                .fix("stop the programs that use it, or use host memory with --host-memory"));
            }
        }
    }
}

fn none(card: &Card) -> Failure {
    let cause =
        format!("ibv_query_device_ex reports a max_dm_size of {} bytes", card.attributes.max_dm_bytes);
    Failure::new(Exit::Unavailable, format!("{} has no on-chip memory", card.name)).cause(cause).fix(
        "use host memory with --host-memory; to see which cards have on-chip memory:\nfarreach devices -v",
    )
}
