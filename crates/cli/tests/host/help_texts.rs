//! The help of every subcommand: what stands in `tests/help`, and fits a terminal of 80 columns.
//!
//! `FARREACH_BLESS=1 cargo test -p farreach-cli --test help_texts` writes it anew: read it before it is committed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::run::{Ended, FARREACH, end_of};

fn farreach(words: &[&str]) -> Ended {
    // Without a terminal, the width is what this says.
    end_of(Command::new(FARREACH).args(words).env("COLUMNS", "80").stdin(Stdio::null()))
}

fn help(words: &[&str]) -> String {
    let ended = farreach(&[words, &["--help"]].concat());
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{words:?}: {ended:#?}");
    ended.stdout
}

/// The subcommands as the help lists them, and theirs: `ping`, `tls`, `tls init`. `help` is clap's own.
fn subcommands() -> Vec<String> {
    let names: Vec<String> = listed(&help(&[]))
        .into_iter()
        .flat_map(|name| {
            let nested =
                listed(&help(&[&name])).into_iter().map(|nested| format!("{name} {nested}")).collect();
            [vec![name.clone()], nested].concat()
        })
        .collect();
    assert!(names.len() > 5, "{names:?}");
    names
}

/// The commands that a help lists, if it does.
fn listed(help: &str) -> Vec<String> {
    let list = help.split("Commands:\n").nth(1).and_then(|rest| rest.split("\n\n").next());
    list.unwrap_or_default()
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|name| !name.is_empty() && *name != "help")
        .map(str::to_owned)
        .collect()
}

/// The words of a subcommand.
fn words(name: &str) -> Vec<&str> {
    name.split(' ').collect()
}

/// The name of its file and of its page.
fn joined(name: &str) -> String {
    name.replace(' ', "-")
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help")
}

fn assert_is_what_it_was(name: &str, now: &str) {
    let file = folder().join(format!("{name}.txt"));
    if std::env::var_os("FARREACH_BLESS").is_some() {
        fs::write(&file, now).expect("the folder is ours");
    }
    let expected = fs::read_to_string(&file).unwrap_or_default();
    let (now_lines, expected_lines) =
        (now.lines().map(Some).chain([None]), expected.lines().map(Some).chain([None]));
    for (now, expected) in now_lines.zip(expected_lines) {
        assert_eq!(now, expected, "{} is not up to date: set FARREACH_BLESS=1, and read it", file.display());
    }
    for line in now.lines() {
        assert!(line.chars().count() <= 80, "over 80 columns in the help of {name}: {line}");
    }
}

#[test]
fn help_is_what_it_was() {
    assert_is_what_it_was("farreach", &help(&[]));
    for name in subcommands() {
        assert_is_what_it_was(&joined(&name), &help(&words(&name)));
    }
}

#[test]
fn no_help_is_of_a_subcommand_that_is_gone() {
    let mut expected: Vec<String> =
        subcommands().iter().map(|name| format!("{}.txt", joined(name))).collect();
    expected.push("farreach.txt".to_owned());
    expected.sort_unstable();
    let entries = fs::read_dir(folder()).expect("the folder is there");
    let mut found: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name")).collect();
    found.sort_unstable();
    assert_eq!(found, expected);
}

/// Every flag of an example is one that the subcommand has.
#[test]
fn examples_are_understood() {
    let mut count = 0;
    for name in subcommands() {
        let help = help(&words(&name));
        let prefix = format!("  farreach {name}");
        let examples = help.split("Examples:\n").nth(1).unwrap_or_default();
        for line in examples.lines().filter(|line| line.starts_with(&prefix)) {
            // Two spaces begin the explanation, and `|` or `>` what the shell does.
            let typed = line.trim().split("  ").next().unwrap_or_default();
            let typed = typed.split(['|', '>']).next().unwrap_or_default();
            // `--help` in front of the rest would end the reading of it; behind, all before it has to be right.
            let words: Vec<&str> = typed.split(' ').skip(1).filter(|word| !word.is_empty()).collect();
            let ended = farreach(&[words.as_slice(), &["--help"]].concat());
            assert_eq!(ended.code, Some(0), "{typed}: {}", ended.stderr);
            count += 1;
        }
    }
    assert!(count > 15, "{count} examples");
}

/// The manual has a page for each, with what a page has.
#[test]
fn the_manual_has_every_page_and_each_its_sections() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let ended = farreach(&["man", "--dir", folder.path().to_str().expect("a plain name")]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:#?}");
    let mut names = subcommands();
    names.push(String::new());
    assert_eq!(fs::read_dir(folder.path()).expect("the folder is there").count(), names.len());
    for name in names {
        let (words, page) = match name.as_str() {
            "" => (vec!["man".to_owned()], "farreach".to_owned()),
            name => (vec!["man".to_owned(), joined(name)], format!("farreach-{}", joined(name))),
        };
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let text = fs::read_to_string(folder.path().join(format!("{page}.1"))).expect("a page");
        assert_eq!(farreach(&words).stdout, text);
        let of_all =
            [&format!(".TH {page} 1 "), ".SH NAME\n", ".SH SYNOPSIS\n", ".SH DESCRIPTION\n", ".SH OPTIONS\n"];
        let of_tests =
            [".SH \"FOR ALL TESTS\"\n", ".SH EXAMPLES\n", ".SH \"EXIT STATUS\"\n", ".SH \"SEE ALSO\"\n"];
        let typed: Vec<&str> = name.split(' ').filter(|word| !word.is_empty()).collect();
        let is_test = farreach(&[&typed[..], &["--help"]].concat()).stdout.contains("<PEER>");
        for section in of_all.iter().chain(of_tests.iter().filter(|_| is_test)) {
            assert!(text.contains(section), "{page} has no {section:?}:\n{text}");
        }
    }
    let nobody = farreach(&["man", "agent"]);
    assert_eq!((nobody.code, nobody.stdout.as_str()), (Some(2), ""), "{nobody:#?}");
}
