//! The public API of the published libraries, as lists in the repository, so that a change is
//! visible in review.
//!
//! The lists come from rustdoc's JSON, which is not stable: if a release of rustc has another
//! format, another release of the crate `public-api` is needed, and an error says so.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::paths;
use crate::process::{command, run};

#[derive(Debug, clap::Args)]
pub(crate) struct ApiArgs {
    /// Compare the lists with the code instead of writing them
    #[arg(long)]
    check: bool,
}

/// The published libraries. The sys crates are not listed: their bindings are such lists
/// themselves, and `bindings --check` compares them.
const LIBRARIES: &[&str] = &[
    "farreach",
    "farreach-memory",
    "farreach-verbs",
    "farreach-fabric",
    "farreach-proto",
    "farreach-rail",
    "farreach-shm",
    "farreach-doctor",
    "farreach-dylib",
    "farreach-text",
];

/// The folder of the lists.
const FOLDER: &str = "docs/api";
const INDEX: &str = "docs/API.md";

pub(crate) fn execute(args: &ApiArgs) -> Result<()> {
    let rustdoc = wrapper()?;
    let mut index = String::from(INDEX_HEAD);
    let mut differences = String::new();
    for package in LIBRARIES {
        let list = List::of(package, &rustdoc)?;
        writeln!(index, "{}", list.row())?;
        differences += &write_or_compare(&format!("{FOLDER}/{package}.txt"), &list.text(), args.check)?;
    }
    differences += &write_or_compare(INDEX, &index, args.check)?;
    if !differences.is_empty() {
        bail!("the public API has changed; `cargo xtask api` updates the lists:\n{differences}");
    }
    println!(
        "api: {} libraries, {}",
        LIBRARIES.len(),
        if args.check { "lists are up to date" } else { "lists written" }
    );
    Ok(())
}

const INDEX_HEAD: &str = "\
# The public API

Each file lists every public item of a published library, one per line. `cargo xtask api` writes the
files, and `cargo xtask api --check`, which CI runs, compares them with the code: a change of the API
is a change of these files. Derived traits and blanket implementations are not listed. Hidden items
are those that only tests and other crates of this repository use; they are listed and counted.

The sys crates are not listed here. Their `src/bindings.rs` is such a list.

| crate | types and functions | fields and variants | implemented traits | hidden |
|---|---|---|---|---|
";

/// The public items of one library, as lines of Rust.
struct List {
    package: &'static str,
    lines: Vec<String>,
    /// Lines of items that are hidden in the documentation.
    hidden: BTreeSet<String>,
}

impl List {
    fn of(package: &'static str, rustdoc: &Path) -> Result<Self> {
        let shown: BTreeSet<_> = items(package, rustdoc, &[])?.into_iter().collect();
        let lines = items(package, rustdoc, &["--document-hidden-items"])?;
        let hidden = lines.iter().filter(|line| !shown.contains(*line)).cloned().collect();
        Ok(Self { package, lines, hidden })
    }

    fn text(&self) -> String {
        let mut text = format!("# The public items of `{}`, written by `cargo xtask api`.\n", self.package);
        for line in &self.lines {
            let mark = if self.hidden.contains(line) { "hidden: " } else { "" };
            text.push_str(&format!("{mark}{line}\n"));
        }
        text
    }

    fn row(&self) -> String {
        let count = |kind| self.lines.iter().filter(|line| Kind::of(line) == kind).count();
        let hidden = self.hidden.iter().filter(|line| Kind::of(line) == Kind::Item).count();
        format!(
            "| [`{0}`](api/{0}.txt) | {1} | {2} | {3} | {hidden} |",
            self.package,
            count(Kind::Item),
            count(Kind::Part),
            count(Kind::Impl),
        )
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A type, function, constant, module or re-export.
    Item,
    /// A field or a variant.
    Part,
    /// The implementation of a trait.
    Impl,
}

impl Kind {
    fn of(line: &str) -> Self {
        let words = line.trim_start_matches("#[non_exhaustive] ").trim_start_matches("#[repr(transparent)] ");
        let mut words = words.split(' ').filter(|word| !["const", "unsafe", "async"].contains(word));
        match (words.next(), words.next()) {
            (Some(first), _) if first.starts_with("impl") => Self::Impl,
            (
                Some("pub"),
                Some(
                    "fn" | "mod" | "use" | "struct" | "enum" | "trait" | "type" | "static" | "macro"
                    | "union",
                ),
            ) => Self::Item,
            // `const` is skipped above, as a word before `fn`.
            (Some("pub"), _) if line.contains("pub const ") => Self::Item,
            _ => Self::Part,
        }
    }
}

/// Runs rustdoc for a library and returns its public items, without methods of implemented traits.
fn items(package: &str, rustdoc: &Path, more: &[&str]) -> Result<Vec<String>> {
    let mut cargo = command("cargo", ["rustdoc", "--quiet", "--lib", "--all-features", "--package", package]);
    cargo.args(["--", "-Z", "unstable-options", "--output-format", "json", "--cap-lints", "allow"]);
    cargo.args(more).env("RUSTDOC", rustdoc).current_dir(paths::repository());
    run(&mut cargo)?;
    let json = paths::target().join("doc").join(format!("{}.json", package.replace('-', "_")));
    let api = public_api::Builder::from_rustdoc_json(&json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()
        .with_context(|| {
            format!(
                "cannot read {}: its format may not be the one that this release of the crate \
                 public-api reads",
                json.display()
            )
        })?;
    Ok(without_trait_methods(api.items().map(ToString::to_string)))
}

/// Removes the methods of implemented traits, which are known from the trait, and the lines of
/// inherent implementations, whose methods follow.
fn without_trait_methods(items: impl Iterator<Item = String>) -> Vec<String> {
    let mut implementing: Option<String> = None;
    let mut lines = Vec::new();
    for line in items {
        if line.starts_with("impl") {
            implementing = line.split_once(" for ").map(|(_, path)| format!("{}::", path_of(path)));
            if implementing.is_some() {
                lines.push(line);
            }
            continue;
        }
        let is_method = |path: &String| path_of(&line).starts_with(path.as_str());
        if !implementing.as_ref().is_some_and(is_method) {
            lines.push(line);
        }
    }
    lines
}

/// Returns the path in a line, without generic arguments: `farreach::Pending::wait` for `pub fn
/// farreach::Pending<T, E>::wait(&mut self)`.
fn path_of(line: &str) -> String {
    let mut depth = 0_u32;
    let mut path = String::new();
    let start = line.rfind("pub ").map_or(line, |at| &line[at..]);
    let words = ["pub ", "const ", "unsafe ", "fn ", "type "];
    let start = words.iter().fold(start, |rest, word| rest.strip_prefix(word).unwrap_or(rest));
    for letter in start.chars() {
        match letter {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ if depth > 0 => {}
            '(' | ' ' | '&' => break,
            other => path.push(other),
        }
    }
    // A field ends with a colon before its type.
    path.trim_end_matches(':').to_owned()
}

/// Writes a rustdoc wrapper that accepts unstable options. The variable is set only for rustdoc:
/// cargo would rebuild everything otherwise.
fn wrapper() -> Result<PathBuf> {
    let folder = paths::target().join("api");
    fs::create_dir_all(&folder)?;
    let path = folder.join("rustdoc");
    fs::write(&path, "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n")?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// Writes a file, or returns the lines that differ.
fn write_or_compare(file: &str, text: &str, is_compared: bool) -> Result<String> {
    let path = paths::repository().join(file);
    if !is_compared {
        fs::create_dir_all(path.parent().context("a file of the repository has a folder")?)?;
        fs::write(&path, text)?;
        return Ok(String::new());
    }
    let listed = fs::read_to_string(&path).unwrap_or_default();
    Ok(difference(file, &listed, text))
}

fn difference(file: &str, listed: &str, found: &str) -> String {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let (before, after) = (lines(listed), lines(found));
    let gone = before.difference(&after).map(|line| format!("{file}: - {line}\n"));
    let new = after.difference(&before).map(|line| format!("{file}: + {line}\n"));
    let all: String = gone.chain(new).collect();
    // The same lines in another order.
    if all.is_empty() && listed != found { format!("{file}: another order\n") } else { all }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_with_its_file() {
        assert_eq!(difference("a.txt", "x\ny\n", "x\ny\n"), "");
        assert_eq!(difference("a.txt", "x\ny\n", "x\nz\n"), "a.txt: - y\na.txt: + z\n");
        assert_eq!(difference("a.txt", "x\ny\n", "y\nx\n"), "a.txt: another order\n");
        assert_eq!(difference("a.txt", "", "x\n"), "a.txt: + x\n");
    }

    #[test]
    fn methods_of_traits_are_left_out_and_functions_are_not() {
        let lines = [
            "pub struct a::Pending<T>",
            "impl<T> a::Pending<T>",
            "pub fn a::Pending<T>::wait(&mut self)",
            "impl<T> core::future::future::Future for a::Pending<T>",
            "pub type a::Pending<T>::Output = T",
            "pub fn a::Pending<T>::poll(&mut self) -> core::task::Poll<T>",
            "pub fn a::ping()",
            "pub struct a::Other",
            "pub a::Other::field: u8",
        ];
        let listed = without_trait_methods(lines.iter().map(|line| (*line).to_owned()));
        assert_eq!(listed, [lines[0], lines[2], lines[3], lines[6], lines[7], lines[8]]);
    }

    #[test]
    fn items_parts_and_implementations_are_told_apart() {
        let kinds = [
            ("pub fn farreach::Peer::name(&self) -> &str", Kind::Item),
            ("pub const unsafe fn a::b()", Kind::Item),
            ("pub const a::B: u32", Kind::Item),
            ("#[non_exhaustive] pub struct farreach::Transferred", Kind::Item),
            ("pub farreach::Transferred::buffer: farreach_memory::Buffer", Kind::Part),
            ("pub farreach::ErrorKind::TimedOut", Kind::Part),
            ("impl core::fmt::Display for farreach::Error", Kind::Impl),
            ("impl<T> core::future::Future for farreach::Pending<T>", Kind::Impl),
        ];
        for (line, kind) in kinds {
            assert_eq!(Kind::of(line), kind, "{line}");
        }
    }
}
