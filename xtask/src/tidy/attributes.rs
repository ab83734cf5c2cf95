//! `#[ignore]`, `#[allow]` and `#[expect]` must have a reason.

use proc_macro2::{TokenStream, TokenTree};

use super::Finding;
use super::names::{Attribute, attributes};
use super::tree::{File, Tree};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust().filter(|file| !file.is_generated()) {
        let mut found = Vec::new();
        attributes(file.tokens(), &mut found);
        let silencing: Vec<&Attribute> =
            found.iter().filter(|attribute| silences_lint(&attribute.tokens)).collect();
        for attribute in &silencing {
            if !has_reason(&attribute.tokens) && !is_commented(file, attribute, &silencing) {
                let message = "add why the lint is wrong here: a comment on this line or \
                    above, or `reason = \"…\"`";
                findings.push(Finding::new(&file.path, attribute.line, message));
            }
        }
        for attribute in found.iter().filter(|attribute| attribute.tokens.to_string() == "ignore") {
            let message = "add the reason why the test is ignored: `#[ignore = \"…\"]`";
            findings.push(Finding::new(&file.path, attribute.line, message));
        }
    }
    findings
}

/// Returns whether it is `allow(…)` or `expect(…)`, also within `cfg_attr`.
fn silences_lint(tokens: &TokenStream) -> bool {
    let mut tokens = tokens.clone().into_iter();
    match (tokens.next(), tokens.next()) {
        (Some(TokenTree::Ident(name)), Some(TokenTree::Group(group))) => {
            name == "allow"
                || name == "expect"
                || (name == "cfg_attr" && {
                    let text = group.stream().to_string().replace(' ', "");
                    text.contains(",allow(") || text.contains(",expect(")
                })
        }
        _ => false,
    }
}

fn has_reason(tokens: &TokenStream) -> bool {
    tokens.to_string().replace(' ', "").contains("reason=\"")
}

/// Returns whether a plain comment is on the attribute's line or on the line above. One comment may
/// precede several attributes.
fn is_commented(file: &File, attribute: &Attribute, silencing: &[&Attribute]) -> bool {
    let line = |number: usize| file.text.lines().nth(number - 1).unwrap_or_default().trim();
    if (attribute.line..=attribute.last_line).any(|number| line(number).contains("//")) {
        return true;
    }
    let mut above = attribute.line - 1;
    while let Some(other) = silencing.iter().find(|other| other.last_line == above) {
        above = other.line - 1;
    }
    let above = if above == 0 { "" } else { line(above) };
    above.starts_with("//") && !above.starts_with("///") && !above.starts_with("//!")
}
