//! A place among the clients of a server has an end.

use super::shm::{RAIL, client, server};
use crate::support::client::assert_fails;
use crate::support::run::end_of;

#[test]
fn a_test_that_asks_for_more_time_than_there_is_is_refused() {
    let server = server(&["-d", "shm", "--test-time", "2"]);
    for (command, words, asked) in [
        ("blast", &["-D", "3"][..], "a test of 3 s cannot be served"),
        ("blast", &["-D", "1000000000"], "a test of 1000000000 s cannot be served"),
        ("ping", &["-D", "1.5", "-s", "8,64"], "a test of 3 s cannot be served"),
        (
            "bench",
            &["--op", "write", "-s", "8", "--depths", "1", "-r", "2", "-D", "1", "--warm-up", "0.1"],
            "",
        ),
    ] {
        let told = [asked, "a test may take 2 s here", "a larger --test-time"];
        assert_fails(&mut client(&server, command, &[words, &RAIL].concat()), 3, &told);
    }
    assert_eq!(server.count_log("blast from"), 0, "no test has begun");
    let served = end_of(&mut client(&server, "ping", &[&["-D", "0.5"], &RAIL[..]].concat()));
    assert_eq!(served.code, Some(0), "{served:#?}");
}

/// How long a count takes is not known before.
#[test]
fn a_test_without_an_end_is_ended() {
    let mut server = server(&["-d", "shm", "--test-time", "1", "--clients-max", "1"]);
    for (command, words) in [
        ("ping", &["-n", "1000000000000"][..]),
        ("blast", &["-n", "1000000000000", "-s", "8"]),
        ("blast", &["-n", "1000000000000", "-s", "8", "-r"]),
    ] {
        let told = ["the time of the test is over", "a test may take 1 s on this server", "--test-time"];
        assert_fails(&mut client(&server, command, &[words, &RAIL].concat()), 4, &told);
        server.wait_for_no_agent();
    }
    let served = end_of(&mut client(&server, "ping", &[&["-n", "20"], &RAIL[..]].concat()));
    assert_eq!(served.code, Some(0), "the only place is free: {served:#?}");
}
