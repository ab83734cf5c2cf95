//! Programs, run by a test as a user runs them.

use std::env;
use std::io::Read;
use std::path::PathBuf;
use std::thread::{self, JoinHandle};

/// Returns the example program of that name, built beside the calling test.
pub fn example(name: &str) -> PathBuf {
    let test = env::current_exe().expect("Linux provides the path of a program");
    let folder = test.ancestors().nth(2).expect("tests are built two folders deep");
    let program = folder.join("examples").join(name);
    assert!(program.exists(), "{} is not built: cargo build --examples", program.display());
    program
}

/// Reads the output of a program to its end, on a thread of its own, so that a full pipe does not
/// block the program.
pub fn listen(to: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = to {
            // Output before a failure is still useful.
            let _ = from.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
