//! Dependencies between crates: the rules of ARCHITECTURE.md, checked for the names in the code.

use std::collections::BTreeSet;

use super::Finding;
use super::manifest::Manifest;
use super::names::{Name, names, without_tests};
use super::tree::{File, Tree};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Engine {
    Verbs,
    Fabric,
}

impl Engine {
    /// Returns the folders of `crates/` that may use the C symbols of this library.
    fn homes(self) -> [&'static str; 2] {
        match self {
            Self::Verbs => ["verbs-sys", "verbs"],
            Self::Fabric => ["fabric-sys", "fabric"],
        }
    }
}

pub(super) fn c_symbols(tree: &Tree) -> Vec<Finding> {
    let symbols = Symbols::of(tree);
    let mut findings = Vec::new();
    for file in tree.rust() {
        for name in file.names() {
            for segment in &name.segments {
                let Some(engine) = symbols.engine(segment) else { continue };
                let homes = engine.homes();
                if !file.krate().is_some_and(|krate| homes.contains(&krate)) {
                    findings.push(Finding::new(
                        &file.path,
                        name.line,
                        format!(
                            "`{segment}` is a C symbol, which only crates/{} and crates/{} may use: add what is \
                             needed to the safe crate, and call that",
                            homes[0], homes[1]
                        ),
                    ));
                }
            }
        }
    }
    findings
}

struct Symbols {
    /// The names of librdmacm share their prefix with ordinary words (`rdma_rxe` is a kernel
    /// module), so they are taken from the declarations in `verbs-sys`.
    rdmacm: BTreeSet<String>,
}

impl Symbols {
    fn of(tree: &Tree) -> Self {
        let mut rdmacm = BTreeSet::new();
        for file in tree.rust_in("verbs-sys").filter(|file| file.path.contains("/src/")) {
            let names = names(without_tests(file.tokens()));
            for pair in names.windows(2) {
                let declares = DECLARES.iter().any(|keyword| pair[0].is(keyword));
                let name = &pair[1].segments[0];
                if declares && (name.starts_with("rdma_") || name.starts_with("RDMA_")) {
                    rdmacm.insert(name.clone());
                }
            }
        }
        Self { rdmacm }
    }

    fn engine(&self, identifier: &str) -> Option<Engine> {
        let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| identifier.starts_with(prefix));
        if begins(&["ibv_", "IBV_", "_ibv_", "__ibv_", "___ibv_"]) || self.rdmacm.contains(identifier) {
            Some(Engine::Verbs)
        } else if begins(&["fi_", "FI_"]) {
            Some(Engine::Fabric)
        } else {
            None
        }
    }
}

const DECLARES: &[&str] = &["fn", "struct", "union", "type", "const", "static"];

pub(super) fn engine_crates(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for rule in MAY_NOT_KNOW {
        for file in tree.rust_in(rule.krate).filter(|file| rule.applies_to(file)) {
            for name in file.names() {
                if let Some(other) = rule.others.iter().find(|other| names_crate(name, other)) {
                    findings.push(Finding::new(&file.path, name.line, rule.message(other)));
                }
            }
        }
        // The engine's manifest must have both libraries, for its rails.
        if rule.except.is_some() {
            continue;
        }
        for file in tree.manifests().filter(|file| file.krate() == Some(rule.krate)) {
            for dependency in Manifest::parse(&file.text).dependencies() {
                if rule.others.contains(&dependency.name.as_str()) {
                    findings.push(Finding::new(&file.path, dependency.line, rule.message(&dependency.name)));
                }
            }
        }
    }
    findings
}

fn names_crate(name: &Name, krate: &str) -> bool {
    // A field or a function may have the name of the engine's crate, which is that of the project.
    let is_alone = name.segments.len() == 1 && krate == "farreach";
    name.contains(&krate.replace('-', "_")) && !is_alone
}

struct MayNotKnow {
    krate: &'static str,
    /// A module that is exempt.
    except: Option<&'static str>,
    others: &'static [&'static str],
}

impl MayNotKnow {
    fn applies_to(&self, file: &File) -> bool {
        let Some(except) = self.except else { return true };
        let module = format!("crates/{}/src/{except}", self.krate);
        let in_source = file.path.starts_with(&format!("crates/{}/src/", self.krate));
        in_source && !file.path.starts_with(&format!("{module}/")) && file.path != format!("{module}.rs")
    }

    fn message(&self, other: &str) -> String {
        match self.except {
            Some(except) => {
                format!(
                    "only crates/{}/src/{except} may use {other}: put it behind the trait of a rail",
                    self.krate
                )
            }
            None => format!("crates/{} must not depend on {other}", self.krate),
        }
    }
}

const MAY_NOT_KNOW: &[MayNotKnow] = &[
    MayNotKnow { krate: "engine", except: Some("rails"), others: BOTH },
    MayNotKnow { krate: "memory", except: None, others: BOTH },
    MayNotKnow { krate: "proto", except: None, others: BOTH },
    MayNotKnow { krate: "rail", except: None, others: BOTH },
    MayNotKnow { krate: "shm", except: None, others: BOTH_AND_ENGINE },
    MayNotKnow { krate: "sim", except: None, others: BOTH },
    MayNotKnow { krate: "dylib", except: None, others: BOTH },
    MayNotKnow { krate: "text", except: None, others: BOTH_AND_ENGINE },
    MayNotKnow { krate: "doctor", except: None, others: &["farreach"] },
    MayNotKnow { krate: "verbs-sys", except: None, others: FABRIC },
    MayNotKnow { krate: "verbs", except: None, others: FABRIC },
    MayNotKnow { krate: "fabric-sys", except: None, others: VERBS },
    MayNotKnow { krate: "fabric", except: None, others: VERBS },
];

const VERBS: &[&str] = &["farreach-verbs-sys", "farreach-verbs"];
const FABRIC: &[&str] = &["farreach-fabric-sys", "farreach-fabric"];
const BOTH: &[&str] = &["farreach-verbs-sys", "farreach-verbs", "farreach-fabric-sys", "farreach-fabric"];
const BOTH_AND_ENGINE: &[&str] = &[
    "farreach-verbs-sys",
    "farreach-verbs",
    "farreach-fabric-sys",
    "farreach-fabric",
    "farreach-proto",
    "farreach-rail",
    "farreach",
];

/// The modules that the protocol may use: none with which it could start a thread, take a lock, run
/// a waker, open a socket, read a clock or map memory. A new module or crate has to be reviewed
/// first.
const PROTO_MODULES: &[&str] =
    &["cmp", "collections", "error", "fmt", "hash", "iter", "mem", "num", "ops", "slice", "time"];
const PROTO_DEPENDENCIES: &[&str] =
    &["bitflags", "chacha20", "farreach-text", "postcard", "proptest", "serde", "smallvec", "thiserror"];

pub(super) fn proto_pure(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust_in("proto").filter(|file| file.path.starts_with("crates/proto/src/")) {
        for name in file.names() {
            let of_std =
                name.segments.windows(2).find(|pair| ["std", "core", "alloc"].contains(&pair[0].as_str()));
            // Sharing takes no lock.
            let is_shared = name.contains_path(&["std", "sync", "Arc"]);
            let is_listed = |pair: &[String]| is_shared || PROTO_MODULES.contains(&pair[1].as_str());
            let reaches_out = of_std.is_some_and(|pair| !is_listed(pair))
                || name.contains("Instant")
                || name.contains("SystemTime");
            if reaches_out {
                let message = format!(
                    "proto has no thread, lock, waker, socket or clock: pass the value of `{}` as an \
                     argument",
                    name.display()
                );
                findings.push(Finding::new(&file.path, name.line, message));
            }
        }
    }
    for file in tree.manifests().filter(|file| file.krate() == Some("proto")) {
        for dependency in Manifest::parse(&file.text).dependencies() {
            if !PROTO_DEPENDENCIES.contains(&dependency.name.as_str()) {
                let message =
                    format!("proto must not use {}: it contains only data and decisions", dependency.name);
                findings.push(Finding::new(&file.path, dependency.line, message));
            }
        }
    }
    findings
}

pub(super) fn typed_errors(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in
        tree.manifests().filter(|file| file.krate().is_some_and(|krate| !HAVE_NO_USERS.contains(&krate)))
    {
        for dependency in Manifest::parse(&file.text).dependencies() {
            if dependency.name == "anyhow" {
                let message = "errors of a library are typed: use thiserror; only the command uses anyhow";
                findings.push(Finding::new(&file.path, dependency.line, message));
            }
        }
    }
    findings
}

/// No program links these crates: their errors are only printed.
const HAVE_NO_USERS: &[&str] = &["cli", "hostile", "testkit", "xtask"];
