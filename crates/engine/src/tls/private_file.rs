//! Reads files that are for their owner alone: private keys and secrets.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use farreach_text::shell_word;
use zeroize::Zeroizing;

use crate::Error;

/// Reads a file of at most `max` bytes. Refuses one that others can read or change. `unreadable`
/// returns the error for a file that cannot be read.
pub(super) fn read(
    path: &Path,
    max: usize,
    operation: &str,
    unreadable: &dyn Fn(io::Error) -> Error,
) -> Result<Zeroizing<Vec<u8>>, Error> {
    let file = File::open(path).map_err(unreadable)?;
    // The opened file is checked, not its name, which may lead to another file by now.
    let status = file.metadata().map_err(unreadable)?;
    // Before the mode is checked: `chmod 600` is no fix for a directory.
    if status.is_dir() {
        return Err(unreadable(io::ErrorKind::IsADirectory.into()));
    }
    // The effective user, with whose rights the file was opened.
    let user = rustix::process::geteuid().as_raw();
    if let Some(cause) = exposure(status.mode(), status.uid(), user) {
        let shown = shell_word(&path.to_string_lossy());
        // Only the owner can change the mode, and only root can change the owner.
        let fix = match status.uid() {
            owner if owner == user => format!("give only its owner access:\nchmod 600 {shown}"),
            0 => format!("give only root and a group access, as root:\nchmod 640 {shown}"),
            _ => format!(
                "check what it contains, and make it a file of this user, as root:\n\
                 chown {user} {shown} && chmod 600 {shown}"
            ),
        };
        return Err(Error::tls(operation, &cause, &fix));
    }
    // It does not grow, because that would leave copies.
    let mut bytes = Zeroizing::new(Vec::with_capacity(max + 1));
    // One byte more than allowed shows that a file is longer, without reading all of it:
    // `/dev/zero` has no end.
    file.take(max as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > max {
        let cause = format!("it has more than {max} bytes");
        return Err(Error::tls(operation, &cause, "check that this is the right file"));
    }
    Ok(bytes)
}

/// Returns why others than the user can read or change a file, if they can. As for the keys of other
/// servers, the file may be root's, and root may let a group read it, for services that do not run as
/// root.
fn exposure(mode: u32, owner: u32, user: u32) -> Option<String> {
    // Also with a strict mode: another owner can change it at any time, and so choose the key.
    if owner != user && owner != 0 {
        return Some(format!("it belongs to another user (uid {owner}), who can read and change it"));
    }
    // The bits of the owner do not matter: the owner is this user or root.
    let allowed = if owner == 0 { 0o740 } else { 0o700 };
    let is_open = mode & 0o777 & !allowed != 0;
    is_open.then(|| format!("other users have access to it (mode {:04o})", mode & 0o7777))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_for_its_owner_and_for_root_alone() {
        let user = 1000;
        for (mode, owner, is_fine) in [
            (0o100_600, user, true),
            (0o100_400, user, true),
            (0o100_640, user, false),
            (0o100_620, user, false),
            (0o100_604, user, false),
            (0o100_666, user, false),
            // Only root may let a group read.
            (0o100_640, 0, true),
            (0o100_440, 0, true),
            (0o100_660, 0, false),
            (0o100_604, 0, false),
            // Also if this process may read it.
            (0o100_600, 1001, false),
            (0o100_644, 1001, false),
        ] {
            assert_eq!(exposure(mode, owner, user).is_none(), is_fine, "{mode:o} of {owner}");
        }
        // Root is no exception: the other user chooses the key.
        assert!(exposure(0o100_600, 1000, 0).is_some_and(|cause| cause.contains("uid 1000")));
    }
}
