//! Fetches the files that other tasks need from Debian's archive. Most of that time is waiting, so
//! a build can run at the same time.

use anyhow::Result;

use crate::headers::HeaderSet;
use crate::{cleanroom, vm};

/// Fetches the files for guests, cells and builds. Files in the cache are not fetched again.
pub(crate) fn execute() -> Result<()> {
    vm::fetch()?;
    for headers in [HeaderSet::Debian12, HeaderSet::Newest] {
        headers.include_folder()?;
    }
    cleanroom::BUILDER.get()?;
    Ok(())
}
