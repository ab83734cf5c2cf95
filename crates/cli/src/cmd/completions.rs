//! `farreach completions` and `farreach man`: both come from the flags themselves.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{CommandFactory, ValueEnum};
use clap_complete::CompletionCandidate;
use clap_complete::env::{CompleteEnv, EnvCompleter, Shells};

use crate::args::Args;
use crate::exit::{Exit, Failure};
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
  farreach completions zsh  > ~/.zfunc/_farreach
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

/// `farreach man`
#[derive(Debug, clap::Args)]
#[command(after_help = MAN_EXAMPLES)]
pub(crate) struct ManArgs {
    /// Subcommand; without it, the page of farreach itself
    command: Option<String>,

    /// Write all pages into this folder instead
    #[arg(long, value_name = "FOLDER", conflicts_with = "command")]
    dir: Option<PathBuf>,
}

const MAN_EXAMPLES: &str = "\
Examples:
  farreach man ping | man -l -
  farreach man --dir /usr/local/share/man/man1";

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

/// The manual.
pub(crate) fn man(args: &ManArgs) -> Result<Exit> {
    let mut command = Args::command();
    command.build();
    if let Some(dir) = &args.dir {
        fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(command, dir)).map_err(|error| {
            Failure::new(Exit::Failed, format!("write the manual to {}", dir.display()))
                .cause(error.to_string())
                .fix("name a folder that you may write to")
        })?;
        return Ok(Exit::Ok);
    }
    let page = match &args.command {
        None => command,
        Some(name) => {
            command.find_subcommand(name).filter(|it| !it.is_hide_set()).cloned().ok_or_else(|| {
                Failure::new(Exit::Usage, format!("there is no subcommand {name}"))
                    .fix("see `farreach --help`")
            })?
        }
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page).render(&mut text).map_err(io::Error::other)?;
    terminal::print(&String::from_utf8_lossy(&text))?;
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
            CompletionCandidate::new(whole).help(Some(rail.native.into()))
        })
        .collect()
}
