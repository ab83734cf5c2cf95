//! `farreach man`: generates the manual from the flags and the help.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::exit::{Exit, Failure};
use crate::terminal;

/// `farreach man`
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ManArgs {
    /// Subcommand, such as ping or tls-init; by default the page of farreach itself
    command: Option<String>,

    /// Write all pages to this folder
    #[arg(long, value_name = "FOLDER", conflicts_with = "command")]
    dir: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  farreach man ping | man -l -
  farreach man --dir /usr/local/share/man/man1";

/// Prints a page, or writes all pages.
pub(crate) fn run(args: &ManArgs, command: Command) -> Result<Exit> {
    // The subcommand `help` would have a page for each subcommand too.
    let mut command = command.disable_help_subcommand(true);
    command.build();
    if let Some(dir) = &args.dir {
        write_all(&command, dir).map_err(|error| {
            Failure::new(Exit::Failed, format!("cannot write the manual to {}", dir.display()))
                .cause(error.to_string())
                .fix("choose a folder with write permission")
        })?;
        return Ok(Exit::Ok);
    }
    let wanted = match &args.command {
        None => &command,
        Some(name) => pages(&command)
            .into_iter()
            .find(|it| page_name(it) == format!("farreach-{name}"))
            .ok_or_else(|| {
                Failure::new(Exit::Usage, format!("{name} is not a subcommand"))
                    .fix("list the subcommands:\nfarreach --help")
            })?,
    };
    terminal::print(&page(wanted)?)?;
    Ok(Exit::Ok)
}

fn subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|it| !it.is_hide_set())
}

/// Returns every command that has a page: the subcommands, theirs, and farreach itself.
fn pages(command: &Command) -> Vec<&Command> {
    let nested = subcommands(command).flat_map(pages);
    nested.chain([command]).collect()
}

fn write_all(command: &Command, dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    for command in pages(command) {
        fs::write(dir.join(format!("{}.1", page_name(command))), page(command)?)?;
    }
    Ok(())
}

/// Returns the name of a page: `farreach-ping`.
fn page_name(command: &Command) -> &str {
    command.get_display_name().unwrap_or(command.get_name())
}

fn page(command: &Command) -> io::Result<String> {
    let after_help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let more = More::of(&after_help);
    let source = format!("farreach {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).title(page_name(command)).source(source);
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    let usage = command.clone().render_usage().to_string();
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]).text([bold(usage.trim_start_matches("Usage: "))]);
    roff.control("SH", ["DESCRIPTION"]);
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    roff.text([roman(if about.ends_with('?') { about } else { about + "." })]);
    for paragraph in &more.paragraphs {
        roff.control("PP", []).text([roman(paragraph)]);
    }
    roff.to_writer(&mut text)?;
    man.render_options_section(&mut text)?;
    if subcommands(command).next().is_some() {
        man.render_subcommands_section(&mut text)?;
    }
    let mut roff = Roff::new();
    more.write_lists(&mut roff);
    if let Some(codes) = &more.exit_code {
        roff.control("SH", ["EXIT STATUS"]).text([roman(codes)]);
    }
    if subcommands(command).next().is_none() {
        roff.control("SH", ["SEE ALSO"]).text([bold("farreach"), roman("(1)")]);
    }
    roff.to_writer(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The help text below the options, by its parts.
#[derive(Debug, Default, PartialEq, Eq)]
struct More {
    paragraphs: Vec<String>,
    /// A title and its lines, each.
    lists: Vec<(String, Vec<String>)>,
    exit_code: Option<String>,
}

impl More {
    fn of(help: &str) -> Self {
        let mut more = Self::default();
        for part in help.split("\n\n").filter(|part| !part.is_empty()) {
            let mut lines = part.lines();
            match lines.next().and_then(|first| first.strip_suffix(':')) {
                Some(title) => {
                    more.lists
                        .push((title.to_uppercase(), lines.map(|line| line.trim().to_owned()).collect()));
                }
                None => {
                    let (text, codes) = part.split_once("Exit code: ").unwrap_or((part, ""));
                    let joined = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
                    more.paragraphs.extend((!text.is_empty()).then(|| joined(text)));
                    if !codes.is_empty() {
                        more.exit_code = Some(joined(codes));
                    }
                }
            }
        }
        more
    }

    fn write_lists(&self, roff: &mut Roff) {
        for (title, lines) in &self.lists {
            roff.control("SH", [title.replace("EXIT CODES", "EXIT STATUS").as_str()]);
            if title == "EXAMPLES" {
                for line in lines {
                    // Two spaces separate a command from its description.
                    let (typed, meaning) = line.split_once("  ").unwrap_or((line, ""));
                    roff.control("TP", []).text([bold(typed)]).text([roman(meaning.trim())]);
                }
            } else {
                roff.control("nf", []);
                for line in lines {
                    roff.text([roman(line)]);
                }
                roff.control("fi", []);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_told_apart_into_the_parts_of_a_page() {
        let more = More::of("Examples:\n  a b   why\n  c\n\nIt is\nso.\nExit code: 0 if\nwell.");
        let lines = vec!["a b   why".to_owned(), "c".to_owned()];
        let expected = More {
            paragraphs: vec!["It is so.".to_owned()],
            lists: vec![("EXAMPLES".to_owned(), lines)],
            exit_code: Some("0 if well.".to_owned()),
        };
        assert_eq!(more, expected);
    }
}
