//! `farreach completions`: prints a script for a shell. The script asks this program for
//! completions.

use anyhow::{Context, Result};
use clap::ValueEnum;
use clap_complete::env::{CompleteEnv, EnvCompleter, Shells};

use crate::exit::Exit;
use crate::terminal;

/// The variable by which a shell's script asks this program for completions.
const VARIABLE: &str = "COMPLETE";

/// `farreach completions`
#[derive(Debug, clap::Args)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// Shell: bash, zsh or fish
    #[arg(hide_possible_values = true)]
    shell: Shell,
}

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  source <(farreach completions bash)    for this shell only
  farreach completions bash > /etc/bash_completion.d/farreach
  farreach completions zsh > ~/.zfunc/_farreach
  farreach completions fish > ~/.config/fish/completions/farreach.fish

The script calls farreach for each completion: -d completes the rails of this
host.";

/// Shells that are known.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Answers a shell that asks for completions, and then exits.
pub(crate) fn answer_shell(command: fn() -> clap::Command) {
    CompleteEnv::with_factory(command).var(VARIABLE).complete();
}

/// Prints the script for a shell.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<Exit> {
    let name = match args.shell {
        Shell::Bash => "bash",
        Shell::Zsh => "zsh",
        Shell::Fish => "fish",
    };
    let shells = Shells::builtins();
    let completer: &dyn EnvCompleter = shells.completer(name).context("the shell is unknown")?;
    let mut script = Vec::new();
    completer.write_registration(VARIABLE, "farreach", "farreach", "farreach", &mut script)?;
    terminal::print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Ok)
}
