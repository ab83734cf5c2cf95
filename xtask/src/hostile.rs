//! `cargo xtask hostile`: attacks on an engine and on `farreach serve`, each with the service of
//! honest clients before, during and after it. The program is `crates/hostile`; this task builds it
//! and runs it where libfabric is.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::binaries::all_test_binaries;
use crate::cell::{ADDRESS, Cell};
use crate::paths;
use crate::process::{command, run};
use crate::vm::Userland;

/// `cargo xtask hostile`
#[derive(Debug, clap::Args)]
pub(crate) struct HostileArgs {
    /// Attack with small counts, with the build of the tests.
    #[arg(long)]
    short: bool,

    /// Attack without honest clients: only what attackers reach, memory and what is left behind are
    /// judged, and not the service.
    #[arg(long)]
    no_load: bool,

    /// The rail: one of libfabric's providers, because this machine has no card.
    #[arg(long, default_value = "tcp")]
    rail: String,

    /// The generation of the libraries.
    #[arg(long, value_enum, default_value = "newest")]
    with: Userland,

    /// Switch off the defences that settings can switch off, to see the bars missed.
    #[arg(long)]
    weak: bool,

    /// Also write the figures to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Run only the lines whose names contain one of these.
    filters: Vec<String>,
}

/// Runs the table. Returns an error if a bar was missed.
pub(crate) fn execute(args: &HostileArgs) -> Result<()> {
    let folder = build(args.short)?;
    let root = args.with.root().get()?;
    let mut cell = Cell::new(&root.path)?;
    cell.own_network()?;
    let figures = paths::target().join("hostile.json");
    let [program, farreach, figures] = [folder.join("hostile"), folder.join("farreach"), figures].map(text);
    let (program, farreach, figures) = (program?, farreach?, figures?);
    let mut words = vec![program.as_str(), "drive", "--rail", &args.rail];
    words.extend(["--farreach", &farreach, "--json", &figures]);
    words.extend(["--outside", ADDRESS]);
    words.extend(args.short.then_some("--short"));
    words.extend(args.no_load.then_some("--no-load"));
    words.extend(args.weak.then_some("--weak"));
    words.extend(args.filters.iter().map(String::as_str));
    println!("── with the libraries of {}", root.origin);
    let status = cell.command(paths::repository(), &words).status()?;
    if let Some(file) = &args.json {
        std::fs::copy(&figures, file).with_context(|| format!("cannot write {}", file.display()))?;
    }
    ensure!(status.success(), "a bar was missed; all figures are in {figures}");
    Ok(())
}

/// Builds the program and the command. Returns their folder.
fn build(is_short: bool) -> Result<PathBuf> {
    if is_short {
        // Both have integration tests, with which cargo builds the programs.
        all_test_binaries()?;
        return Ok(paths::target().join("debug"));
    }
    // As fast as what is shipped, and with the checks that turn an overflow into a panic.
    let words = [
        "build",
        "--quiet",
        "--profile",
        "sim",
        "--package",
        "farreach-hostile",
        "--package",
        "farreach-cli",
    ];
    run(command("cargo", words).current_dir(paths::repository()))?;
    Ok(paths::target().join("sim"))
}

fn text(path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    path.to_str().map(ToOwned::to_owned).with_context(|| format!("{} is not valid UTF-8", path.display()))
}
