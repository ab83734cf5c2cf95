//! Finds the rails for a transfer from this host to itself, and the cards that are no rails.

use std::fs;
use std::path::{Path, PathBuf};

use farreach::rails::verbs::{self, VerbsSettings};
use farreach_verbs::Error;
use farreach_verbs::device::DeviceList;
use serde::{Deserialize, Serialize};

use crate::rails::{self, RailArgs};
use farreach_doctor::probes::Trial;

/// A rail, or a card that should be one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rail {
    /// `rxe0`, `mlx5_0/2` or `tcp`.
    pub(crate) name: String,
    /// The result, if it is known without a transfer, as for a port that is down.
    pub(crate) failed: Option<Trial>,
}

pub(super) fn look(shm_dir: Option<PathBuf>) -> Vec<Rail> {
    // A directory that cannot be used is reported by a check of its own.
    let (found, _) = rails::look(&RailArgs { shm_dir, ..RailArgs::default() });
    let mut all: Vec<Rail> = Vec::new();
    for rail in found {
        // libfabric offers tcp on each address.
        if all.iter().all(|known| known.name != rail.name) {
            all.push(Rail { name: rail.name, failed: None });
        }
    }
    let has_efa = all.iter().any(|rail| rail.name == "efa");
    match DeviceList::get() {
        Ok(devices) => {
            for device in &devices {
                // A device of a libfabric rail is tried as that rail.
                let is_tried = has_efa && device.driver().as_deref() == Some("efa");
                if let Err(error) = verbs::rails_named(device.name(), &VerbsSettings::default())
                    && !is_tried
                {
                    let failed = Trial::Failed {
                        error: error.operation,
                        cause: Some(error.cause),
                        fix: Some(error.fix),
                    };
                    all.push(Rail { name: device.name().to_owned(), failed: Some(failed) });
                }
            }
        }
        // A check of its own reports a missing library.
        Err(Error::Library(_)) => {}
        Err(error) => all.extend(unlisted(Path::new("/sys/class/infiniband"), &error)),
    }
    all
}

/// Returns the kernel's devices as failed, for when libibverbs could not list any.
fn unlisted(folder: &Path, error: &Error) -> Vec<Rail> {
    let names = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let failed =
        || Trial::Failed { error: error.to_string(), cause: Some(error.cause()), fix: Some(error.fix()) };
    names.map(|name| Rail { name, failed: Some(failed()) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use farreach_verbs::error::Errno;

    #[test]
    fn devices_that_could_not_be_listed_are_told_of() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("mlx5_0")).unwrap();
        let error = Error::Call {
            operation: "ibv_get_device_list",
            subject: "this host".to_owned(),
            errno: Errno(13),
        };
        let rails = unlisted(folder.path(), &error);
        assert!(
            matches!(&rails[..], [Rail { name, failed: Some(Trial::Failed { .. }) }] if name == "mlx5_0"),
            "{rails:?}"
        );
        assert!(unlisted(&folder.path().join("none"), &error).is_empty());
    }
}
