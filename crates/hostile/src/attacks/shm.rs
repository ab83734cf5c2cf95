//! Engines over shm that come and go. Over libfabric's shm each left a file of 16 MiB in `/dev/shm`
//! if its process was killed; over the rail of this name nothing may be left.

use std::time::Duration;

use anyhow::{Result, ensure};
use farreach::{Engine, Settings};

use super::{AttackArgs, sleep_until};
use crate::roles::Attacked;

const SOON: Duration = Duration::from_secs(5);

/// Opens pairs of engines over shm, and leaves them without a goodbye.
pub(super) fn shm(args: &AttackArgs) -> Result<Attacked> {
    let (mut attacked, end) = (Attacked::default(), args.end());
    for number in 1..=args.count {
        let engine = |name| Engine::with(Settings::new().name(name).rails(["shm"]));
        let (here, there) = (engine("here")?, engine("there")?);
        let peer = here.connect(there.listen("127.0.0.1:0")?)?.wait(SOON)?;
        ensure!(peer.rails() == ["shm"], "the peer has the rails {:?}", peer.rails());
        peer.send("hello").wait(SOON)?;
        attacked.count("pairs", 1);
        // The last one is killed with this process.
        if number == args.count {
            std::mem::forget((here, there, peer));
        }
    }
    sleep_until(end);
    attacked.did = format!("{} over shm", attacked.counted());
    Ok(attacked)
}
