//! Where unsafe code is allowed, and how much of it there is.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::Finding;
use super::tree::{File, Tree};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for krate in WITHOUT {
        let roots = ["lib.rs", "main.rs"].map(|root| format!("crates/{krate}/src/{root}"));
        for root in roots.iter().filter_map(|root| tree.get(root)) {
            if !forbids(root) {
                findings.push(Finding::new(&root.path, 1, "add #![forbid(unsafe_code)] here"));
            }
        }
    }
    findings
}

/// The crates without unsafe code.
const WITHOUT: &[&str] = &["proto", "rail", "engine", "doctor", "cli", "hostile"];

fn forbids(root: &File) -> bool {
    let attributes = root.syntax().map_or(&[][..], |syntax| &syntax.attrs);
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) => list.path.is_ident("forbid") && list.tokens.to_string() == "unsafe_code",
        _ => false,
    })
}

const PAGE: &str = "docs/UNSAFE.md";
/// The section of that page with the table `| crate | blocks before | now | files before | now |`.
const SECTION: &str = "## How much there is";

/// Compares the table of unsafe blocks with the sources, so that a new block requires a change of
/// that page.
pub(super) fn table(tree: &Tree) -> Vec<Finding> {
    let page = tree.get(PAGE).map_or("", |page| &page.text);
    let mut findings = Vec::new();
    for krate in COUNTED {
        let counts: Vec<_> = sources(tree, krate).map(|file| blocks(file.tokens())).collect();
        let (blocks, files) = (counts.iter().sum(), counts.iter().filter(|&&count| count > 0).count());
        let mut section = page.lines().zip(1..).skip_while(|(text, _)| *text != SECTION);
        let row = section.find_map(|(text, line)| Some((line, told(text, krate)?)));
        let (line, told) = row.unwrap_or((1, (0, 0)));
        if told != (blocks, files) {
            let message = format!("{krate} has {blocks} unsafe blocks in {files} files: write that here");
            findings.push(Finding::new(PAGE, line, message));
        }
    }
    findings
}

/// The crates that have unsafe blocks and are not bindings.
const COUNTED: &[&str] = &["memory", "shm", "verbs", "fabric", "sim"];

fn sources<'a>(tree: &'a Tree, krate: &'a str) -> impl Iterator<Item = &'a File> {
    let folder = format!("crates/{krate}/src/");
    tree.rust_in(krate).filter(move |file| file.path.starts_with(&folder))
}

/// Returns the blocks and files of a crate in a line of the table, if the line is about that crate.
fn told(line: &str, krate: &str) -> Option<(usize, usize)> {
    let cells: Vec<_> = line.split('|').map(str::trim).collect();
    let [_, name, _, blocks, _, files, _] = cells[..] else { return None };
    let number = |cell: &str| cell.split(|char: char| !char.is_ascii_digit()).next()?.parse().ok();
    (name == format!("`{krate}`")).then(|| Some((number(blocks)?, number(files)?)))?
}

/// Counts the unsafe blocks among the tokens, at any depth.
fn blocks(tokens: TokenStream) -> usize {
    let (mut count, mut is_after_unsafe) = (0, false);
    for token in tokens {
        if let TokenTree::Group(group) = &token {
            count += usize::from(is_after_unsafe && group.delimiter() == Delimiter::Brace);
            count += blocks(group.stream());
        }
        is_after_unsafe = matches!(&token, TokenTree::Ident(ident) if ident == "unsafe");
    }
    count
}
