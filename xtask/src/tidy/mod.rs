//! The house rules. Each is one line of [`RULES`]. A finding names the place, the rule, and the
//! fix.

mod cycles;
mod dependencies;
mod examples;
mod glossary;
mod knowledge;
mod links;
mod manifest;
mod names;
mod reach;
pub(crate) mod strings;
#[cfg(test)]
mod tests;
mod text;
mod tree;
mod unit;
mod unsafety;

use std::fmt;

use anyhow::{Result, bail};

use crate::paths;
use tree::Tree;

/// Arguments of `cargo xtask tidy`.
#[derive(Debug, clap::Args)]
pub(crate) struct TidyArgs {
    /// Print the rules with their reasons, and check nothing
    #[arg(long)]
    list: bool,
}

/// Runs `cargo xtask tidy`.
pub(crate) fn execute(args: &TidyArgs) -> Result<()> {
    if !args.list {
        return run();
    }
    for rule in RULES {
        println!("{:<18} {}", rule.name, rule.why);
    }
    Ok(())
}

/// Checks the repository against every rule.
pub(crate) fn run() -> Result<()> {
    let tree = Tree::read(paths::repository())?;
    let findings = check(&tree);
    for finding in &findings {
        eprintln!("{finding}");
    }
    if !findings.is_empty() {
        bail!("tidy: {} findings; `cargo xtask tidy --list` prints the reason of each rule", findings.len());
    }
    println!("tidy: {} rules over {} files, nothing found", RULES.len(), tree.len());
    Ok(())
}

struct Rule {
    name: &'static str,
    why: &'static str,
    check: fn(&Tree) -> Vec<Finding>,
}

/// One violation. `check` leaves the name of the rule empty, and the runner sets it.
#[derive(Debug)]
struct Finding {
    path: String,
    line: usize,
    rule: &'static str,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, rule: "", message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: [{}] {}", self.path, self.line, self.rule, self.message)
    }
}

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for rule in RULES {
        findings.extend((rule.check)(tree).into_iter().map(|finding| Finding { rule: rule.name, ..finding }));
    }
    findings
}

const RULES: &[Rule] = &[
    Rule {
        name: "rust-parses",
        why: "every rule below reads the parsed file and would skip one that cannot be parsed",
        check: tree::unparsed,
    },
    Rule {
        name: "c-symbols",
        why: "calls of C are reviewed in four crates, and must not be elsewhere",
        check: knowledge::c_symbols,
    },
    Rule {
        name: "engine-crates",
        why: "memory and planning are used with both libraries, so they depend on neither; only a rail \
              depends on both sides",
        check: knowledge::engine_crates,
    },
    Rule {
        name: "proto-pure",
        why: "the driver of the protocol owns threads, time and memory, so the protocol must not use them",
        check: knowledge::proto_pure,
    },
    Rule {
        name: "typed-errors",
        why: "its user decides how an error of a library is handled",
        check: knowledge::typed_errors,
    },
    Rule {
        name: "forbid-unsafe",
        why: "unsafe code is allowed where a C library is called or memory is mapped, and is reviewed there",
        check: unsafety::check,
    },
    Rule {
        name: "unsafe-table",
        why: "the number of unsafe blocks is written in one place, so that an addition is visible in review",
        check: unsafety::table,
    },
    Rule {
        name: "manifests",
        why: "one version, licence, lint set and dependency version for all crates",
        check: manifest::check,
    },
    Rule {
        name: "published",
        why: "a published crate contains no simulated card and nothing else that only tests need",
        check: manifest::published,
    },
    Rule {
        name: "dependencies",
        why: "each third-party crate has a documented reason, and the list is complete",
        check: dependencies::check,
    },
    Rule {
        name: "examples",
        why: "an example shows how a type is used, and can be copied",
        check: examples::check,
    },
    Rule {
        name: "markers",
        why: "open work belongs in an issue; a note in the code is forgotten",
        check: text::markers,
    },
    Rule {
        name: "registry-hosts",
        why: "the settings of a machine define where packages come from, for example a mirror",
        check: text::registry_hosts,
    },
    Rule {
        name: "developer-paths",
        why: "a path of one developer's machine does not exist on others",
        check: text::developer_paths,
    },
    Rule {
        name: "dead-files",
        why: "a file that no crate or page refers to is neither compiled nor read",
        check: reach::check,
    },
    Rule {
        name: "cycles",
        why: "files that need each other can only be read, changed and tested together",
        check: cycles::check,
    },
    Rule {
        name: "glossary",
        why: "one word for one thing, and the field's word where there is one",
        check: glossary::check,
    },
    Rule {
        name: "unit",
        why: "a service that strangers may connect to has no more rights than it needs",
        check: unit::check,
    },
    Rule { name: "links", why: "a broken link costs each reader a search", check: links::check },
];
