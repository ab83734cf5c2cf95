//! Completion of what is there: in a real bash, with libfabric.

use crate::support::bash::offers;

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn rails_that_are_here_are_offered() {
    assert_eq!(offers(&["ping", "-d", "t"]), ["tcp"]);
    assert_eq!(offers(&["serve", "--device", "rxe0,t"]), ["rxe0,tcp"]);
    assert_eq!(offers(&["ping", "-d", "nothing"]), [""; 0]);
}
