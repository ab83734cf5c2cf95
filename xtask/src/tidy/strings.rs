//! `cargo xtask strings`: lists every text that users may read in one file, to be read from top to
//! bottom.
//!
//! The list contains the string literals of libraries and the command that are phrases, by file,
//! without tests. Documentation is not included, because it is read as documentation. Help texts
//! are in `crates/cli/tests/help`.

use std::fmt::Write as _;
use std::fs;

use anyhow::Result;
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::names::without_tests;
use super::tree::{File, Tree};
use crate::paths;

/// Crates whose texts no user reads.
const SILENT: &[&str] = &["sim", "testkit", "examples", "xtask"];

pub(crate) fn execute() -> Result<()> {
    let tree = Tree::read(paths::repository())?;
    let (mut listing, mut count) = (String::new(), 0);
    for file in tree.rust().filter(|file| is_read_by_users(file)) {
        let mut phrases = Vec::new();
        collect(without_tests(file.tokens()), &mut phrases);
        if !phrases.is_empty() {
            writeln!(listing, "\n{}", file.path)?;
            phrases.iter().try_for_each(|phrase| writeln!(listing, "    {phrase}"))?;
            count += phrases.len();
        }
    }
    let path = paths::target().join("strings.txt");
    fs::write(&path, listing)?;
    println!("strings: {count} texts in {}", path.display());
    Ok(())
}

fn is_read_by_users(file: &File) -> bool {
    let is_silent = file.krate().is_none_or(|krate| SILENT.contains(&krate));
    file.is_source() && !is_silent && !file.is_generated()
}

/// Collects the phrases among the literals, at any depth, without documentation.
fn collect(tokens: TokenStream, phrases: &mut Vec<String>) {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '#' => {
                // Documentation of the file itself: `#![doc = "…"]`.
                tokens.next_if(|next| matches!(next, TokenTree::Punct(punct) if punct.as_char() == '!'));
                if tokens.peek().is_some_and(is_documentation) {
                    tokens.next();
                }
            }
            TokenTree::Group(group) => collect(group.stream(), phrases),
            TokenTree::Literal(literal) => phrases.extend(phrase(&literal.to_string())),
            _ => {}
        }
    }
}

fn is_documentation(token: &TokenTree) -> bool {
    let TokenTree::Group(group) = token else { return false };
    let first = group.stream().into_iter().next();
    group.delimiter() == Delimiter::Bracket && matches!(first, Some(TokenTree::Ident(name)) if name == "doc")
}

/// Returns a string literal in one line if it is a phrase, that is, words with a space between
/// them.
fn phrase(literal: &str) -> Option<String> {
    let text = literal.strip_prefix('"')?.strip_suffix('"')?;
    let words: Vec<_> = text.split("\\\n").flat_map(str::split_whitespace).collect();
    let is_word = |word: &&&str| word.chars().filter(|letter| letter.is_alphabetic()).count() > 1;
    (words.iter().filter(is_word).count() > 1).then(|| words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phrases_are_listed_and_names_documentation_and_tests_are_not() {
        let source = r#"
            //! Not this one, either.
            /// Not this one.
            fn f() { g("a message to users", "name", "{a} {b}", "two \
                lines"); }
            #[cfg(test)]
            mod tests { fn t() { panic!("not this one either") } }
        "#;
        let mut phrases = Vec::new();
        collect(without_tests(source.parse().unwrap()), &mut phrases);
        assert_eq!(phrases, ["a message to users", "two lines"]);
    }
}
