//! The cost of a program: instructions, counted by callgrind, and system calls, counted by strace.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A program whose work is counted, without that of the processes that it starts.
#[derive(Debug, Clone)]
pub struct Counted {
    path: PathBuf,
    words: Vec<String>,
    function: Option<String>,
}

impl Counted {
    /// Creates a program with arguments of every run.
    pub fn new(path: impl Into<PathBuf>, words: &[&str]) -> Self {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        Self { path: path.into(), words, function: None }
    }

    /// Counts only the instructions of the function whose name matches this, and of its callees.
    pub fn within(self, function: &str) -> Self {
        Self { function: Some(function.to_owned()), ..self }
    }

    /// Returns the instructions of a run with these additional arguments.
    pub fn instructions(&self, more: &[&str]) -> Count {
        let (text, stdout) = self.profile(more);
        Count { total: total_of(&text), stdout }
    }

    /// As [`instructions`](Self::instructions), without those of C's functions that copy memory.
    pub fn instructions_without_copies(&self, more: &[&str]) -> Count {
        let (text, stdout) = self.profile(more);
        Count {
            total: instructions_of(&text, |name| !name.contains("memcpy") && !name.contains("memmove")),
            stdout,
        }
    }

    /// As [`instructions`](Self::instructions), without those of the functions whose names contain this,
    /// and of their callees. These functions must not call themselves.
    pub fn instructions_outside(&self, function: &str, more: &[&str]) -> Count {
        let (text, stdout) = self.profile(more);
        let inside = instructions_of_calls(&text, |name| name.contains(function));
        assert!(inside > 0, "{function} was not called, or has another name");
        Count { total: total_of(&text) - inside, stdout }
    }

    /// Returns the counts in the format of callgrind, and the output of the program.
    fn profile(&self, more: &[&str]) -> (String, String) {
        let file = file("callgrind");
        let mut words =
            vec!["--tool=callgrind".to_owned(), format!("--callgrind-out-file={}", file.display())];
        words.extend(self.function.as_ref().map(|function| format!("--toggle-collect={function}")));
        let stdout = self.run("valgrind", &words, more);
        (fs::read_to_string(file).expect("callgrind writes its counts"), stdout)
    }

    /// Returns the system calls of its first thread in a run with these additional arguments,
    /// except pauses.
    pub fn system_calls(&self, more: &[&str]) -> Count {
        let file = file("strace");
        let words = ["-c", "-e", "trace=!clock_nanosleep", "-o", &file.display().to_string()];
        let stdout = self.run("strace", &words.map(str::to_owned), more);
        let text = fs::read_to_string(file).expect("strace writes its counts");
        let total = text.lines().find(|line| line.ends_with(" total")).expect("a line with the sum");
        let total = total.split_whitespace().nth(3).and_then(|count| count.parse().ok());
        Count { total: total.expect("a number"), stdout }
    }

    fn run(&self, counter: &str, words: &[String], more: &[&str]) -> String {
        let mut command = Command::new(counter);
        command.args(words).arg(&self.path).args(&self.words).args(more);
        let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("the programs print text")
    }
}

/// Returns the sum of all counts in the format of callgrind.
fn total_of(profile: &str) -> u64 {
    let total = profile.lines().find_map(|line| line.strip_prefix("summary: ")).expect("a line with the sum");
    total.trim().parse().expect("a number")
}

/// Returns the instructions of the functions whose names pass, from counts in the format of callgrind.
fn instructions_of(profile: &str, passes: impl Fn(&str) -> bool) -> u64 {
    // What another function costs that this one calls is counted there.
    costs(profile)
        .iter()
        .filter(|cost| cost.callee.is_none() && passes(cost.function))
        .map(|cost| cost.count)
        .sum()
}

/// Returns the instructions of the calls of functions whose names pass, with those of their callees.
fn instructions_of_calls(profile: &str, passes: impl Fn(&str) -> bool) -> u64 {
    costs(profile).iter().filter(|cost| cost.callee.is_some_and(&passes)).map(|cost| cost.count).sum()
}

/// Instructions of a function, or of its calls of another one.
struct Cost<'a> {
    function: &'a str,
    callee: Option<&'a str>,
    count: u64,
}

fn costs(profile: &str) -> Vec<Cost<'_>> {
    // A name is written once, with a number that stands for it afterwards.
    let (mut names, mut function, mut called, mut is_of_call) = (HashMap::new(), "", "", false);
    let mut costs = Vec::new();
    for line in profile.lines() {
        if let Some((kind, rest)) = line.split_once("fn=(")
            && let Some((key, name)) = rest.split_once(')')
        {
            if !name.is_empty() {
                names.insert(key, name.trim_start());
            }
            let name = names.get(key).copied().unwrap_or_default();
            *(if kind.is_empty() { &mut function } else { &mut called }) = name;
        } else if line.starts_with("calls=") {
            is_of_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let count = line.split_whitespace().nth(1).and_then(|count| count.parse().ok()).unwrap_or(0);
            let callee = std::mem::take(&mut is_of_call).then_some(called);
            costs.push(Cost { function, callee, count });
        }
    }
    costs
}

/// The result of a run.
#[derive(Debug)]
pub struct Count {
    /// Instructions or system calls.
    pub total: u64,
    /// The output of the program.
    pub stdout: String,
}

/// Prints a result to stderr directly, because println is captured for tests that pass.
pub fn tell(told: &str) {
    std::io::Write::write_all(&mut std::io::stderr(), told.as_bytes()).expect("stderr is open");
}

/// Returns the file for a tool's counts. It is unique, because tests run at the same time.
fn file(tool: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    PathBuf::from(format!("/tmp/{tool}.{}.{number}", std::process::id()))
}

/// Returns an example of a package, built with the profile `dist` beside this test's build.
pub fn dist_example(package: &str, name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("Linux provides the path of a program");
    let target = test.ancestors().nth(3).map(Path::to_owned).expect("tests are built three folders deep");
    let program = target.join("dist/examples").join(name);
    assert!(
        program.exists(),
        "{} is not built: cargo build --profile dist --package {package} --example {name}",
        program.display()
    );
    program
}

/// Returns the program that does the same work in C, on bare libfabric.
pub fn bare_program() -> PathBuf {
    let path = std::env::var_os("FARREACH_BARE");
    path.expect("cargo xtask test sets the path of the program").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_those_of_the_functions_that_pass() {
        let profile = "fn=(1) main\n3 10\n+1 5\ncfn=(2) memcpy\ncalls=2 9\n* 700\n-2 1\n\nfn=(2)\n9 700\n\nfn=(1)\n4 1\n";
        assert_eq!(instructions_of(profile, |_| true), 717);
        assert_eq!(instructions_of(profile, |name| !name.contains("memcpy")), 17);
        assert_eq!(instructions_of_calls(profile, |name| name == "memcpy"), 700);
        assert_eq!(instructions_of_calls(profile, |name| name == "main"), 0);
    }
}
