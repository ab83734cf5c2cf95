//! Runs the commands of README on clean machines: every command must succeed and print what README
//! shows.
//!
//! Two things differ from typing the commands. Packages are not installed: the machine is replaced
//! by one that was unpacked with them, from the same archive. And a module that the guest's kernel
//! has already loaded is only checked for.

mod machine;
mod mask;
mod readme;
mod session;

use std::fs;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use self::machine::Machine;
use self::readme::{Section, Step};
use self::session::Session;
use crate::paths;

/// The machine for a section of README.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// A Debian 12 with a C compiler and Rust, and without RDMA.
    Laptop,
    /// A guest whose kernel has Soft-RoCE, with the build of the laptop.
    RdmaKernel,
    /// Not run here; names the task that does.
    Elsewhere(&'static str),
}

/// Every section with commands must be listed: README must not contain commands that are never run.
const PLACES: [(&str, Place); 5] = [
    ("Five minutes", Place::Laptop),
    // Both hosts are one: its network has the address of the other host in README.
    ("Two hosts", Place::Laptop),
    ("With a real RDMA kernel", Place::RdmaKernel),
    ("The first program", Place::Laptop),
    ("Working on it", Place::Elsewhere("`cargo xtask vm test` boots such guests")),
];

/// Runs the commands of README from its beginning to its end.
pub(crate) fn execute() -> Result<()> {
    let started = Instant::now();
    let text = fs::read_to_string(paths::repository().join("README.md")).context("cannot read README.md")?;
    let sections = readme::sections(&text)?;
    for (title, _) in PLACES {
        ensure!(
            sections.iter().any(|section| section.title == title),
            "README.md has no commands in the section `{title}`"
        );
    }
    let mut reader = Reader::default();
    for section in &sections {
        let place = PLACES.iter().find(|(title, _)| *title == section.title);
        let Some((_, place)) = place else {
            bail!(
                "README.md has commands in the section `{}`: add it to PLACES in xtask/src/start/mod.rs",
                section.title
            );
        };
        match place {
            Place::Laptop => reader.follow(section, Machine::Laptop)?,
            Place::RdmaKernel => reader.follow(section, Machine::Guest)?,
            Place::Elsewhere(by) => println!("── README, {}: skipped, {by}", section.title),
        }
    }
    if !reader.complaints.is_empty() {
        bail!("commands of README fail\n{}", reader.complaints.join("\n"));
    }
    println!("README: {} commands passed in {:.0} s", reader.commands, started.elapsed().as_secs_f32());
    Ok(())
}

/// The state while README is followed.
#[derive(Debug, Default)]
struct Reader {
    /// The packages that were installed on the laptop.
    installed: Vec<String>,
    commands: usize,
    complaints: Vec<String>,
}

impl Reader {
    fn follow(&mut self, section: &Section, machine: Machine) -> Result<()> {
        println!("── README, {}: on {machine}", section.title);
        // A guest is a fresh machine; the laptop keeps its packages.
        let mut installed = if machine == Machine::Laptop { self.installed.clone() } else { Vec::new() };
        let mut terminal: Option<Session<'_>> = None;
        let mut parts = parts(&section.steps)?;
        for (number, part) in parts.iter_mut().enumerate() {
            installed.append(&mut part.packages);
            let name = format!("{}-{number}", section.title.to_lowercase().replace(' ', "-"));
            let steps: Vec<&Step> = part.steps.iter().collect();
            self.commands += steps.len();
            let session = Session::new(&name, steps, terminal.as_ref())?;
            machine.run(&session, &installed)?;
            self.complaints.extend(session.judge()?);
            terminal = Some(session);
        }
        if machine == Machine::Laptop {
            self.installed = installed;
        }
        Ok(())
    }
}

/// The steps between two installations.
#[derive(Debug, Default, PartialEq, Eq)]
struct Part {
    /// The packages to install before them.
    packages: Vec<String>,
    steps: Vec<Step>,
}

fn parts(steps: &[Step]) -> Result<Vec<Part>> {
    let mut parts = vec![Part::default()];
    for step in steps {
        let typed: Vec<&str> = step.command.split(' ').filter(|word| *word != "sudo").collect();
        match typed[..] {
            ["apt-get", "install", ..] => {
                let packages: Vec<String> = typed[2..]
                    .iter()
                    .filter(|word| !word.starts_with('-'))
                    .map(|&word| word.to_owned())
                    .collect();
                parts.push(Part { packages, steps: Vec::new() });
                continue;
            }
            _ => ensure!(
                typed.len() == step.command.split(' ').count(),
                "README.md:{}: the only supported command with sudo is `sudo apt-get install`",
                step.line
            ),
        }
        let mut step = step.clone();
        if let ["modprobe", module] = typed[..] {
            step.command = format!("test -d /sys/module/{module}");
        }
        if let Some(part) = parts.last_mut() {
            part.steps.push(step);
        }
    }
    parts.retain(|part| !part.steps.is_empty() || !part.packages.is_empty());
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(command: &str) -> Step {
        Step { line: 1, command: command.to_owned(), shown: Vec::new() }
    }

    #[test]
    fn an_installation_is_another_machine() {
        let steps = ["cargo build", "sudo apt-get install -y a b", "farreach x"].map(step);
        let parts = parts(&steps).unwrap();
        assert_eq!(parts[0], Part { packages: Vec::new(), steps: vec![step("cargo build")] });
        assert_eq!(
            parts[1],
            Part { packages: vec!["a".to_owned(), "b".to_owned()], steps: vec![step("farreach x")] }
        );
    }

    #[test]
    fn what_cannot_be_followed_is_not_passed_over() {
        assert!(parts(&[step("sudo reboot")]).is_err());
        let loaded = parts(&[step("modprobe rdma_rxe")]).unwrap();
        assert_eq!(loaded[0].steps[0].command, "test -d /sys/module/rdma_rxe");
    }
}
