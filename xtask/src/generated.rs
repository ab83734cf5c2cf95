//! Generated files: their format, the headers that they name, and where one differs from what is generated now.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Formats a generated file as `cargo fmt` would, so that it can be checked like any other.
pub(crate) fn rustfmt(root: &Path, source: &str) -> Result<String> {
    let mut child = Command::new("rustfmt")
        .args(["--edition", "2024", "--emit", "stdout", "--config-path"])
        .arg(root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run rustfmt: rustup component add rustfmt")?;
    let mut stdin = child.stdin.take().context("rustfmt has no standard input")?;
    // rustfmt reads all of its input before it writes, so the two pipes cannot wait for each other.
    stdin.write_all(source.as_bytes())?;
    drop(stdin);
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "rustfmt failed on generated code");
    Ok(String::from_utf8(output.stdout)?)
}

/// The release of the headers that these bindings name as theirs.
pub(crate) fn headers_version(bindings: &str) -> Option<&str> {
    bindings.lines().next()?.split_once(FROM_HEADERS)?.1.strip_suffix(". Do not edit.")
}

pub(crate) const FROM_HEADERS: &str = " from the headers of ";

/// The first line that differs, both ways; `None` when the texts are equal.
pub(crate) fn first_difference(found: &str, expected: &str) -> Option<String> {
    if found == expected {
        return None;
    }
    let (mut found, mut expected) = (found.lines(), expected.lines());
    let mut number = 0;
    loop {
        number += 1;
        match (found.next(), expected.next()) {
            (Some(a), Some(b)) if a == b => {}
            (None, None) => return Some("the ends of the lines differ".to_owned()),
            (a, b) => {
                let shown = |line: Option<&str>| line.unwrap_or("(the end)").to_owned();
                return Some(format!("line {number}\n  there:     {}\n  generated: {}", shown(a), shown(b)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_of_the_headers_is_on_the_first_line() {
        let first =
            format!("// {}generated with bindgen 0.73.2{FROM_HEADERS}rdma-core 65. Do not edit.\n", '@');
        assert_eq!(headers_version(&first), Some("rdma-core 65"));
        assert_eq!(headers_version("use libc::iovec;\n"), None);
    }

    #[test]
    fn a_difference_is_shown_with_its_line() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert!(first_difference("a\nb\n", "a\nc\n").unwrap().starts_with("line 2\n  there:     b\n"));
        assert!(first_difference("a\n", "a\nc\n").unwrap().contains("(the end)"));
    }
}
