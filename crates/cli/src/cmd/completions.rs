//! `farreach completions`: a shell's script asks this program itself what may follow.

use std::ffi::OsStr;

use anyhow::{Context, Result};
use clap::{CommandFactory, ValueEnum};
use clap_complete::CompletionCandidate;
use clap_complete::env::{CompleteEnv, EnvCompleter, Shells};

use crate::args::Args;
use crate::exit::Exit;
use crate::rails::{self, RailArgs};
use crate::terminal;

/// The variable by which a shell's script asks this program for what may follow.
const VARIABLE: &str = "COMPLETE";

/// `farreach completions`
#[derive(Debug, clap::Args)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// The shell: bash, zsh or fish
    #[arg(hide_possible_values = true)]
    shell: Shell,
}

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  source <(farreach completions bash)    for this shell only
  farreach completions bash > /etc/bash_completion.d/farreach
  farreach completions zsh > ~/.zfunc/_farreach
  farreach completions fish > ~/.config/fish/completions/farreach.fish

The script asks this program what may follow, each time: -d offers the devices
that are there.";

/// Shells that are known.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Answers a shell that asks what may follow, and ends then.
pub(crate) fn answer_shell() {
    CompleteEnv::with_factory(Args::command).var(VARIABLE).complete();
}

/// The script for a shell.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<Exit> {
    let name = match args.shell {
        Shell::Bash => "bash",
        Shell::Zsh => "zsh",
        Shell::Fish => "fish",
    };
    let shells = Shells::builtins();
    let completer: &dyn EnvCompleter = shells.completer(name).context("this shell is not known")?;
    let mut script = Vec::new();
    completer.write_registration(VARIABLE, "farreach", "farreach", "farreach", &mut script)?;
    terminal::print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Ok)
}

/// The rails that are here, for a list with commas between.
pub(crate) fn rail_names(typed: &OsStr) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy();
    let (before, last) = typed.rsplit_once(',').map_or(("", &*typed), |(before, last)| (before, last));
    let (found, _) = rails::look(&RailArgs::default());
    found
        .into_iter()
        .filter(|rail| rail.name.starts_with(last))
        .map(|rail| {
            let whole = if before.is_empty() { rail.name } else { format!("{before},{}", rail.name) };
            CompletionCandidate::new(whole).help(Some(rail.through.into()))
        })
        .collect()
}
