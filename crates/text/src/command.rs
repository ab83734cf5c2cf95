//! Commands for people to copy.

use std::fmt;

use crate::escape::is_harmless;

/// A command for a shell. What is not written in this program's source is an argument, and arguments
/// are quoted when the command is printed, so that no name can end the command or begin another one.
///
/// An argument that cannot be printed, such as a name with a control character, is replaced by a word
/// in capitals, which is a placeholder.
///
/// ```
/// use farreach_text::CommandLine;
///
/// let command = CommandLine::new("echo").arg("a b").write_to("/etc/it's");
/// assert_eq!(command.to_string(), r"echo 'a b' > '/etc/it'\''s'");
/// let command = CommandLine::new("df -i").path("-v");
/// assert_eq!(command.to_string(), "df -i ./-v");
/// assert_eq!(CommandLine::new("ethtool").name("-s").to_string(), "ethtool NAME");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// Text of this program.
    Shell(&'static str),
    Argument(String),
    /// A line of a configuration file.
    Line(String),
}

impl CommandLine {
    /// Creates a command from a text of this program: a program with the arguments that are always the
    /// same, or a whole command.
    pub fn new(text: &'static str) -> Self {
        Self { parts: vec![Part::Shell(text)] }
    }

    /// Adds a text of this program: arguments that are always the same, a pipe, another program.
    #[must_use]
    pub fn shell(mut self, text: &'static str) -> Self {
        self.parts.push(Part::Shell(text));
        self
    }

    /// Adds an argument that begins with a text of this program, such as `--device=NAME`, or that no
    /// program takes for an option.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<String>) -> Self {
        self.parts.push(Part::Argument(argument.into()));
        self
    }

    /// Adds a name as an argument. A name that is empty, or that would be an option, is replaced by
    /// `NAME`.
    #[must_use]
    pub fn name(self, name: &str) -> Self {
        if name.is_empty() || name.starts_with('-') { self.shell("NAME") } else { self.arg(name) }
    }

    /// Adds the path of a file as an argument. One that would be an option begins with `./`.
    #[must_use]
    pub fn path(self, path: &str) -> Self {
        if path.starts_with('-') { self.arg(format!("./{path}")) } else { self.arg(path) }
    }

    /// Creates a line of a configuration file: a key, a value, and the end of the line. A value with
    /// anything but letters, digits and `/._-+@:,` is replaced by `VALUE`, because the quoting of such
    /// files is not that of a shell.
    pub fn setting(key: &'static str, value: &str, end: &'static str) -> Self {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+@:,".contains(letter);
        let value = if value.chars().all(is_plain) { value } else { "VALUE" };
        Self { parts: vec![Part::Line(format!("{key}{value}{end}"))] }
    }

    /// Writes the output of the command to a file.
    #[must_use]
    pub fn write_to(self, path: &str) -> Self {
        self.shell(">").path(path)
    }
}

impl From<&'static str> for CommandLine {
    fn from(text: &'static str) -> Self {
        Self::new(text)
    }
}

impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, part) in self.parts.iter().enumerate() {
            if number > 0 {
                f.write_str(" ")?;
            }
            match part {
                Part::Shell(text) => f.write_str(text)?,
                Part::Line(text) => f.write_str(text)?,
                Part::Argument(argument) => f.write_str(&shell_word(argument))?,
            }
        }
        Ok(())
    }
}

/// Returns an argument as a word of a shell, quoted if it needs that. One that cannot be printed is
/// replaced by the placeholder `ARGUMENT`.
pub fn shell_word(argument: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+@%=:,".contains(letter);
    if !argument.chars().all(is_harmless) {
        return "ARGUMENT".to_owned();
    }
    if !argument.is_empty() && argument.chars().all(is_plain) {
        return argument.to_owned();
    }
    format!("'{}'", argument.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_reads_the_arguments_that_were_given() {
        let arguments = [
            "eth0",
            "",
            "a b",
            "v0; touch x #",
            "$(id)`id`$HOME",
            "it's",
            "'",
            "\"",
            "\\n",
            "*?[a]{b,c}",
            "~",
            "!!",
            "&& |",
            "é",
            "a=b",
            "-rf",
        ];
        let command =
            arguments.iter().fold(CommandLine::new("printf '%s\\n'"), |command, it| command.arg(*it));
        let output = Command::new("sh").arg("-c").arg(command.to_string()).output().unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
        let lines: Vec<String> =
            String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
        assert_eq!(lines, arguments, "{command}");
    }

    #[test]
    fn what_cannot_be_printed_is_a_placeholder() {
        for name in ["\x1b[2J", "a\nb", "a\u{202e}b", "\u{200b}"] {
            assert_eq!(CommandLine::new("ip link set").name(name).to_string(), "ip link set ARGUMENT");
        }
    }

    #[test]
    fn a_line_of_a_file_has_one_value() {
        let line = |value| CommandLine::setting("CPUAffinity=", value, "").to_string();
        assert_eq!(line("0-3,8"), "CPUAffinity=0-3,8");
        for value in ["0\nExecStart=/x", "0 1", "%h", "$x", "\u{202e}"] {
            assert_eq!(line(value), "CPUAffinity=VALUE");
        }
    }

    #[test]
    fn neither_a_name_nor_a_path_is_an_option() {
        assert_eq!(CommandLine::new("modprobe").name("-C/tmp/x").to_string(), "modprobe NAME");
        assert_eq!(CommandLine::new("modprobe").name("").to_string(), "modprobe NAME");
        assert_eq!(CommandLine::new("cat").path("-rf x").to_string(), "cat './-rf x'");
        assert_eq!(CommandLine::new("cat").write_to("/a b").to_string(), "cat > '/a b'");
    }
}
