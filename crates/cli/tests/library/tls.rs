//! The command over TLS: both sides show a certificate, and who has none is told so.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use farreach_testkit::{Authority, Certificate};
use tempfile::TempDir;

use crate::support::run::{Ended, FARREACH, end_of};
use crate::support::server::{PATIENCE, Server};

/// A folder as `--tls` wants it.
fn folder(own: &Certificate, trusted: &Authority) -> TempDir {
    let folder = TempDir::new().expect("a temporary folder");
    for (name, text) in
        [("cert.pem", own.certificate.as_str()), ("key.pem", &own.key), ("ca.pem", trusted.root())]
    {
        fs::write(folder.path().join(name), text).expect("a file of our own");
    }
    let private = fs::Permissions::from_mode(0o600);
    fs::set_permissions(folder.path().join("key.pem"), private).expect("a file of our own");
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
    let fix = "their fix: \"start the client with a certificate of the server's CA:";
    assert_told(&ping(&secured, &[]), &["it accepts TLS only", fix]);
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
    assert_told(&misnamed, &["is refused: it is for 127.0.0.1, not for storage-7", "--tls-name"]);
}

/// A secret, and certificates of `farreach tls init`, on every address: as on two hosts.
#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn every_command_works_with_a_secret_and_with_certificates_of_tls_init() {
    let folder = TempDir::new().expect("a temporary folder");
    let secret = text(&folder.path().join("secret")).to_owned();
    let certificates = text(&folder.path().join("certs")).to_owned();
    let storage = format!("{certificates}/storage-7");
    for words in
        [&["secret", "new", &secret][..], &["tls", "init", &certificates, "storage-7,127.0.0.1", "client-1"]]
    {
        let ended = end_of(Command::new(FARREACH).args(words));
        assert_eq!(ended.code, Some(0), "{ended:#?}");
    }
    let client = format!("{certificates}/client-1");
    for (server, client) in
        [(["--secret-file", &secret], ["--secret-file", &secret]), (["--tls", &storage], ["--tls", &client])]
    {
        let server = Server::start(&server);
        assert!(server.startup_lines().contains(", every address"), "{}", server.startup_lines());
        let tests: [(&str, &[&str]); 5] = [
            ("ping", &["-n", "200"]),
            ("fill", &["--pages", "64"]),
            ("blast", &["-n", "50"]),
            ("bench", &["--op", "write", "-s", "4K", "-D", "0.1", "-r", "1", "--queues", "2"]),
            ("doctor", &[]),
        ];
        for (command, few) in tests {
            let ended = server.run(command, &[&["-d", "tcp"], &client[..], few].concat());
            assert_eq!(ended.code, Some(0), "{command}: {ended:#?}");
            assert!(!ended.stderr.contains("warning"), "{command}: {ended:#?}");
        }
        assert_told(&ping(&server, &[]), &["it accepts TLS only"]);
    }
}

/// Clear text beyond loopback is for who asks for it, on both sides, and it is said each time.
#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn clear_text_is_for_who_asks_for_it() {
    let server = Server::start(&["--insecure"]);
    assert_eq!(server.count_log("warning: --insecure"), 1, "{:#?}", server.log());
    // On this host, nothing has to be allowed.
    let ended = ping(&server, &[]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:#?}");
    let Some(own) = own_address() else { return eprintln!("skipped: this host has no address but loopback") };
    let port = server.address().rsplit(':').next().expect("a port").to_owned();
    let ping = |words: &[&str]| {
        let mut ping = Command::new(FARREACH);
        ping.env_remove("FARREACH_SECRET")
            .args(["ping", &own, "-p", &port, "-d", "tcp", "-n", "100"])
            .args(words);
        end_of(&mut ping)
    };
    assert_eq!(ping(&[]).code, Some(2));
    for _ in 0..2 {
        let ended = ping(&["--insecure"]);
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        assert_eq!(ended.stderr.matches("warning: --insecure: ").count(), 1, "{ended:#?}");
        assert_eq!(ended.stderr.lines().count(), 1, "{ended:#?}");
    }
}

/// An address of this host that is not loopback, if it has one. Nothing is sent.
fn own_address() -> Option<String> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then(|| address.to_string())
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn a_folder_that_lacks_a_file_is_told_before_anybody_is_called() {
    let empty = TempDir::new().expect("a temporary folder");
    let server = Server::start(&[]);
    let ended = ping(&server, &["--tls", text(empty.path())]);
    assert!(ended.code != Some(0) && ended.stderr.contains("cert.pem"), "{ended:#?}");
}
