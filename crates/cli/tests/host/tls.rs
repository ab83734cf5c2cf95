//! The ways in which TLS fails, each by the real client and the real server: exit code, text and fix on the client's side, and what the server
//! logs. docs/SECURITY.md has the same list, and is compared.
//!
//! No library is needed for that: a client and a server come to the rails only after both sides have accepted each other. Where they do, the
//! client ends with code 3, because it has no rail.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use farreach_testkit::{Authority, Certificate};
use serde_json::Value;
use tempfile::TempDir;

use super::without_libraries;
use crate::support::client::{TOLD_WITHIN, assert_fails, assert_fails_as_json};
use crate::support::run::{Ended, FARREACH, end_of};

const SECRET: &str = "5f1d7a9c03e2b846d1f0a37c9be4582610cc47e39a5d8b71f2640e9d3ab8c75e";
const OTHER_SECRET: &str = "8b1f6e0d4c7a2935e8d07cb16fa4932155fe08b7c9d346a2e17bc05f9d82a63c";

/// The command, with no secret in its environment and without libraries.
fn farreach() -> Command {
    let mut command = Command::new(FARREACH);
    command.env_remove("FARREACH_SECRET").env("LD_LIBRARY_PATH", without_libraries());
    command
}

/// `farreach serve` with these flags. It has not looked for the rail that it offers, so it needs no library. It ends with the test.
struct Served {
    address: SocketAddr,
    server: Child,
    /// What the server and its agents have logged.
    log: Arc<Mutex<String>>,
}

impl Drop for Served {
    fn drop(&mut self) {
        // Its agents end with it.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Served {
    fn by(flags: &[&str]) -> Self {
        Self::at(Ipv4Addr::LOCALHOST.into(), flags, &[])
    }

    fn at(ip: IpAddr, flags: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut serve = farreach();
        serve.args(["serve", "--offer", "tcp", "-l", &SocketAddr::new(ip, 0).to_string()]).args(flags);
        serve.envs(variables.iter().copied());
        let serve = serve.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut server = serve.spawn().expect("the server starts");
        let (stdout, stderr) = (server.stdout.take().expect("piped"), server.stderr.take().expect("piped"));
        let log = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&log);
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines() {
                let line = line.expect("a log is UTF-8");
                kept.lock().expect("nobody panics").push_str(&format!("{line}\n"));
            }
        });
        let mut first = String::new();
        BufReader::new(stdout).read_line(&mut first).expect("output is UTF-8");
        let address = first.trim().strip_prefix("listening on ").and_then(|address| address.parse().ok());
        let address = address.unwrap_or_else(|| panic!("{serve:?} does not listen: {first:?}, {log:?}"));
        Self { address, server, log }
    }

    fn ping(&self, words: &[&str]) -> Command {
        let mut ping = farreach();
        ping.args(["ping", &self.address.to_string(), "-n", "10"]).args(words);
        ping
    }

    fn logged(&self) -> String {
        self.log.lock().expect("nobody panics").clone()
    }

    /// Waits until the server or an agent has logged these words.
    fn assert_logs(&self, words: &str) {
        let deadline = Instant::now() + TOLD_WITHIN;
        while !self.logged().contains(words) {
            assert!(Instant::now() < deadline, "{words:?} is not logged: {}", self.logged());
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A folder as `--tls` wants it.
fn folder(own: &Certificate, trusted: &Authority) -> TempDir {
    let folder = TempDir::new().expect("a temporary folder");
    for (name, text) in
        [("cert.pem", own.certificate.as_str()), ("key.pem", &own.key), ("ca.pem", trusted.root())]
    {
        fs::write(folder.path().join(name), text).expect("a file of our own");
    }
    chmod(&folder.path().join("key.pem"), 0o600);
    folder
}

/// A file as `--secret-file` wants it.
fn secret_file(folder: &TempDir, name: &str, digits: &str) -> String {
    let path = folder.path().join(name);
    fs::write(&path, digits).expect("a file of our own");
    chmod(&path, 0o600);
    text(&path).to_owned()
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).expect("a file of our own");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("its name is plain")
}

/// The client must fail with code 4 and these words, and docs/SECURITY.md must have the first of them in a row of its table.
fn assert_way(number: usize, served: &Served, words: &[&str], flags: &[&str]) -> Ended {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/SECURITY.md");
    let page = fs::read_to_string(page).expect("docs/SECURITY.md");
    let row =
        page.lines().find(|line| line.starts_with(&format!("| {number} | "))).expect("a row for each way");
    assert!(row.contains("| 4 |"), "{row}");
    for word in words {
        // A row shows texts without what differs from run to run.
        let shown = word.split(['"', '\n']).next().unwrap_or_default().trim();
        assert!(row.contains(shown), "row {number} of docs/SECURITY.md does not have {shown:?}: {row}");
    }
    let ended = assert_fails(&mut served.ping(flags), 4, words);
    assert!(!ended.stderr.contains("network"), "it is not the network: {ended:#?}");
    ended
}

/// Both sides accept each other: what fails then is that there is no library.
fn assert_accepted(served: &Served, flags: &[&str]) {
    let ended = assert_fails(&mut served.ping(flags), 3, &["libfabric"]);
    assert!(!ended.stderr.contains("TLS"), "{ended:#?}");
}

/// An authority, and folders of both sides by it.
struct Sides {
    house: Authority,
    server: TempDir,
    client: TempDir,
}

fn sides() -> Sides {
    let house = Authority::new("the house");
    let server = folder(&house.certify(&["127.0.0.1"]), &house);
    let client = folder(&house.certify(&["client-1"]), &house);
    Sides { house, server, client }
}

fn tls(folder: &TempDir) -> [&str; 2] {
    ["--tls", text(folder.path())]
}

#[test]
fn way_1_a_client_without_tls_is_told_what_the_server_wants() {
    let (Sides { server, client, .. }, secrets) = (sides(), TempDir::new().expect("a temporary folder"));
    let secret = secret_file(&secrets, "secret", SECRET);
    for (flags, fix) in [
        (
            tls(&server),
            "their fix: \"start the client with a certificate of the server's CA: farreach COMMAND PEER --tls FOLDER\"\n",
        ),
        (
            ["--secret-file", &secret],
            "their fix: \"start the client with the server's secret: farreach COMMAND PEER --secret-file farreach.secret\"\n",
        ),
    ] {
        let served = Served::by(&flags);
        let words =
            ["error: the server reports: it accepts TLS only", "cause: the client connected without TLS"];
        let ended = assert_way(1, &served, &words, &[]);
        assert!(ended.stderr.contains(fix), "{ended:#?}");
        served.assert_logs("it accepts TLS only");
        // It goes on.
        assert_accepted(&served, &if flags[0] == "--tls" { tls(&client) } else { flags });
    }
}

#[test]
fn way_2_a_server_without_tls_is_told_from_one_that_refuses() {
    let (Sides { client, .. }, secrets) = (sides(), TempDir::new().expect("a temporary folder"));
    let secret = secret_file(&secrets, "secret", SECRET);
    let served = Served::by(&[]);
    for (flags, fix) in [
        (tls(&client), "\n       farreach serve --tls FOLDER"),
        (["--secret-file", &secret], "\n       farreach serve --secret-file farreach.secret"),
    ] {
        let words = [
            "error: the server does not use TLS",
            "cause: its first bytes are not TLS",
            "start the server with TLS, too",
        ];
        let ended = assert_way(2, &served, &words, &flags);
        assert!(ended.stderr.contains(fix), "{ended:#?}");
    }
    served.assert_logs("uses TLS, and this side does not");
    assert_accepted(&served, &[]);
}

/// In TLS 1.3 the client has finished its handshake when the server refuses it, and closes the connection. It still learns why, each time.
#[test]
fn way_3_a_client_of_another_ca_is_told_its_certificate() {
    let Sides { house, server, client } = sides();
    let strangers = Authority::new("strangers");
    let stranger = folder(&strangers.certify(&["stranger"]), &house);
    let served = Served::by(&tls(&server));
    for _ in 0..8 {
        let words = [
            "error: the TLS handshake with the server failed",
            "cause: the peer refuses this side's certificate (\"stranger\", issued by \"strangers\", valid from 20",
            "no root of the peer has issued it",
            "add the root that issued this side's certificate to the roots of the peer",
            "\n       farreach tls init DIR HOST",
        ];
        let ended = assert_way(3, &served, &words, &tls(&stranger));
        let file = stranger.path().join("cert.pem");
        assert!(
            ended.stderr.contains(&format!(", in {}): ", file.display())),
            "the file is named: {ended:#?}"
        );
    }
    served.assert_logs("the peer's certificate (\"stranger\", issued by \"strangers\", valid from 20");
    served.assert_logs("is refused: no root of this side has issued it; its root is \"the house\"");
    assert_accepted(&served, &tls(&client));
}

#[test]
fn way_4_a_server_of_another_ca_is_told_by_its_certificate() {
    let Sides { house, server, .. } = sides();
    let strangers = Authority::new("strangers");
    let trusting = folder(&house.certify(&["client-1"]), &strangers);
    let served = Served::by(&tls(&server));
    let words = [
        "error: the TLS handshake with the server failed",
        "cause: the peer's certificate (\"127.0.0.1\", issued by \"the house\", valid from 20",
        "is refused: no root of this side has issued it; its root is \"strangers\"",
        "add the root that issued the peer's certificate to the roots of this side",
        "\n       farreach tls init DIR HOST",
    ];
    assert_way(4, &served, &words, &tls(&trusting));
    served.assert_logs("the peer refuses this side's certificate (\"127.0.0.1\", issued by \"the house\"");
    assert_fails_as_json(&mut served.ping(&tls(&trusting)), 4, &words);
}

#[test]
fn way_5_an_expired_client_is_told_its_certificate() {
    let Sides { house, server, .. } = sides();
    let late = folder(&house.certify_expired(&["client-1"]), &house);
    let served = Served::by(&tls(&server));
    for _ in 0..8 {
        let words = [
            "error: the TLS handshake with the server failed",
            "cause: the peer refuses this side's certificate (\"client-1\", issued by \"the house\", valid from 20",
            "it has expired, or is not valid yet",
            "renew this side's certificate, unless the peer's clock is wrong",
            "\n       mv DIR/HOST DIR/HOST.old && farreach tls init DIR HOST",
        ];
        let ended = assert_way(5, &served, &words, &tls(&late));
        let warning = "warning: the certificate \"client-1\" in ";
        assert_eq!(ended.stderr.matches(warning).count(), 1, "it is said at the start: {ended:#?}");
        assert!(ended.stderr.contains(" has expired on 20"), "{ended:#?}");
    }
    served.assert_logs("is refused: it has expired");
}

#[test]
fn way_6_an_expired_server_is_told_by_its_certificate() {
    let Sides { house, client, .. } = sides();
    let late = folder(&house.certify_expired(&["127.0.0.1"]), &house);
    let served = Served::by(&tls(&late));
    let words = [
        "error: the TLS handshake with the server failed",
        "cause: the peer's certificate (\"127.0.0.1\", issued by \"the house\", valid from 20",
        "is refused: it has expired",
        "renew the peer's certificate, unless this host's clock is wrong",
        "\n       mv DIR/HOST DIR/HOST.old && farreach tls init DIR HOST",
    ];
    assert_way(6, &served, &words, &tls(&client));
    served.assert_logs("the peer refuses this side's certificate (\"127.0.0.1\"");
}

#[test]
fn way_7_a_server_of_another_name_is_told_with_its_names() {
    let Sides { house, client, .. } = sides();
    let other = folder(&house.certify(&["storage-7", "10.0.0.7"]), &house);
    let served = Served::by(&tls(&other));
    let words = [
        "error: the TLS handshake with the server failed",
        "cause: the peer's certificate (\"storage-7\", issued by \"the house\", valid from 20",
        "is refused: it is for storage-7",
        "give a PEER that is in the certificate, or the name in it with --tls-name",
        "\n       farreach COMMAND PEER --tls FOLDER --tls-name NAME",
    ];
    let ended = assert_way(7, &served, &words, &tls(&client));
    assert!(ended.stderr.contains("it is for storage-7, 10.0.0.7, not for 127.0.0.1"), "{ended:#?}");
    assert_accepted(&served, &[&tls(&client)[..], &["--tls-name", "storage-7"]].concat());
    assert_accepted(&served, &[&tls(&client)[..], &["--tls-name", "10.0.0.7"]].concat());
}

#[test]
fn way_8_another_secret_is_told_by_both_sides() {
    let secrets = TempDir::new().expect("a temporary folder");
    let (one, other) = (secret_file(&secrets, "one", SECRET), secret_file(&secrets, "other", OTHER_SECRET));
    let served = Served::by(&["--secret-file", &one]);
    for _ in 0..8 {
        let words = [
            "error: the TLS handshake with the server failed",
            "cause: the two sides have different secrets",
            "give both sides the same secret: copy the file of one side to the other",
            "\n       sha256sum FILE",
        ];
        let ended = assert_way(8, &served, &words, &["--secret-file", &other]);
        assert!(![SECRET, OTHER_SECRET].iter().any(|it| ended.stderr.contains(&it[..8])), "{ended:#?}");
    }
    served.assert_logs("the two sides have different secrets");
    assert_accepted(&served, &["--secret-file", &one]);
}

#[test]
fn way_9_a_secret_and_a_certificate_are_told_from_each_other() {
    let (Sides { server, client, .. }, secrets) = (sides(), TempDir::new().expect("a temporary folder"));
    let secret = ["--secret-file", &secret_file(&secrets, "secret", SECRET)];
    let error = "error: the TLS handshake with the server failed";
    let fix = "use the same on both sides: the secret, or certificates of one CA";
    let served = Served::by(&tls(&server));
    assert_way(
        9,
        &served,
        &[error, "cause: this side uses a secret, the peer uses certificates", fix],
        &secret,
    );
    served.assert_logs("this side uses certificates, the peer uses a secret");
    let served = Served::by(&secret);
    assert_way(
        9,
        &served,
        &[error, "cause: this side uses certificates, the peer uses a secret", fix],
        &tls(&client),
    );
    served.assert_logs("this side uses a secret, the peer uses certificates");
}

/// By a file and by the environment, on either side.
#[test]
fn a_secret_may_be_in_the_environment() {
    let secrets = TempDir::new().expect("a temporary folder");
    let file = secret_file(&secrets, "secret", &format!("{SECRET}\n"));
    let served = Served::at(Ipv4Addr::LOCALHOST.into(), &[], &[("FARREACH_SECRET", SECRET)]);
    assert_accepted(&served, &["--secret-file", &file]);
    assert_fails(served.ping(&[]).env("FARREACH_SECRET", SECRET), 3, &["libfabric"]);
    let other = ["cause: the two sides have different secrets"];
    assert_fails(served.ping(&[]).env("FARREACH_SECRET", OTHER_SECRET), 4, &other);
    // A flag comes before it.
    let both = &mut served.ping(&["--secret-file", &file]);
    assert_fails(both.env("FARREACH_SECRET", OTHER_SECRET), 3, &["libfabric"]);
    let plain = Served::by(&[]);
    assert_fails(plain.ping(&["--insecure"]).env("FARREACH_SECRET", SECRET), 3, &["libfabric"]);
    for (wrong, cause) in [
        ("", "it is empty"),
        ("hunter2", "besides hexadecimal digits"),
        ("abc", "odd number of digits"),
        ("correct horse battery staple", "besides hexadecimal digits"),
        ("0011223344556677", "it has 64 bits"),
        ("00112233445566778899aabbccddeeff", "it is a pattern"),
    ] {
        let words = [
            "error: cannot use the secret in FARREACH_SECRET",
            cause,
            "\n       farreach secret new farreach.secret",
        ];
        let ended = assert_fails(served.ping(&[]).env("FARREACH_SECRET", wrong), 1, &words);
        assert!(wrong.is_empty() || !ended.stderr.contains(wrong), "{ended:#?}");
    }
}

/// The server has the first session with a client, and its agent the second one: by whatever the server was given.
#[test]
fn an_agent_has_a_session_of_its_own() {
    let (Sides { server, client, .. }, secrets) = (sides(), TempDir::new().expect("a temporary folder"));
    let secret = ["--secret-file", &secret_file(&secrets, "secret", SECRET)];
    let in_environment = Served::at(Ipv4Addr::LOCALHOST.into(), &[], &[("FARREACH_SECRET", SECRET)]);
    for (served, flags) in [
        (Served::by(&secret), &secret[..]),
        (in_environment, &secret),
        (Served::by(&tls(&server)), &tls(&client)),
        (Served::by(&[]), &[]),
    ] {
        let mut doctor = farreach();
        doctor.args(["doctor", &served.address.to_string(), "--json"]).args(flags);
        let ended = end_of(&mut doctor);
        let told: Value = serde_json::from_str(&ended.stdout).unwrap_or_default();
        let hosts = told["hosts"].as_array().map_or(0, Vec::len);
        assert_eq!(hosts, 2, "{flags:?}: {ended:#?}, {}", served.logged());
        served.assert_logs("doctor finished");
    }
}

/// A new secret comes into use without a new server, and a file that cannot be read does not end the old one.
#[test]
fn a_server_reads_its_secret_again() {
    let secrets = TempDir::new().expect("a temporary folder");
    let (file, other) =
        (secret_file(&secrets, "secret", SECRET), secret_file(&secrets, "other", OTHER_SECRET));
    let served = Served::by(&["--secret-file", &file]);
    assert_fails(&mut served.ping(&["--secret-file", &other]), 4, &["the two sides have different secrets"]);
    fs::rename(&other, &file).expect("files of our own");
    let deadline = Instant::now() + TOLD_WITHIN;
    while end_of(&mut served.ping(&["--secret-file", &file])).code != Some(3) {
        assert!(Instant::now() < deadline, "the new secret does not come into use: {}", served.logged());
    }
    let kept = secret_file(&secrets, "kept", OTHER_SECRET);
    fs::remove_file(&file).expect("a file of our own");
    while !served.logged().contains("the certificates or the secret of before are used: ") {
        assert!(Instant::now() < deadline, "it does not notice: {}", served.logged());
        assert_accepted(&served, &["--secret-file", &kept]);
    }
}

/// A file that others can read is refused, by the client and by the server.
#[test]
fn a_secret_that_others_can_read_is_refused() {
    let secrets = TempDir::new().expect("a temporary folder");
    let file = secret_file(&secrets, "secret", SECRET);
    chmod(Path::new(&file), 0o644);
    let served = Served::by(&[]);
    let fix = format!("\n       chmod 600 {file}");
    let words = ["error: read the secret in ", "cause: other users have access to it (mode 0644)", &fix];
    assert_fails(&mut served.ping(&["--secret-file", &file]), 1, &words);
    assert_fails(farreach().args(["serve", "-p", "0", "--secret-file", &file]), 1, &words);
    let missing = secrets.path().join("none");
    let fix = format!("\n       farreach secret new {}", text(&missing));
    assert_fails(&mut served.ping(&["--secret-file", text(&missing)]), 1, &["no such file", &fix]);
}

#[test]
fn a_secret_is_made_once_and_only_for_its_owner() {
    let folder = TempDir::new().expect("a temporary folder");
    let file = folder.path().join("farreach.secret");
    let ended = end_of(farreach().args(["secret", "new"]).arg(&file));
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:#?}");
    let digits = fs::read_to_string(&file).expect("it was made");
    assert_eq!(digits.trim().len(), 64);
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&file).expect("it was made").permissions());
    assert_eq!(mode & 0o777, 0o600);
    assert!(!ended.stdout.contains(digits.trim()), "it is not shown");
    for line in
        [format!("scp {} HOST:", text(&file)), format!("farreach serve --secret-file {}", text(&file))]
    {
        assert!(ended.stdout.lines().any(|it| it == line), "{line:?} is alone on its line: {ended:#?}");
    }
    let served = Served::by(&["--secret-file", text(&file)]);
    assert_accepted(&served, &["--secret-file", text(&file)]);
    let again = farreach().args(["secret", "new"]).arg(&file).output().expect("it starts");
    assert_eq!(again.status.code(), Some(1));
    assert_eq!(fs::read_to_string(&file).expect("it was made"), digits, "nothing is overwritten");
    let other = folder.path().join("other");
    assert_eq!(end_of(farreach().args(["secret", "new"]).arg(&other)).code, Some(0));
    assert!(fs::read_to_string(&other).expect("it was made") != digits, "no two are the same");
}

#[test]
fn tls_init_makes_what_both_sides_need() {
    let folder = TempDir::new().expect("a temporary folder");
    let dir = folder.path().join("certs");
    let init = |words: &[&str]| end_of(farreach().args(["tls", "init"]).arg(&dir).args(words));
    let ended = init(&["storage-7,127.0.0.1", "client-1"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:#?}");
    for line in [
        format!("scp -r {}/storage-7 storage-7:farreach-tls", text(&dir)),
        "farreach serve --tls farreach-tls".to_owned(),
        "farreach ping storage-7 --tls farreach-tls".to_owned(),
    ] {
        assert!(ended.stdout.lines().any(|it| it == line), "{line:?} is alone on its line: {ended:#?}");
    }
    for key in ["ca/key.pem", "storage-7/key.pem", "client-1/key.pem"] {
        let status = fs::metadata(dir.join(key)).expect(key);
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&status.permissions()) & 0o777, 0o600, "{key}");
    }
    // A host that comes later is of the same CA.
    let ca = fs::read(dir.join("ca/cert.pem")).expect("the CA");
    let ended = init(&["client-2", "--days", "7"]);
    assert!(ended.code == Some(0) && ended.stdout.starts_with("uses "), "{ended:#?}");
    assert_eq!(fs::read(dir.join("ca/cert.pem")).expect("the CA"), ca);
    assert!(!dir.join("client-2/ca/key.pem").exists() && !dir.join("client-2/ca-key.pem").exists());
    let of = |name: &str| text(&dir.join(name)).to_owned();
    let served = Served::by(&["--tls", &of("storage-7")]);
    for client in ["client-1", "client-2"] {
        assert_accepted(&served, &["--tls", &of(client)]);
    }
    let ended = assert_fails(&mut served.ping(&["--tls", &of("client-2")]), 3, &[]);
    assert!(ended.stderr.contains("warning: the certificate \"client-2\" in "), "{ended:#?}");
    assert!([", in 6 days\n", ", in 7 days\n"].iter().any(|days| ended.stderr.contains(days)), "{ended:#?}");
    // Another CA is another one.
    let other = folder.path().join("other");
    assert_eq!(end_of(farreach().args(["tls", "init"]).arg(&other).arg("client-1")).code, Some(0));
    assert_fails(
        &mut served.ping(&["--tls", text(&other.join("client-1"))]),
        4,
        &["no root of this side has issued it"],
    );
}

/// Every file under a folder, with its contents.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() {
            found.extend(files(&entry));
        } else {
            found.push((text(&entry).to_owned(), fs::read(&entry).expect("a file")));
        }
    }
    found.sort();
    found
}

#[test]
fn tls_init_overwrites_nothing_and_leaves_nothing_half_done() {
    let folder = TempDir::new().expect("a temporary folder");
    let dir = folder.path().join("certs");
    let init = |words: &[&str]| {
        let mut init = farreach();
        init.args(["tls", "init"]).arg(&dir).args(words);
        init
    };
    assert_eq!(end_of(&mut init(&["storage-7"])).code, Some(0));
    let before = files(&dir);
    assert_eq!(before.len(), 5);
    let fix = format!("\n       mv {0} {0}.old", text(&dir.join("storage-7")));
    assert_fails(&mut init(&["client-1", "storage-7"]), 1, &["it exists, and nothing is overwritten", &fix]);
    assert_fails(&mut init(&["a", "a,b"]), 2, &["the host a is named twice"]);
    for words in [
        &["../x"][..],
        &["/etc"],
        &["ca"],
        &["a/b"],
        &["a:1"],
        &["a", "--days", "0"],
        &["a", "--days", "3651"],
    ] {
        assert_eq!(end_of(&mut init(words)).code, Some(2), "{words:?}");
    }
    assert_eq!(files(&dir), before, "a refused call makes nothing");
    // A CA whose files do not belong together is noticed before a certificate is made.
    let other = folder.path().join("other");
    assert_eq!(end_of(farreach().args(["tls", "init"]).arg(&other)).code, Some(0));
    fs::copy(other.join("ca/key.pem"), dir.join("ca/key.pem")).expect("files of our own");
    let before = files(&dir);
    assert_fails(&mut init(&["client-1"]), 1, &["cannot use the CA in "]);
    fs::remove_file(dir.join("ca/key.pem")).expect("a file of our own");
    assert_fails(&mut init(&["client-1"]), 1, &["key.pem"]);
    fs::write(dir.join("ca/key.pem"), "no key").expect("a file of our own");
    assert_fails(&mut init(&["client-1"]), 1, &["cannot use ", "key.pem"]);
    assert_eq!(files(&dir).len(), before.len(), "a refused call makes nothing");
}

/// Who listens in clear text has to say so; the error has each command alone on its line.
#[test]
fn a_server_beyond_loopback_needs_tls() {
    let serve = |words: &[&str]| {
        let mut serve = farreach();
        // shm is no RDMA, so there is no rail.
        serve.args(["serve", "-p", "0", "--require-rdma"]).args(words);
        serve
    };
    let commands = [
        "       farreach secret new farreach.secret",
        "       farreach serve -p 0 --require-rdma --secret-file farreach.secret",
        "       farreach serve -p 0 --require-rdma --insecure",
    ];
    let ended = assert_fails(&mut serve(&[]), 2, &["error: cannot listen on port 0 without TLS"]);
    for line in commands.iter().chain(&["       farreach serve -p 0 --require-rdma --listen 127.0.0.1"]) {
        assert!(ended.stderr.lines().any(|it| it == *line), "{line:?} is alone on its line: {ended:#?}");
    }
    assert!(
        ended.stderr.lines().any(|it| it.starts_with("       farreach tls init farreach-tls ")),
        "{ended:#?}"
    );
    for listen in ["0.0.0.0", "::", "10.0.0.7", "::ffff:0.0.0.0"] {
        assert_fails(&mut serve(&["-l", listen]), 2, &["without TLS", "cause: other hosts can reach it"]);
    }
    // What is allowed comes to the rails, of which there is none.
    for listen in ["127.0.0.1", "127.1.2.3"] {
        let ended = assert_fails(&mut serve(&["-l", listen]), 3, &["no rail to offer"]);
        assert!(!ended.stderr.contains("warning"), "{ended:#?}");
    }
    for words in [&["--insecure"][..], &["--insecure", "-l", "0.0.0.0"]] {
        for _ in 0..2 {
            let ended = assert_fails(&mut serve(words), 3, &["no rail to offer"]);
            let warnings: Vec<&str> =
                ended.stderr.lines().filter(|line| line.starts_with("warning: ")).collect();
            assert!(
                matches!(&warnings[..], [one] if one.starts_with("warning: --insecure: anyone who")),
                "{ended:#?}"
            );
        }
    }
    assert_fails(serve(&[]).env("FARREACH_SECRET", SECRET), 3, &["no rail to offer"]);
    let secrets = TempDir::new().expect("a temporary folder");
    let secret = secret_file(&secrets, "secret", SECRET);
    assert_fails(&mut serve(&["--secret-file", &secret]), 3, &["no rail to offer"]);
    let Sides { house, .. } = sides();
    let soon = folder(&house.certify_for_days(&["storage-7"], 10), &house);
    let warning = format!(
        "warning: the certificate \"storage-7\" in {} expires on 20",
        text(&soon.path().join("cert.pem"))
    );
    assert_fails(&mut serve(&tls(&soon)), 3, &["no rail to offer", &warning]);
    for words in [
        &["--insecure", "--secret-file", "x"][..],
        &["--tls", "x", "--secret-file", "x"],
        &["--insecure", "--tls", "x"],
    ] {
        assert_eq!(end_of(&mut serve(words)).code, Some(2), "{words:?}");
    }
}

/// A client is as exposed as a server. Nothing is sent before it knows.
#[test]
fn a_client_beyond_loopback_needs_tls() {
    for command in ["ping", "fill", "blast", "bench", "chip", "doctor"] {
        let mut client = farreach();
        client.args([command, "192.0.2.7"]);
        let typed = format!("       farreach {command} 192.0.2.7 ");
        let words = [
            "error: cannot connect to 192.0.2.7:18520 without TLS",
            "cause: 192.0.2.7 is beyond this host",
            &format!("\n{typed}--secret-file farreach.secret\n"),
            &format!("\n{typed}--tls farreach-tls\n"),
        ];
        assert_fails(&mut client, 2, &words);
    }
    assert_fails_as_json(
        farreach().args(["ping", "[2001:db8::7]:99"]),
        2,
        &["farreach ping '[2001:db8::7]:99' "],
    );
    // Nobody is examined in clear text, whatever the server allows.
    assert_eq!(end_of(farreach().args(["doctor", "192.0.2.7", "--insecure"])).code, Some(2));
}

/// An address of this host that is not loopback, if it has one. Nothing is sent.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

/// What a server and its agent answer to a client that orders a look at its host in clear text, whatever its own command would do.
fn ask_to_look(address: SocketAddr) -> Vec<Value> {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(TOLD_WITHIN)).expect("a socket");
    stream.write_all(b"frcmd\n\x00\x04").expect("it is connected");
    stream.read_exact(&mut [0; 8]).expect("its version");
    let hear = || -> Option<Value> {
        let mut len = [0; 4];
        (&stream).read_exact(&mut len).ok()?;
        let mut word = vec![0; u32::from_be_bytes(len) as usize];
        (&stream).read_exact(&mut word).ok()?;
        serde_json::from_slice(&word).ok()
    };
    hear().expect("a welcome");
    let order = serde_json::json!({
        "version": "0", "host": "x", "rails": { "cards": false, "providers": [] },
        "engine": { "wait": "adaptive", "depth": 1, "messages": 1, "message_bytes_max": 64 },
        "test": 7, "connections": 1, "task": { "Doctor": "Look" },
    });
    let order = order.to_string();
    let framed = [&(order.len() as u32).to_be_bytes(), order.as_bytes()].concat();
    (&stream).write_all(&framed).expect("it is connected");
    std::iter::from_fn(hear).collect()
}

/// Also a server with --insecure gives its inventory to nobody whom it does not know.
#[test]
fn nobody_is_examined_in_clear_text() {
    // On this host, it is.
    let served = Served::by(&["--insecure"]);
    let answers = ask_to_look(served.address);
    let told = answers.last().and_then(|last| last.get("Ok"));
    assert!(told.is_some_and(|told| told.get("pack").is_some()), "{answers:?}");
    let Some(own) = own_address() else {
        return eprintln!("skipped: this host has no address but loopback");
    };
    let served = Served::at(own, &["--insecure"], &[]);
    let answers = ask_to_look(served.address);
    assert_eq!(answers.len(), 1, "no agent is started: {answers:?}");
    let refusal = &answers[0]["Refused"];
    assert_eq!(refusal["error"], "it can be examined over TLS only", "{answers:?}");
    assert!(
        refusal["cause"].as_str().is_some_and(|it| it.contains("--insecure does not allow it")),
        "{refusal}"
    );
    assert!(
        refusal["fix"].as_str().is_some_and(|it| it.contains("\nfarreach secret new farreach.secret\n")),
        "{refusal}"
    );
    served.assert_logs("refused: it can be examined over TLS only: a diagnosis is an inventory of the host");
}
