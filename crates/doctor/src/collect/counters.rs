//! Reads how much the counters of each port grow within a second.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::sysfs::{names_in, rdma_devices};
use crate::probes::Reading;

/// The time between two readings.
const APART: Duration = Duration::from_secs(1);

/// Reads the counters twice. Takes about a second if there are any.
pub(super) fn growth() -> Reading<BTreeMap<String, u64>> {
    let before = look(rdma_devices().iter().map(AsRef::as_ref));
    if before.is_empty() {
        return Reading::Read(BTreeMap::new());
    }
    thread::sleep(APART);
    let after = look(rdma_devices().iter().map(AsRef::as_ref));
    Reading::Read(grown(&before, after))
}

fn look<'a>(devices: impl Iterator<Item = &'a Path>) -> BTreeMap<String, u64> {
    let mut counters = BTreeMap::new();
    for ports in devices.map(|device| device.join("ports")) {
        for port in names_in(&ports) {
            for kind in ["counters", "hw_counters"] {
                let folder = ports.join(&port).join(kind);
                for path in names_in(&folder).into_iter().map(|name| folder.join(name)) {
                    let text = fs::read_to_string(&path).unwrap_or_default();
                    counters
                        .extend(text.trim().parse().ok().map(|value| (path.display().to_string(), value)));
                }
            }
        }
    }
    counters
}

/// Returns the growth of each counter. A counter that shrank was reset, and is left out.
fn grown(before: &BTreeMap<String, u64>, after: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let growth = |(path, now): (String, u64)| {
        let by = now.checked_sub(*before.get(&path)?)?;
        // `lifespan` is a setting among the counters: how long the kernel caches their values.
        (by > 0 && !path.ends_with("/lifespan")).then_some((path, by))
    };
    after.into_iter().filter_map(growth).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_growth_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let counters = folder.path().join("ports/1/hw_counters");
        fs::create_dir_all(&counters).unwrap();
        let look = |values: [&str; 4]| {
            let names = ["out_of_sequence", "sent_pkts", "reset", "lifespan"];
            for (name, value) in names.iter().zip(values) {
                fs::write(counters.join(name), format!("{value}\n")).unwrap();
            }
            look([folder.path()].into_iter())
        };
        let before = look(["3", "10", "9", "10"]);
        let after = look(["5", "10", "1", "12"]);
        let path = counters.join("out_of_sequence").display().to_string();
        assert_eq!(grown(&before, after), BTreeMap::from([(path, 2)]));
    }
}
