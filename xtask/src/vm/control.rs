//! The folder that configures a guest: its scripts, environment, shares and command.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::kernel::Kernel;
use super::spec::{Place, Task};
use crate::paths;

/// Writes the control folder. Returns the folders of the host to share with the guest, each at its
/// own path.
pub(crate) fn write(folder: &Path, kernel: &Kernel, place: Place, task: &Task) -> Result<Vec<PathBuf>> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let put = |name: &str, text: &str| -> Result<()> {
        std::fs::write(folder.join(name), text).with_context(|| format!("cannot write {name} for the guest"))
    };
    put("boot.sh", include_str!("guest/boot.sh"))?;
    put("topology.sh", include_str!("guest/topology.sh"))?;
    put("host", include_str!("guest/host"))?;

    let shares = shares();
    put("shares", &shares.iter().map(|path| format!("{}\n", path.display())).collect::<String>())?;
    let (role, terminal) = match task {
        Task::Command(_) => ("command", ""),
        Task::Shell { terminal } => ("shell", terminal.as_str()),
        Task::Agent => ("agent", ""),
    };
    let path = format!("{}:$PATH", paths::target().join("debug").display());
    let mut environment = format!("export PATH=\"{path}\"\n");
    for (name, value) in [
        ("FARREACH_GUEST_ROLE", role),
        ("FARREACH_TERMINAL", terminal),
        ("FARREACH_TOPOLOGY", place.name()),
        ("FARREACH_KERNEL", kernel.version.as_str()),
        ("FARREACH_DIRECTORY", &paths::repository().display().to_string()),
        ("RUST_BACKTRACE", "1"),
    ] {
        environment.push_str(&format!("export {name}={}\n", quoted(value)));
    }
    put("environment", &environment)?;
    if let Task::Command(words) = task {
        put(
            "command",
            &format!("{}\n", words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")),
        )?;
    }
    Ok(shares)
}

/// Returns the repository, and the build folder if it is elsewhere.
fn shares() -> Vec<PathBuf> {
    let repository = paths::repository().to_owned();
    let target = paths::target();
    if target.starts_with(&repository) { vec![repository] } else { vec![repository, target] }
}

/// Quotes a word for the shell, whatever it contains.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_the_shell() {
        for word in ["plain", "two words", "it's", "$HOME `date` \"x\"", "*", ""] {
            let out = crate::process::output(&mut crate::process::command(
                "sh",
                ["-c", &format!("printf %s {}", quoted(word))],
            ));
            assert_eq!(out.unwrap(), word);
        }
    }
}
