//! Builds for aarch64, compares every layout with C, and starts the command, all under emulation.
//! No aarch64 machine was available, so nothing else is tested.

use anyhow::{Result, ensure};

use crate::layout;
use crate::platform::Platform;
use crate::process::run;

/// Builds the command, starts it, and compares the layouts.
pub(crate) fn execute() -> Result<()> {
    let platform = Platform::aarch64()?;
    println!("── cargo build for aarch64");
    run(platform.cargo("build").args(["--quiet", "--package", "farreach-cli"]))?;

    println!("── farreach devices on an emulated aarch64 without libraries");
    let output = platform.program(&platform.binary(), &["devices"])?.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    ensure!(
        output.status.code() == Some(3),
        "`farreach devices` ended with {}, expected exit code 3",
        output.status
    );
    ensure!(
        text.contains("libibverbs.so.1") && text.contains("libfabric.so.1"),
        "`farreach devices` does not name the missing libraries"
    );

    layout::on(&platform)
}
