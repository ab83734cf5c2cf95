//! Dead files: Rust files that no crate contains, and pages that nothing links to.

use std::collections::BTreeSet;

use super::Finding;
use super::links::{links, resolve};
use super::manifest::Manifest;
use super::names::plain;
use super::tree::{File, Tree};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let reached = reached_modules(tree);
    for file in tree.rust().filter(|file| is_source(file) && !reached.contains(&file.path)) {
        findings.push(Finding::new(
            &file.path,
            1,
            "no `mod` declares this file: declare it, or remove the file",
        ));
    }
    let linked = linked_pages(tree);
    for file in tree.files().filter(|file| file.path.starts_with("docs/") && !linked.contains(&file.path)) {
        let message = "no page or comment links to this file: add a link, or remove the file";
        findings.push(Finding::new(&file.path, 1, message));
    }
    findings
}

fn is_source(file: &File) -> bool {
    file.krate().is_some_and(|krate| file.path.starts_with(&format!("{}/src/", directory_of(krate))))
}

fn directory_of(krate: &str) -> String {
    if krate == "xtask" { krate.to_owned() } else { format!("crates/{krate}") }
}

fn reached_modules(tree: &Tree) -> BTreeSet<String> {
    let mut waiting: Vec<String> = roots(tree);
    let mut reached = BTreeSet::new();
    while let Some(path) = waiting.pop() {
        let Some(file) = tree.get(&path) else { continue };
        if !reached.insert(path.clone()) {
            continue;
        }
        if let Some(syntax) = (!file.is_generated()).then(|| file.syntax()).flatten() {
            modules(&syntax.items, &Place::of(&path), &mut waiting);
        }
    }
    reached
}

/// Returns the files that cargo compiles as crate roots.
pub(super) fn roots(tree: &Tree) -> Vec<String> {
    let mut roots = Vec::new();
    for manifest in tree.manifests() {
        let directory = manifest.path.trim_end_matches("/Cargo.toml");
        roots.extend(["src/lib.rs", "src/main.rs"].map(|root| format!("{directory}/{root}")));
        roots
            .extend(Manifest::parse(&manifest.text).target_paths().map(|path| format!("{directory}/{path}")));
        let binaries = format!("{directory}/src/bin/");
        roots.extend(tree.rust().map(|file| file.path.clone()).filter(|path| {
            path.strip_prefix(&binaries).is_some_and(|rest| !rest.contains('/') || rest.ends_with("/main.rs"))
        }));
    }
    roots
}

/// Where the modules of a file are searched.
pub(super) struct Place {
    /// The folder of the file, for `#[path]` and `include!`.
    directory: String,
    /// The folder of its submodules.
    submodules: String,
}

impl Place {
    pub(super) fn of(path: &str) -> Self {
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        let submodules = match name {
            "lib.rs" | "main.rs" | "mod.rs" => directory.to_owned(),
            _ => format!("{directory}/{}", name.trim_end_matches(".rs")),
        };
        Self { directory: directory.to_owned(), submodules }
    }

    /// Of a module that is written inside the file.
    pub(super) fn inside(&self, module: &syn::ItemMod) -> Self {
        let below = format!("{}/{}", self.submodules, plain(&module.ident));
        Self { directory: below.clone(), submodules: below }
    }
}

fn modules(items: &[syn::Item], place: &Place, found: &mut Vec<String>) {
    for item in items {
        match item {
            syn::Item::Mod(module) => {
                if let Some((_, items)) = &module.content {
                    modules(items, &place.inside(module), found);
                } else {
                    found.extend(module_files(module, place));
                }
            }
            syn::Item::Macro(call) if call.mac.path.is_ident("include") => {
                if let Ok(path) = call.mac.parse_body::<syn::LitStr>() {
                    found.extend(resolve(&place.directory, &path.value()));
                }
            }
            _ => {}
        }
    }
}

/// Where the file of a `mod name;` may be.
pub(super) fn module_files(module: &syn::ItemMod, place: &Place) -> Vec<String> {
    if let Some(path) = path_attribute(&module.attrs) {
        return resolve(&place.directory, &path).into_iter().collect();
    }
    let name = plain(&module.ident);
    [format!("{name}.rs"), format!("{name}/mod.rs")].map(|file| format!("{}/{file}", place.submodules)).into()
}

fn path_attribute(attributes: &[syn::Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        syn::Meta::NameValue(meta) if meta.path.is_ident("path") => match &meta.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }) => Some(path.value()),
            _ => None,
        },
        _ => None,
    })
}

/// Returns the files of docs/ that a page links to, or that a Rust file names by their path from
/// the root.
fn linked_pages(tree: &Tree) -> BTreeSet<String> {
    let mut linked = BTreeSet::new();
    for page in tree.with_extension("md") {
        let directory = page.path.rsplit_once('/').map_or("", |(directory, _)| directory);
        linked.extend(
            links(&page.text)
                .into_iter()
                .filter_map(|link| resolve(directory, &link.target))
                .filter(|target| *target != page.path),
        );
    }
    for page in tree.files().filter(|file| file.path.starts_with("docs/")) {
        if tree.rust().any(|file| file.text.contains(&page.path)) {
            linked.insert(page.path.clone());
        }
    }
    linked
}
