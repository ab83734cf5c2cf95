//! The rules of the house, checked. Each is one line of [`RULES`]; a finding says where, which rule, and what to do.

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

/// What `cargo xtask tidy` does.
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
        bail!("tidy: {} findings; `cargo xtask tidy --list` gives the reason of each rule", findings.len());
    }
    println!("tidy: {} rules over {} files, nothing found", RULES.len(), tree.len());
    Ok(())
}

struct Rule {
    name: &'static str,
    why: &'static str,
    check: fn(&Tree) -> Vec<Finding>,
}

/// One violation. `check` leaves the rule's name empty; the runner fills it in.
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
        why: "every rule below reads the parsed file and would pass over one that it cannot read",
        check: tree::unparsed,
    },
    Rule {
        name: "c-symbols",
        why: "what C can do wrong is looked for in four crates and nowhere else",
        check: knowledge::c_symbols,
    },
    Rule {
        name: "engine-crates",
        why: "memory and planning serve both libraries, so they know neither; only a rail knows both sides",
        check: knowledge::engine_crates,
    },
    Rule {
        name: "proto-pure",
        why: "whoever drives the protocol owns threads, time and memory, so it must not reach for them itself",
        check: knowledge::proto_pure,
    },
    Rule {
        name: "typed-errors",
        why: "a library that hides its errors' types takes the decision from its user",
        check: knowledge::typed_errors,
    },
    Rule {
        name: "forbid-unsafe",
        why: "unsafe code lives where a C library is called or memory is mapped, and is reviewed there",
        check: unsafety::check,
    },
    Rule {
        name: "unsafe-table",
        why: "the number of unsafe blocks is told in one place, and an addition to it is seen in review",
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
        why: "whoever adds somebody else's code says why, and the list stays true",
        check: dependencies::check,
    },
    Rule {
        name: "examples",
        why: "a type is understood by how it is used; a verbs programmer tries what he can copy",
        check: examples::check,
    },
    Rule {
        name: "markers",
        why: "what is left to do is an issue; a note in the code is forgotten",
        check: text::markers,
    },
    Rule {
        name: "registry-hosts",
        why: "a machine behind a mirror builds this too: its own settings say where packages come from",
        check: text::registry_hosts,
    },
    Rule {
        name: "developer-paths",
        why: "a path of one person's machine works for that person",
        check: text::developer_paths,
    },
    Rule {
        name: "dead-files",
        why: "a file that no crate or page leads to is neither compiled nor read",
        check: reach::check,
    },
    Rule {
        name: "cycles",
        why: "files that need each other can only be read, changed and tested together",
        check: cycles::check,
    },
    Rule {
        name: "glossary",
        why: "one word for one thing: who knows the field finds its words, and no others for the same",
        check: glossary::check,
    },
    Rule { name: "links", why: "a link that leads nowhere costs each reader a search", check: links::check },
];
