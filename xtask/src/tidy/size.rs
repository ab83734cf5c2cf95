//! Files over 600 lines and functions over 70 lines, with a list of exemptions.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::Finding;
use super::tree::{File, Tree};

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;

/// Items that may be longer: a path, or `path::function`, and why splitting would make it harder to
/// read.
const EXEMPTIONS: &[Exemption] = &[];

struct Exemption {
    item: &'static str,
    reason: &'static str,
}

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    check_with(tree, EXEMPTIONS)
}

fn check_with(tree: &Tree, exemptions: &[Exemption]) -> Vec<Finding> {
    let long: Vec<Long> = tree.files().filter(|file| !file.is_generated()).flat_map(long_items).collect();
    let mut findings = Vec::new();
    for item in &long {
        if !exemptions.iter().any(|exemption| exemption.item == item.name) {
            let message = format!(
                "{} lines, more than {}: split it, or add an exemption with its reason in tidy/size.rs",
                item.lines, item.lines_max
            );
            findings.push(Finding::new(&item.path, item.line, message));
        }
    }
    for exemption in exemptions {
        if !long.iter().any(|item| item.name == exemption.item) {
            let message = format!(
                "the exemption of {} ({}) is no longer needed: remove it",
                exemption.item, exemption.reason
            );
            findings.push(Finding::new("xtask/src/tidy/size.rs", 1, message));
        }
    }
    findings
}

struct Long {
    /// The name, as in an exemption.
    name: String,
    path: String,
    line: usize,
    lines: usize,
    lines_max: usize,
}

fn long_items(file: &File) -> Vec<Long> {
    if !["rs", "c", "h", "sh", "py"].contains(&file.extension()) {
        return Vec::new();
    }
    let mut long = Vec::new();
    let lines = file.text.lines().count();
    if lines > FILE_LINES_MAX {
        let (name, path) = (file.path.clone(), file.path.clone());
        long.push(Long { name, path, line: 1, lines, lines_max: FILE_LINES_MAX });
    }
    if let Some(syntax) = (file.extension() == "rs").then(|| file.syntax()).flatten() {
        Functions { path: &file.path, long: &mut long }.visit_file(syntax);
    }
    long
}

struct Functions<'a> {
    path: &'a str,
    long: &'a mut Vec<Long>,
}

impl Functions<'_> {
    /// Counts from the line of `fn` to the closing brace: documentation does not make a function
    /// long.
    fn look(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let line = signature.fn_token.span().start().line;
        let lines = block.brace_token.span.close().end().line - line + 1;
        if lines > FUNCTION_LINES_MAX {
            self.long.push(Long {
                name: format!("{}::{}", self.path, signature.ident),
                path: self.path.to_owned(),
                line,
                lines,
                lines_max: FUNCTION_LINES_MAX,
            });
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.look(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.look(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.look(&function.sig, block);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "crates/proto/src/plan.rs";

    fn function_of_lines(lines: usize) -> String {
        format!(
            "/// Documentation\n/// does not count.\nfn plan() {{\n{}}}\n",
            "    step();\n".repeat(lines - 2)
        )
    }

    fn findings(text: &str, exemptions: &[Exemption]) -> Vec<String> {
        let findings = check_with(&Tree::of(&[(PATH, text)]), exemptions);
        findings.iter().map(|finding| format!("{}:{}", finding.path, finding.line)).collect()
    }

    #[test]
    fn the_limits_are_inclusive() {
        assert!(findings(&function_of_lines(70), &[]).is_empty());
        assert_eq!(findings(&function_of_lines(71), &[]), [format!("{PATH}:3")]);
        assert!(findings(&"//\n".repeat(600), &[]).is_empty());
        assert_eq!(findings(&"//\n".repeat(601), &[]), [format!("{PATH}:1")]);
    }

    #[test]
    fn an_exemption_excuses_one_item_and_must_not_be_stale() {
        let exemptions = [Exemption { item: "crates/proto/src/plan.rs::plan", reason: "one table" }];
        assert!(findings(&function_of_lines(71), &exemptions).is_empty());
        assert_eq!(findings(&function_of_lines(70), &exemptions), ["xtask/src/tidy/size.rs:1"]);
    }

    #[test]
    fn generated_files_may_be_long() {
        let text = format!("// {}generated\n{}", '@', "//\n".repeat(700));
        assert!(findings(&text, &[]).is_empty());
    }
}
