//! Relative links of the Markdown files must point to existing files.

use super::Finding;
use super::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for page in tree.with_extension("md") {
        let directory = page.path.rsplit_once('/').map_or("", |(directory, _)| directory);
        for link in links(&page.text) {
            let found =
                resolve(directory, &link.target).is_some_and(|path| tree.has_file_or_directory(&path));
            if !found {
                let message = format!("links to {}, which does not exist: correct the link", link.target);
                findings.push(Finding::new(&page.path, link.line, message));
            }
        }
    }
    findings
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Link {
    /// The target without its `#anchor`.
    pub(super) target: String,
    pub(super) line: usize,
}

/// Returns the links to files of the repository. Code blocks and code spans are skipped.
pub(super) fn links(page: &str) -> Vec<Link> {
    let mut found = Vec::new();
    let mut fence: Option<&str> = None;
    for (index, text) in page.lines().enumerate() {
        let start = text.trim_start();
        let opens = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        match (fence, opens) {
            (Some(open), Some(mark)) if open == mark => fence = None,
            (None, Some(mark)) => fence = Some(mark),
            (Some(_), _) => {}
            (None, None) => {
                let prose = without_code_spans(text);
                let targets = inline_targets(&prose).chain(definition_target(&prose));
                found.extend(targets.filter(|target| is_relative(target)).map(|target| Link {
                    target: target.split('#').next().unwrap_or_default().to_owned(),
                    line: index + 1,
                }));
            }
        }
    }
    found
}

/// Returns the path of a link in `directory`, from the root; `None` if it leaves the repository.
pub(super) fn resolve(directory: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = directory.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// Returns the targets of `](target)` and `](target "title")`.
fn inline_targets(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next()).map(trim_brackets)
}

/// Returns the target of `[label]: target`.
fn definition_target(text: &str) -> Option<&str> {
    let (label, target) = text.strip_prefix('[')?.split_once("]: ")?;
    // The text of a footnote is no target.
    (!label.starts_with('^')).then(|| trim_brackets(target.split(' ').next().unwrap_or_default()))
}

fn trim_brackets(target: &str) -> &str {
    target.trim_start_matches('<').trim_end_matches('>')
}

fn is_relative(target: &str) -> bool {
    !target.is_empty()
        && !target.starts_with('#')
        && !target.contains("://")
        && !target.starts_with("mailto:")
}

fn without_code_spans(text: &str) -> String {
    text.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(page: &str) -> Vec<String> {
        links(page).into_iter().map(|link| link.target).collect()
    }

    #[test]
    fn finds_links_images_and_definitions() {
        let page = "[a](one.md#part) and ![b](two.png \"title\")\n\n[c]: <three.md>\n[^1]: a note\n";
        assert_eq!(targets(page), ["one.md", "two.png", "three.md"]);
    }

    #[test]
    fn leaves_code_and_the_outside_alone() {
        let page =
            "```\n[a](one.md)\n```\n`[b](two.md)` [c](https://example.net) [d](#here) [e](mailto:a@b)\n";
        assert!(targets(page).is_empty());
    }

    #[test]
    fn resolves_from_the_page() {
        assert_eq!(resolve("docs/a", "../b.md").as_deref(), Some("docs/b.md"));
        assert_eq!(resolve("", "./README.md").as_deref(), Some("README.md"));
        assert_eq!(resolve("docs", "../../outside"), None);
    }
}
