//! The command over TLS: both sides show a certificate, and who has none is told so.

use std::fs;
use std::path::Path;

use farreach_testkit::{Authority, Certificate};
use tempfile::TempDir;

use crate::support::run::Ended;
use crate::support::server::{PATIENCE, Server};

/// A folder as `--tls` wants it.
fn folder(own: &Certificate, trusted: &Authority) -> TempDir {
    let folder = TempDir::new().expect("a temporary folder");
    for (name, text) in
        [("cert.pem", own.certificate.as_str()), ("key.pem", &own.key), ("ca.pem", trusted.root())]
    {
        fs::write(folder.path().join(name), text).expect("a file of our own");
    }
    folder
}

fn text(path: &Path) -> &str {
    path.to_str().expect("its name is plain")
}

fn ping(server: &Server, words: &[&str]) -> Ended {
    server.run("ping", &[&["-d", "tcp", "-n", "100"], words].concat())
}

fn assert_told(ended: &Ended, words: &[&str]) {
    assert_eq!(ended.code, Some(4), "{ended:#?}");
    for word in words {
        assert!(ended.stderr.contains(word), "{word:?} is not told: {ended:#?}");
    }
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn both_sides_of_one_authority_trust_each_other() {
    let authority = Authority::new("the house");
    let server_folder = folder(&authority.certify(&["127.0.0.1"]), &authority);
    let client_folder = folder(&authority.certify(&["nobody"]), &authority);
    let server = Server::start(&["--tls", text(server_folder.path())]);
    let tests: [(&str, &[&str]); 4] =
        [("ping", &["-n", "200"]), ("fill", &["--pages", "64"]), ("blast", &["-n", "50"]), ("doctor", &[])];
    for (command, few) in tests {
        let words = [&["-d", "tcp", "--tls", text(client_folder.path())][..], few].concat();
        let ended = server.run(command, &words);
        assert_eq!(ended.code, Some(0), "{command}: {ended:#?}");
    }
    assert_eq!(server.count_log("handshake failed"), 0, "who only looks is no failure: {:#?}", server.log());
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn a_side_without_tls_is_told_which_one_it_is() {
    let authority = Authority::new("the house");
    let own = folder(&authority.certify(&["127.0.0.1"]), &authority);
    let secured = Server::start(&["--tls", text(own.path())]);
    assert_told(&ping(&secured, &[]), &["it accepts TLS only", "fix: start the client with --tls"]);
    let plain = Server::start(&[]);
    assert_told(
        &ping(&plain, &["--tls", text(own.path())]),
        &["the server does not use TLS", "farreach serve --tls"],
    );
    // Both go on.
    assert_eq!(ping(&plain, &[]).code, Some(0));
    assert_eq!(ping(&secured, &["--tls", text(own.path())]).code, Some(0));
}

/// One who comes when there is no room is told so, in the language that it speaks; and nobody who is silent keeps others from that.
#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn a_busy_server_says_so_over_tls() {
    let authority = Authority::new("the house");
    let own = folder(&authority.certify(&["127.0.0.1"]), &authority);
    let tls = ["--tls", text(own.path())];
    let mut server = Server::start(&[&tls[..], &["--clients-max", "1", "--queue-max", "0"]].concat());
    let served = server.start_client("ping", &[&["-D", "60"], &tls[..]].concat());
    server.wait_for_log("ping from");
    let silent = std::net::TcpStream::connect(server.address()).expect("it listens");
    let busy = ["the server reports: it is busy", "1 client is being served"];
    assert_told(&ping(&server, &tls), &busy);
    assert_told(&ping(&server, &[]), &["it accepts TLS only"]);
    assert_told(&ping(&server, &tls), &busy);
    server.wait_for_logs("refused, 1 client is being served", 2);
    drop((silent, served));
    server.wait_for_no_agent();
    assert_eq!(ping(&server, &tls).code, Some(0));
}

/// The server has one TLS session with a client that waits, and its agent has the next.
#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn a_client_waits_over_tls_and_is_served_then() {
    let authority = Authority::new("the house");
    let own = folder(&authority.certify(&["127.0.0.1"]), &authority);
    let tls = ["--tls", text(own.path())];
    let mut server = Server::start(&[&tls[..], &["--clients-max", "1"]].concat());
    let served = server.start_served("ping", &[&["-D", "300"], &tls[..]].concat());
    let mut waits = server.start_client("ping", &[&["-d", "tcp", "-n", "10"], &tls[..]].concat());
    waits.wait_for("waiting: the server is busy: 1 client is being served", PATIENCE);
    served.signal("INT");
    assert_eq!(served.end_within(PATIENCE).code, Some(130));
    let ended = waits.end_within(PATIENCE);
    assert_eq!(ended.code, Some(0), "{ended:#?}, {:#?}", server.log());
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn who_is_not_trusted_is_refused() {
    let (house, strangers) = (Authority::new("the house"), Authority::new("strangers"));
    let own = folder(&house.certify(&["127.0.0.1"]), &house);
    let server = Server::start(&["--tls", text(own.path())]);
    let refused = [
        ("a stranger", folder(&strangers.certify(&["127.0.0.1"]), &house)),
        ("one that trusts strangers only", folder(&house.certify(&["127.0.0.1"]), &strangers)),
        ("one of yesterday", folder(&house.certify_expired(&["127.0.0.1"]), &house)),
    ];
    for (who, folder) in &refused {
        let ended = ping(&server, &["--tls", text(folder.path())]);
        assert_eq!(ended.code, Some(4), "{who}: {ended:#?}");
        assert!(ended.stderr.contains("fix: "), "{who}: {ended:#?}");
    }
    let misnamed = ping(&server, &["--tls", text(own.path()), "--tls-name", "storage-7"]);
    assert_told(&misnamed, &["was refused", "--tls-name"]);
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn a_folder_that_lacks_a_file_is_told_before_anybody_is_called() {
    let empty = TempDir::new().expect("a temporary folder");
    let server = Server::start(&[]);
    let ended = ping(&server, &["--tls", text(empty.path())]);
    assert!(ended.code != Some(0) && ended.stderr.contains("cert.pem"), "{ended:#?}");
}
