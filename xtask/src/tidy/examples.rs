//! Public types must have an example.

use syn::{Attribute, Item, Visibility};

use super::Finding;
use super::tree::Tree;

/// The libraries whose public types must have an example. `cargo test` compiles them.
const EXPLAINED: &[&str] = &["verbs"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for krate in EXPLAINED {
        let source = format!("crates/{krate}/src/");
        for file in tree.rust_in(krate).filter(|file| file.path.starts_with(&source)) {
            for item in file.syntax().map(|syntax| &syntax.items[..]).unwrap_or_default() {
                let (attributes, visibility, name) = match item {
                    Item::Struct(item) => (&item.attrs, &item.vis, &item.ident),
                    Item::Enum(item) => (&item.attrs, &item.vis, &item.ident),
                    Item::Trait(item) => (&item.attrs, &item.vis, &item.ident),
                    _ => continue,
                };
                if matches!(visibility, Visibility::Public(_)) && !attributes.iter().any(opens_example) {
                    let message = format!("`{name}` has no example in its documentation");
                    findings.push(Finding::new(&file.path, name.span().start().line, message));
                }
            }
        }
    }
    findings
}

fn opens_example(attribute: &Attribute) -> bool {
    let Ok(documentation) = attribute.meta.require_name_value() else { return false };
    let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &documentation.value else {
        return false;
    };
    documentation.path.is_ident("doc") && text.value().trim_start().starts_with("```")
}
