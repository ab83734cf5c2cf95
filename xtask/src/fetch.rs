//! What other tasks take from Debian's archive, fetched beforehand: most of the time is waiting, which a build beside it can use.

use anyhow::Result;

use crate::headers::HeaderSet;
use crate::{cleanroom, vm};

/// Fetches what guests, cells and builds are made of. What is in the cache is not fetched again.
pub(crate) fn execute() -> Result<()> {
    vm::fetch()?;
    for headers in [HeaderSet::Debian12, HeaderSet::Newest] {
        headers.include_folder()?;
    }
    cleanroom::BUILDER.get()?;
    Ok(())
}
