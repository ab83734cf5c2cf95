//! Derives the apt sources of another suite from those of this machine, so that no host name is
//! hard-coded.

use std::path::Path;

use anyhow::{Context, Result, bail};

/// Returns a deb822 stanza for `suite`, derived from the stanza of this machine's main archive.
pub(crate) fn for_suite(suite: &str) -> Result<String> {
    let release = std::fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
    let codename = field(&release, "VERSION_CODENAME=").context("/etc/os-release has no VERSION_CODENAME")?;
    for file in source_files()? {
        let text =
            std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let stanza = if file.extension().is_some_and(|extension| extension == "sources") {
            from_deb822(&text, codename, suite)
        } else {
            from_one_line(&text, codename, suite)
        };
        if let Some(stanza) = stanza {
            return Ok(stanza);
        }
    }
    bail!(
        "no apt source of this machine offers {codename} main, so the sources of {suite} cannot be derived\n\
         fix: run on Debian, with its main archive in /etc/apt/sources.list or sources.list.d"
    )
}

fn source_files() -> Result<Vec<std::path::PathBuf>> {
    let mut files = Vec::new();
    if Path::new("/etc/apt/sources.list").is_file() {
        files.push("/etc/apt/sources.list".into());
    }
    if let Ok(entries) = std::fs::read_dir("/etc/apt/sources.list.d") {
        let mut listed: Vec<_> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        listed.sort();
        files.extend(listed.into_iter().filter(|path| {
            path.extension().is_some_and(|extension| extension == "sources" || extension == "list")
        }));
    }
    Ok(files)
}

fn from_deb822(text: &str, codename: &str, suite: &str) -> Option<String> {
    text.split("\n\n").find_map(|stanza| {
        let words = |key: &str| field(stanza, key).unwrap_or_default().split_whitespace().collect::<Vec<_>>();
        let is_ours = words("Types:").contains(&"deb")
            && words("Suites:").contains(&codename)
            && words("Components:").contains(&"main");
        is_ours.then(|| stanza_for(suite, &words("URIs:").join(" "), field(stanza, "Signed-By:")))
    })
}

fn from_one_line(text: &str, codename: &str, suite: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let line = line.trim().strip_prefix("deb ")?.trim();
        // `deb [signed-by=FILE arch=amd64] URI SUITE COMPONENT…`
        let (options, rest) = match line.strip_prefix('[') {
            Some(bracketed) => bracketed.split_once(']')?,
            None => ("", line),
        };
        let mut words = rest.split_whitespace();
        let (uri, named_suite) = (words.next()?, words.next()?);
        if named_suite != codename || !words.any(|component| component == "main") {
            return None;
        }
        let signed_by = options.split_whitespace().find_map(|option| option.strip_prefix("signed-by="));
        Some(stanza_for(suite, uri, signed_by))
    })
}

fn stanza_for(suite: &str, uris: &str, signed_by: Option<&str>) -> String {
    let mut stanza = format!("Types: deb\nURIs: {uris}\nSuites: {suite}\nComponents: main\n");
    if let Some(keyring) = signed_by {
        stanza.push_str(&format!("Signed-By: {keyring}\n"));
    }
    stanza
}

/// Returns the rest of the first line that begins with `key`, without the quotes of a shell
/// assignment.
fn field<'text>(text: &'text str, key: &str) -> Option<&'text str> {
    text.lines().find_map(|line| line.strip_prefix(key)).map(|value| value.trim().trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEB822: &str = "Types: deb\n# a comment\nURIs: http://mirror.example/debian\nSuites: bookworm bookworm-updates\n\
        Components: main\nSigned-By: /usr/share/keyrings/k.gpg\n\nTypes: deb\nURIs: http://mirror.example/security\n\
        Suites: bookworm-security\nComponents: main\n";

    #[test]
    fn takes_the_main_archive_of_deb822_sources() {
        let stanza = from_deb822(DEB822, "bookworm", "unstable").unwrap();
        assert_eq!(
            stanza,
            "Types: deb\nURIs: http://mirror.example/debian\nSuites: unstable\nComponents: main\n\
             Signed-By: /usr/share/keyrings/k.gpg\n"
        );
    }

    #[test]
    fn takes_the_main_archive_of_one_line_sources() {
        let lines = "# deb http://no.example/ bookworm main\ndeb http://other.example/tools tools main\n\
                     deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian bookworm main contrib\n";
        let stanza = from_one_line(lines, "bookworm", "sid").unwrap();
        assert_eq!(
            stanza,
            "Types: deb\nURIs: http://mirror.example/debian\nSuites: sid\nComponents: main\nSigned-By: /k.gpg\n"
        );
    }

    #[test]
    fn other_archives_are_not_taken() {
        assert_eq!(from_deb822(DEB822, "trixie", "sid"), None);
        assert_eq!(
            from_one_line("deb http://mirror.example/debian bookworm contrib\n", "bookworm", "sid"),
            None
        );
    }
}
