//! What other tasks take from Debian's archive, fetched beforehand: most of the time is waiting, which a build beside it can use.

use anyhow::Result;

use crate::cleanroom;
use crate::headers::HeaderSet;
use crate::vm::{KernelChoice, Userland};

/// Fetches the roots that `ci` needs, and the kernel that it boots. What is in the cache is not fetched again.
pub(crate) fn execute() -> Result<()> {
    for userland in Userland::BOTH {
        let root = userland.root().get()?;
        println!("{}: {}", root.origin, root.path.display());
    }
    for headers in [HeaderSet::Debian12, HeaderSet::Newest] {
        headers.include_folder()?;
    }
    cleanroom::BUILDER.get()?;
    let kernel = KernelChoice::Newest.get()?;
    println!("Linux {}: {}", kernel.version, kernel.image.display());
    Ok(())
}
