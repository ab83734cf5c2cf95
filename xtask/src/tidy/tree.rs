//! The files that the rules check, read and parsed once.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use proc_macro2::TokenStream;

use super::Finding;
use super::names::{Name, names};

/// Every file of the repository that git tracks or would track, by its path from the root.
pub(super) struct Tree {
    files: BTreeMap<String, File>,
}

impl Tree {
    pub(super) fn read(root: &Path) -> Result<Self> {
        // Including untracked files, which are about to be committed.
        let output = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .context("cannot run git, which lists the files to check")?;
        ensure!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim());
        let listing = String::from_utf8(output.stdout).context("a tracked file's name is not UTF-8")?;

        let mut files = BTreeMap::new();
        for path in listing.split_terminator('\0') {
            let full = root.join(path);
            // A deleted file stays in the index until the commit, and a link to a folder cannot be
            // read. Inputs of fuzz targets are no text.
            if !full.is_file() || path.starts_with("fuzz/corpus/") {
                continue;
            }
            let bytes = std::fs::read(&full).with_context(|| format!("cannot read {path}"))?;
            // An image has no text to check, but links may point to it.
            let text = String::from_utf8(bytes).unwrap_or_default();
            files.insert(path.to_owned(), File::new(path, text));
        }
        Ok(Self { files })
    }

    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let files =
            files.iter().map(|(path, text)| ((*path).to_owned(), File::new(path, (*text).to_owned())));
        Self { files: files.collect() }
    }

    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    pub(super) fn get(&self, path: &str) -> Option<&File> {
        self.files.get(path)
    }

    pub(super) fn files(&self) -> impl Iterator<Item = &File> {
        self.files.values()
    }

    pub(super) fn with_extension(&self, extension: &str) -> impl Iterator<Item = &File> {
        self.files().filter(move |file| file.extension() == extension)
    }

    pub(super) fn rust(&self) -> impl Iterator<Item = &File> {
        self.with_extension("rs")
    }

    /// Returns the Rust files of one folder of `crates/`.
    pub(super) fn rust_in(&self, krate: &str) -> impl Iterator<Item = &File> {
        self.rust().filter(move |file| file.krate() == Some(krate))
    }

    /// Returns the manifests of `crates/*` and of xtask.
    pub(super) fn manifests(&self) -> impl Iterator<Item = &File> {
        self.files().filter(|file| {
            file.krate().is_some_and(|krate| {
                file.path == format!("crates/{krate}/Cargo.toml") || file.path == "xtask/Cargo.toml"
            })
        })
    }

    pub(super) fn has_file_or_directory(&self, path: &str) -> bool {
        if path.is_empty() || self.files.contains_key(path) {
            return true;
        }
        let directory = format!("{path}/");
        self.files.range(directory.clone()..).next().is_some_and(|(first, _)| first.starts_with(&directory))
    }
}

pub(super) struct File {
    pub(super) path: String,
    pub(super) text: String,
    tokens: OnceCell<Option<TokenStream>>,
    syntax: OnceCell<Option<syn::File>>,
    names: OnceCell<Vec<Name>>,
}

impl File {
    fn new(path: &str, text: String) -> Self {
        Self {
            path: path.to_owned(),
            text,
            tokens: OnceCell::new(),
            syntax: OnceCell::new(),
            names: OnceCell::new(),
        }
    }

    pub(super) fn extension(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name.rsplit_once('.').map_or("", |(_, extension)| extension)
    }

    /// Returns the folder below `crates/` that contains this file, or `xtask`.
    pub(super) fn krate(&self) -> Option<&str> {
        match self.path.split_once('/')? {
            ("crates", rest) => rest.split_once('/').map(|(krate, _)| krate),
            ("xtask", _) => Some("xtask"),
            _ => None,
        }
    }

    /// Returns whether it is in `src/` of a crate, and not only for tests.
    pub(super) fn is_source(&self) -> bool {
        let in_tests = self.path.split('/').any(|part| part == "tests" || part == "tests.rs");
        let in_source = |krate| self.path.starts_with(&format!("crates/{krate}/src/"));
        self.krate().is_some_and(in_source) && !in_tests
    }

    /// Returns the lines with their numbers, from 1.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// Returns whether a tool has generated the file: then its length is not checked.
    pub(super) fn is_generated(&self) -> bool {
        let marks = [concat!("@", "generated"), "automatically generated by rust-bindgen"];
        self.text.lines().take(5).any(|line| marks.iter().any(|mark| line.contains(mark)))
    }

    /// Returns the tokens of a Rust file, without comments; documentation is string literals. Empty
    /// if it is not Rust.
    pub(super) fn tokens(&self) -> TokenStream {
        self.parsed_tokens().cloned().unwrap_or_default()
    }

    pub(super) fn syntax(&self) -> Option<&syn::File> {
        self.syntax.get_or_init(|| syn::parse2(self.parsed_tokens()?.clone()).ok()).as_ref()
    }

    /// Returns every path and identifier in the code.
    pub(super) fn names(&self) -> &[Name] {
        self.names.get_or_init(|| names(self.tokens()))
    }

    fn parsed_tokens(&self) -> Option<&TokenStream> {
        self.tokens.get_or_init(|| self.text.parse().ok()).as_ref()
    }
}

/// The rule that the other rules depend on.
pub(super) fn unparsed(tree: &Tree) -> Vec<Finding> {
    let broken = tree.rust().filter(|file| !file.is_generated() && file.syntax().is_none());
    broken.map(|file| Finding::new(&file.path, 1, "cannot be parsed as Rust: compile it")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git(root: &Path, args: &[&str]) {
        assert!(Command::new("git").args(args).current_dir(root).status().unwrap().success());
    }

    #[test]
    fn reads_tracked_and_new_files_but_not_ignored_or_deleted_ones() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, bytes: &[u8]| std::fs::write(root.path().join(path), bytes).unwrap();
        git(root.path(), &["init", "--quiet"]);
        write(".gitignore", b"/target\n");
        write("deleted.rs", b"fn gone() {}\n");
        git(root.path(), &["add", "."]);
        std::fs::remove_file(root.path().join("deleted.rs")).unwrap();
        write("target", b"ignored\n");
        write("new.rs", b"fn new() {}\n");
        write("picture.png", b"\x89PNG\xff");

        let tree = Tree::read(root.path()).unwrap();
        let paths: Vec<&str> = tree.files().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, [".gitignore", "new.rs", "picture.png"]);
    }
}
