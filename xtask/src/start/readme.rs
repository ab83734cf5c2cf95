//! Parses the commands in README.

use anyhow::{Result, ensure};

/// A section that contains commands.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) title: String,
    pub(super) steps: Vec<Step>,
}

/// One command, and the output that README shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    /// The line in README, from 1.
    pub(super) line: usize,
    pub(super) command: String,
    /// The output; empty if README shows none.
    pub(super) shown: Vec<String>,
}

/// Returns the sections with a `console` block, in order. Lines with `$ ` are typed by a user and
/// lines with `# ` by root; all others are output.
pub(super) fn sections(text: &str) -> Result<Vec<Section>> {
    let mut sections: Vec<Section> = Vec::new();
    let mut title = "";
    let mut fence: Option<&str> = None;
    for (line, words) in (1..).zip(text.lines()) {
        match (fence, words.strip_prefix("```")) {
            (None, Some(language)) => fence = Some(language),
            (Some(_), Some(_)) => fence = None,
            (None, None) => {
                if words.starts_with('#') {
                    title = words.trim_start_matches('#').trim();
                }
            }
            (Some("console"), None) => {
                if sections.last().is_none_or(|section| section.title != title) {
                    sections.push(Section { title: title.to_owned(), steps: Vec::new() });
                }
                let steps = sections.last_mut().map(|section| &mut section.steps);
                take(steps.expect("one was pushed"), line, words)?;
            }
            (Some(_), None) => {}
        }
    }
    Ok(sections)
}

fn take(steps: &mut Vec<Step>, line: usize, words: &str) -> Result<()> {
    if let Some(command) = words.strip_prefix("$ ").or_else(|| words.strip_prefix("# ")) {
        ensure!(!command.ends_with('\\'), "README.md:{line}: a command must be on one line");
        steps.push(Step { line, command: command.to_owned(), shown: Vec::new() });
        return Ok(());
    }
    let step = steps.last_mut();
    ensure!(step.is_some(), "README.md:{line}: the output `{words}` precedes any command");
    step.into_iter().for_each(|step| step.shown.push(words.to_owned()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_what_is_shown_under_them() {
        let text = "# Top\n## Go\n```console\n$ a b\nout\n\n# c\n```\n### More\n```rust\n$ no\n```\n```console\n$ d\n```\n";
        let step = |line, command: &str, shown: &[&str]| Step {
            line,
            command: command.to_owned(),
            shown: shown.iter().map(|&words| words.to_owned()).collect(),
        };
        let section = |title: &str, steps| Section { title: title.to_owned(), steps };
        let expected = vec![
            section("Go", vec![step(4, "a b", &["out", ""]), step(7, "c", &[])]),
            section("More", vec![step(14, "d", &[])]),
        ];
        assert_eq!(sections(text).unwrap(), expected);
    }

    #[test]
    fn output_of_no_command_is_a_mistake() {
        let error = sections("```console\nout\n```\n").unwrap_err();
        assert!(error.to_string().starts_with("README.md:2: "), "{error}");
    }
}
