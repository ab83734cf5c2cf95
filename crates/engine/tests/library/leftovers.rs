//! What a killed process of the same number has left in shared memory does not stop an engine. Each test has a process of its own: an engine looks
//! before its process's first endpoint alone.

use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use farreach::{Engine, Error, Settings};
use farreach_testkit::in_own_process;

/// The file that this process's first endpoint will have.
fn first_file() -> PathBuf {
    let user = rustix::process::getuid().as_raw();
    PathBuf::from(format!("/dev/shm/{}:{user}:0", std::process::id()))
}

fn open() -> Result<Engine, Error> {
    Engine::with(Settings::new().rails(["shm"]))
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn the_file_of_a_dead_process_is_replaced() {
    in_own_process(&[], || {
        let file = first_file();
        std::fs::write(&file, vec![7; 1 << 20]).unwrap();
        let left = std::fs::metadata(&file).unwrap().ino();
        let engines = [open().unwrap(), open().unwrap()];
        assert_ne!(std::fs::metadata(&file).unwrap().ino(), left, "it is the engine's now");
        drop(engines);
        assert!(!file.exists());
    });
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn the_file_of_one_that_lives_elsewhere_is_left_to_it() {
    in_own_process(&[], || {
        let file = first_file();
        std::fs::write(&file, vec![7; 1 << 20]).unwrap();
        let opened = OpenOptions::new().read(true).write(true).open(&file).unwrap();
        // Nothing else of it is ours, so that nobody waits for its end if this fails.
        let mut other = Command::new("sleep")
            .arg("100")
            .stdin(Stdio::from(OwnedFd::from(opened)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let left = std::fs::metadata(&file).unwrap().ino();
        for _ in 0..2 {
            let error = open().unwrap_err();
            assert!(error.cause().contains(file.to_str().unwrap()), "{error:?}");
        }
        assert_eq!(std::fs::metadata(&file).unwrap().ino(), left);
        other.kill().unwrap();
        other.wait().unwrap();
        open().unwrap();
    });
}
