//! The names in a Rust file: its paths and identifiers, also those in macros, without comments and
//! literals.

use std::iter::Peekable;

use proc_macro2::token_stream::IntoIter;
use proc_macro2::{Delimiter, Group, Spacing, TokenStream, TokenTree};

/// One path as written, with `use` groups expanded: `use std::{io, thread::spawn}` contains
/// `std::io` and `std::thread::spawn`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) segments: Vec<String>,
    pub(super) line: usize,
}

impl Name {
    pub(super) fn is(&self, identifier: &str) -> bool {
        self.segments.len() == 1 && self.segments[0] == identifier
    }

    pub(super) fn contains(&self, identifier: &str) -> bool {
        self.segments.iter().any(|segment| segment == identifier)
    }

    /// Returns whether these segments occur in this order, next to each other.
    pub(super) fn contains_path(&self, path: &[&str]) -> bool {
        self.segments.windows(path.len()).any(|window| window.iter().eq(path))
    }

    pub(super) fn display(&self) -> String {
        self.segments.join("::")
    }
}

pub(super) fn names(tokens: TokenStream) -> Vec<Name> {
    let mut found = Vec::new();
    collect(tokens, &[], &mut found);
    found
}

/// Returns the tokens without the items under `#[cfg(test)]`.
pub(super) fn without_tests(tokens: TokenStream) -> TokenStream {
    let mut kept = Vec::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let is_hash = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '#');
        match tokens.peek() {
            Some(TokenTree::Group(attribute)) if is_hash && is_cfg_test(attribute) => skip_item(&mut tokens),
            _ => kept.push(token),
        }
    }
    kept.into_iter().collect()
}

fn collect(tokens: TokenStream, prefix: &[String], found: &mut Vec<Name>) {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(first) => {
                let line = first.span().start().line;
                let mut segments = prefix.to_vec();
                segments.push(plain(&first));
                let group = rest_of_path(&mut tokens, &mut segments);
                if let Some(group) = group {
                    collect(group.stream(), &segments, found);
                    continue;
                }
                found.push(Name { segments, line });
            }
            TokenTree::Group(group) => collect(group.stream(), &[], found),
            _ => {}
        }
    }
}

/// Reads `::b::c` after `a`. Returns the group of `a::b::{…}`, which only a `use` has.
fn rest_of_path(tokens: &mut Peekable<IntoIter>, segments: &mut Vec<String>) -> Option<Group> {
    while skip_if_path_separator(tokens) {
        match tokens.peek() {
            Some(TokenTree::Ident(next)) => {
                segments.push(plain(next));
                tokens.next();
            }
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let group = group.clone();
                tokens.next();
                return Some(group);
            }
            _ => return None,
        }
    }
    None
}

fn skip_if_path_separator(tokens: &mut Peekable<IntoIter>) -> bool {
    let is_separator = next_is(tokens, ':', Spacing::Joint);
    if is_separator {
        tokens.next();
        tokens.next();
    }
    is_separator
}

fn next_is(tokens: &mut Peekable<IntoIter>, wanted: char, spacing: Spacing) -> bool {
    matches!(tokens.peek(), Some(TokenTree::Punct(next)) if next.as_char() == wanted && next.spacing() == spacing)
}

fn is_cfg_test(attribute: &Group) -> bool {
    attribute.stream().to_string().replace(' ', "") == "cfg(test)"
}

/// Skips the brackets of the attribute, further attributes and the item.
fn skip_item(tokens: &mut Peekable<IntoIter>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return,
            TokenTree::Punct(punct) if punct.as_char() == ';' => return,
            _ => {}
        }
    }
}

/// The identifier without `r#`.
pub(super) fn plain(ident: &proc_macro2::Ident) -> String {
    let text = ident.to_string();
    text.strip_prefix("r#").map_or(text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(source: &str) -> Vec<String> {
        names(source.parse().unwrap()).iter().map(Name::display).collect()
    }

    #[test]
    fn use_groups_are_multiplied_out() {
        assert_eq!(
            paths("use std::{io, thread::{self, Builder}};"),
            ["use", "std::io", "std::thread::self", "std::thread::Builder"]
        );
    }

    #[test]
    fn comments_docs_and_literals_name_nothing() {
        assert_eq!(
            paths("/// ibv_a\n// ibv_b\n#[doc(alias = \"ibv_c\")] fn f() { \"ibv_d\" }"),
            ["doc", "doc", "alias", "fn", "f"]
        );
    }

    #[test]
    fn test_modules_are_left_out() {
        let kept = without_tests("fn a() {} #[cfg(test)] mod tests { fn b() {} } fn c() {}".parse().unwrap());
        let kept: Vec<String> = names(kept).iter().map(Name::display).collect();
        assert_eq!(kept, ["fn", "a", "fn", "c"]);
    }
}
