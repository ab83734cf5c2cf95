//! Tries what the rail within a host needs from the kernel, and its directory.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use farreach_shm::{Directory, DirectoryError, Survey};

use super::errno::errno_words;
use crate::probes::{Refused, Shm, ShmDirectory, ShmDirectoryProblem};

/// Tries what the rail within a host needs, and whether processes can meet in this directory. It
/// leaves nothing behind.
///
/// ```
/// use farreach_doctor::collect;
///
/// let volume = tempfile::tempdir()?;
/// let shm = collect::shm(Some(volume.path()));
/// assert_eq!(shm.directory.unwrap().problem, None);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn shm(directory: Option<&Path>) -> Shm {
    let survey = Survey::take();
    let refused = survey.obstacles.iter().map(|it| Refused::new(it.call, words(&it.error)));
    Shm {
        refused: refused.collect(),
        read_only_seal: survey.read_only_seal.as_ref().map(words),
        peer_pidfd: survey.peer_pidfd.as_ref().map(words),
        directory: directory.map(|path| look_at(path, &survey)),
    }
}

fn look_at(path: &Path, survey: &Survey) -> ShmDirectory {
    let metadata = fs::metadata(path).ok();
    ShmDirectory {
        path: path.to_string_lossy().into_owned(),
        user: rustix::process::geteuid().as_raw(),
        user_outside: survey.place.as_ref().map(|place| place.user),
        owner: metadata.as_ref().map(MetadataExt::uid),
        mode: metadata.map(|it| format!("{:04o}", it.permissions().mode() & 0o7777)),
        problem: attempt(path, survey).err(),
    }
}

fn attempt(path: &Path, survey: &Survey) -> Result<(), ShmDirectoryProblem> {
    let problem = |error| match error {
        DirectoryError::OtherOwner { .. } | DirectoryError::UnknownUser { .. } => {
            ShmDirectoryProblem::OtherOwner
        }
        DirectoryError::OthersCanWrite { .. } => ShmDirectoryProblem::OthersCanWrite,
        DirectoryError::Call { call, error, .. } => {
            ShmDirectoryProblem::Refused(Refused::new(call, words(&error)))
        }
        other => ShmDirectoryProblem::Refused(Refused::new("open", other.to_string())),
    };
    let directory = Directory::open(path).map_err(problem)?;
    // A link needs these calls wherever its sockets are. An error of the link would hide that.
    if let Some(obstacle) = survey.obstacles.first() {
        let reason = format!("{} is refused; the check shm has the fix", obstacle.call);
        return Err(ShmDirectoryProblem::NotTried(reason));
    }
    Survey::try_directory(&directory).map_err(problem)
}

fn words(error: &io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), errno_words)
}
