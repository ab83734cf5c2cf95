//! Requirements on the program, tested over each provider.

mod program;

use std::thread;

pub(crate) use program::Place;

/// Runs the requirements over providers. Arguments: the function that brings a test to its host,
/// the reason for which it is ignored elsewhere, and each place with a name.
macro_rules! program_suite {
    ($run:path, $reason:literal; $($name:ident = $place:expr;)*) => {
        $(program_suite! { @place $name, $place, $run, $reason;
            every_byte_is_verified;
            small_and_middle_pages_are_verified;
            a_hundred_requests_of_one_client_are_served;
            sixteen_clients_are_served_at_once;
            an_altered_byte_is_noticed;
            nonsense_is_refused_with_a_reason;
            a_server_that_is_not_there_is_told;
            a_client_that_is_killed_does_not_stop_the_server;
            a_server_that_is_killed_ends_the_client;
        })*
    };
    (@place $name:ident, $place:expr, $run:path, $reason:literal; $($test:ident;)*) => {
        mod $name {
            $(
                #[test]
                #[ignore = $reason]
                fn $test() {
                    $run(|| $crate::write_pages::$test(&$place));
                }
            )*
        }
    };
}

pub(crate) use program_suite;

pub(crate) fn every_byte_is_verified(place: &Place) {
    let server = place.serve(&[]);
    server.visit(&[]).verified(1);
    // A page whose size is not a multiple of a word, and one of a single byte.
    server.visit(&["--page-size", "4097", "--pages", "11"]).verified(1);
    server.visit(&["--page-size", "1", "--pages", "7"]).verified(1);
}

pub(crate) fn small_and_middle_pages_are_verified(place: &Place) {
    let server = place.serve(&[]);
    server.visit(&["--page-size", "4096", "--pages", "4096"]).verified(1);
    server.visit(&["--page-size", "65536", "--pages", "256"]).verified(1);
}

pub(crate) fn a_hundred_requests_of_one_client_are_served(place: &Place) {
    let server = place.serve(&[]);
    server.visit(&["--page-size", "4096", "--pages", "16", "--requests", "100"]).verified(100);
}

pub(crate) fn sixteen_clients_are_served_at_once(place: &Place) {
    let server = place.serve(&[]);
    let (pages, requests) = if place.is_emulated { (4, 1) } else { (32, 3) };
    let numbers = [pages, requests].map(|number: usize| number.to_string());
    let arguments = ["--page-size", "16384", "--pages", &numbers[0], "--requests", &numbers[1]];
    thread::scope(|scope| {
        let visit = || server.visit(&arguments).verified(requests);
        let clients = [(); 16].map(|()| scope.spawn(visit));
        for client in clients {
            client.join().expect("the client's thread does not panic");
        }
    });
}

pub(crate) fn an_altered_byte_is_noticed(place: &Place) {
    let server = place.serve(&["--alter-byte"]);
    let ended = server.visit(&["--page-size", "4096", "--pages", "5"]);
    ended.failed(5, "byte 4095 of page");
    assert!(ended.stderr.contains("in region 1"), "{ended:?}");
}

pub(crate) fn nonsense_is_refused_with_a_reason(place: &Place) {
    let server = place.serve(&[]);
    let refused = |arguments: &[&str], words: &str| server.visit(arguments).failed(1, words);
    refused(&["--page-size", "0"], "pages of 0 bytes");
    refused(&["--pages", "0"], "no page is named");
    refused(&["--pages", "17"], "more than 33554432 bytes in all");
    refused(&["--page-size", "18446744073709551615", "--pages", "1"], "more than 33554432 bytes in all");
    refused(&["--page-size", "4096", "--pages", "3", "--add-index", "repeated"], "is named twice");
    refused(
        &["--page-size", "4096", "--pages", "3", "--add-index", "outside"],
        "and region 0 has 16777216 bytes",
    );
    server.visit(&["--pages", "4000000000"]).failed(2, "cannot name");
    server.visit(&["--page-size", "4096"]).verified(1);

    let wrong = |address: &str| {
        let mut other = place.serve(&[]);
        other.end();
        other.address = address.to_owned();
        other.visit(&["--deadline", "2"])
    };
    wrong("0x12").failed(2, "hexadecimal");
    wrong("abc").failed(2, "two");
    wrong("00").failed(2, "not an address of the provider");
}

pub(crate) fn a_server_that_is_not_there_is_told(place: &Place) {
    let mut gone = place.serve(&[]);
    gone.end();
    let alone = gone.visit(&["--deadline", "2"]);
    alone.failed(4, "");
    assert!(!alone.stderr.contains("queue is full"), "that helps nobody whose server is gone: {alone:#?}");
}

pub(crate) fn a_client_that_is_killed_does_not_stop_the_server(place: &Place) {
    let server = place.serve(&[]);
    // It pauses in the middle of a request, outside of libfabric: a process that is killed while it
    // holds a lock in shared memory, as over shm, would block the others for good.
    let arguments = ["--page-size", "65536", "--pages", "128", "--requests", "9", "--rest-after", "2"];
    let client = server.start_visit(&arguments);
    assert!(client.line().contains("request 1: "));
    assert!(client.line().contains("request 2: "));
    assert_eq!(client.line(), "resting");
    client.kill();
    server.visit(&["--page-size", "4096", "--pages", "64", "--requests", "3"]).verified(3);
}

pub(crate) fn a_server_that_is_killed_ends_the_client(place: &Place) {
    let mut server = place.serve(&[]);
    let arguments = ["--page-size", "65536", "--pages", "64", "--requests", "100000", "--deadline", "3"];
    let client = server.start_visit(&arguments);
    assert!(client.line().contains("request 1: "));
    server.end();
    let ended = client.finish();
    assert_eq!(ended.code, Some(4), "{ended:#?}");
    assert!(ended.stderr.starts_with("error: ") && ended.stderr.contains("\nfix: "), "{ended:#?}");
}
