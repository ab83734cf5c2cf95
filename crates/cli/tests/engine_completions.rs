//! Completion of what is there: in a real bash, with libfabric.

mod support {
    pub(crate) mod bash;
    #[allow(dead_code)] // nothing here is JSON
    pub(crate) mod run;
}

use support::bash::offers;

#[test]
#[ignore = "needs the engines' libraries: cargo xtask test runs it"]
fn rails_that_are_here_are_offered() {
    assert_eq!(offers(&["ping", "-d", "s"]), ["shm"]);
    assert_eq!(offers(&["serve", "--device", "shm,t"]), ["shm,tcp"]);
    assert_eq!(offers(&["ping", "-d", "nothing"]), [""; 0]);
}
