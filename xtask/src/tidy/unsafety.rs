//! Where unsafe code may be at all.

use super::Finding;
use super::names::attributes;
use super::tree::{File, Tree};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (krate, level) in LEVELS {
        let roots = ["lib.rs", "main.rs"].map(|root| format!("crates/{krate}/src/{root}"));
        for root in roots.iter().filter_map(|root| tree.get(root)) {
            if !sets_level(root, level) {
                findings.push(Finding::new(&root.path, 1, format!("write #![{level}(unsafe_code)] here")));
            }
        }
    }
    // A `deny` can be lifted by any module, so in the engine the keyword itself is looked for.
    for file in tree.rust_in("engine").filter(|file| is_engine_outside_provider(file)) {
        for name in file.names().iter().filter(|name| name.is("unsafe")) {
            let message = "unsafe code of the engine belongs in src/provider/";
            findings.push(Finding::new(&file.path, name.line, message));
        }
    }
    findings
}

/// `deny` where one module may lift it again, which `forbid` does not let it.
const LEVELS: &[(&str, &str)] = &[("core", "forbid"), ("cli", "forbid"), ("engine", "deny")];

fn is_engine_outside_provider(file: &File) -> bool {
    let provider =
        file.path.starts_with("crates/engine/src/provider/") || file.path == "crates/engine/src/provider.rs";
    file.path.starts_with("crates/engine/src/") && !provider
}

fn sets_level(root: &File, level: &str) -> bool {
    let mut found = Vec::new();
    attributes(root.tokens(), &mut found);
    let wanted = format!("{level}(unsafe_code)");
    found.iter().any(|attribute| attribute.tokens.to_string().replace(' ', "") == wanted)
}
