//! `farreach secret`: makes the secret that both sides share.

use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;
use farreach::Secret;
use farreach_text::shell_word;

use crate::exit::Exit;
use crate::terminal;

/// `farreach secret`
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, disable_help_subcommand = true)]
pub(crate) struct SecretArgs {
    #[command(subcommand)]
    command: SecretCommand,
}

#[derive(Debug, Subcommand)]
enum SecretCommand {
    /// Make a new secret in a new file, which only its owner may read
    New {
        /// File to make; an existing one is never changed
        file: PathBuf,
    },
}

const EXAMPLES: &str = "\
Examples:
  farreach secret new farreach.secret

A secret is 256 random bits, written as 64 hexadecimal digits. Both sides
derive the same key pair from it, and each accepts only that key in TLS 1.3.
Every holder of the secret can pretend to be any other. Hosts that do not trust
each other need certificates: farreach tls init.
Instead of a file, both sides may have the digits in the variable
FARREACH_SECRET.";

pub(crate) fn run(args: &SecretArgs) -> Result<Exit> {
    let SecretCommand::New { file } = &args.command;
    Secret::create(file)?;
    let file = shell_word(&file.display().to_string());
    terminal::print(&format!(
        "made {file}: 256 random bits, for its owner only

Copy it to the other host, by a way that nobody else can read:
scp {file} HOST:

On the server, and on a client:
farreach serve --secret-file {file}
farreach ping SERVER --secret-file {file}
"
    ))?;
    Ok(Exit::Ok)
}
