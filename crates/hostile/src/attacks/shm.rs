//! libfabric's shm, which is no rail: a killed process leaves its files behind, and a stopped one may
//! hold a lock for which all others wait without end.

use anyhow::{Result, ensure};
use farreach::{Engine, Settings};

use super::{AttackArgs, sleep_until};
use crate::roles::Attacked;

/// Opens engines over shm. Each must be refused, with the reason.
pub(super) fn shm(args: &AttackArgs) -> Result<Attacked> {
    let (mut attacked, end) = (Attacked::default(), args.end());
    let mut reason = String::new();
    for _ in 0..args.count {
        match Engine::with(Settings::new().name("shm").rails(["shm"])) {
            Ok(_) => attacked.breach("an engine has opened a rail over shm", "no error"),
            Err(error) => {
                attacked.count("refused", 1);
                reason = error.cause().to_owned();
            }
        }
    }
    ensure!(attacked.hits() > 0 || reason.contains("shm"), "the reason does not name shm: {reason}");
    sleep_until(end);
    attacked.did = format!("{} engines over shm refused: {reason}", attacked.counted());
    Ok(attacked)
}
