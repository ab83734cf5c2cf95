//! How the command ends: one meaning for each code, the same for every subcommand.

use std::io;
use std::process::ExitCode;

use crate::terminal;

/// Why the command ended. Usage mistakes (2) are clap's to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All went well.
    Ok,
    /// A test or check failed.
    Failed,
    /// There is no device, or it lacks what was asked for.
    Unavailable,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Ok => 0,
            Exit::Failed => 1,
            Exit::Unavailable => 3,
        })
    }
}

/// Tells an error to the person and gives the code to end with.
pub(crate) fn from_error(error: &anyhow::Error) -> Exit {
    // Whoever read our output has had enough (`| head`): that is not an error of ours.
    let is_closed_pipe = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    if error.downcast_ref().is_some_and(is_closed_pipe) {
        return Exit::Ok;
    }
    terminal::tell_error(error);
    Exit::Failed
}
