//! Engines over TLS, with simulated cards and real sockets: which peers are accepted, by which
//! name, and the errors of both sides if one is refused.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::{Duration, Instant};

use farreach::{
    Access, ControlStream, Engine, Error, ErrorKind, Peer, Rights, Settings, Tls, TlsParts, rustls,
};
use farreach_sim::{SimCard, SimNetwork, SimRail, SimSettings};
use farreach_testkit::{Authority, wait_for};

const SOON: Duration = Duration::from_secs(20);

/// Long enough for a refusal to be noticed.
const A_WHILE: Duration = Duration::from_millis(500);

fn engine(network: &SimNetwork, settings: Settings) -> Engine {
    let rail = SimRail::new(network, 0, SimCard::tcp());
    Engine::over(vec![Box::new(rail)], settings).unwrap()
}

fn network() -> SimNetwork {
    SimNetwork::real_time(SimSettings::new(1))
}

/// Settings with a certificate of the authority for these names. They trust the same authority.
fn tls(authority: &Authority, names: &[&str]) -> Tls {
    let shown = authority.certify(names);
    Tls::from_pem(TlsParts {
        certificate: shown.certificate.as_str(),
        key: &shown.key,
        roots: authority.root(),
    })
    .unwrap()
}

fn named(name: &str) -> Settings {
    Settings::new().name(name)
}

fn streams() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (one, listener.accept().unwrap().0)
}

fn exchange(a: &Peer, b: &Peer) {
    a.send("ping").wait(SOON).unwrap();
    assert_eq!(b.recv().wait(SOON).unwrap(), b"ping");
}

#[track_caller]
fn says(error: &Error, cause: &str, fix: &str) {
    assert!(error.cause().contains(cause), "{error:?}");
    assert!(error.fix().contains(fix), "{error:?}");
}

#[test]
fn a_quiet_peer_stays() {
    let (network, authority) = (network(), Authority::new("the house"));
    let settings = |name| {
        // A busy machine delays a process by up to half a second.
        let heartbeat = (Duration::from_millis(100), Duration::from_secs(2));
        named(name).heartbeat(heartbeat.0).peer_timeout(heartbeat.1).tls(tls(&authority, &["127.0.0.1"]))
    };
    let (a, b) = (engine(&network, settings("a")), engine(&network, settings("b")));
    let address = b.listen("127.0.0.1:0").unwrap();
    let a_to_b = a.connect(address).unwrap().wait(SOON).unwrap();
    let b_to_a = b.accept().wait(SOON).unwrap();
    thread::sleep(Duration::from_secs(3));
    exchange(&a_to_b, &b_to_a);
    exchange(&b_to_a, &a_to_b);
}

#[test]
fn only_peers_with_a_permitted_name_open_what_is_published() {
    let (network, authority) = (network(), Authority::new("the house"));
    let settings = |name: &str| named(name).tls(tls(&authority, &["127.0.0.1", name]));
    let store = engine(&network, settings("store.example"));
    let address = store.listen("127.0.0.1:0").unwrap();
    let memory = store.allocate(4096).wait(SOON).unwrap();
    let access = Access::only(["reader-1.example"]);
    let published = store.publish_exposed(memory, Rights::READ, access).wait(SOON).unwrap();
    let readers = ["reader-1.example", "reader-2.example"].map(|name| {
        let reader = engine(&network, settings(name));
        let to_store = reader.connect(address).unwrap().wait(SOON).unwrap();
        (to_store, store.accept().wait(SOON).unwrap(), reader)
    });
    readers[0].0.open(published.token()).wait(SOON).unwrap();
    let error = readers[1].0.open(published.token()).wait(SOON).unwrap_err();
    says(&error, "does not permit this peer", "check the token");
    published.admit("reader-2.example").wait(SOON).unwrap();
    readers[1].0.open(published.token()).wait(SOON).unwrap();
}

/// A revocation is for the names of the certificate: for all its connections, now and later.
#[test]
fn who_was_revoked_opens_it_over_no_other_connection() {
    let (network, authority) = (network(), Authority::new("the house"));
    // The second name is one that certificates have in common.
    let settings = |name: &str| named(name).tls(tls(&authority, &["127.0.0.1", name, "Workers.example"]));
    let store = engine(&network, settings("store.example"));
    let address = store.listen("127.0.0.1:0").unwrap();
    let readers = ["reader-1.example", "reader-2.example"].map(|name| engine(&network, settings(name)));
    let join = |reader: &Engine| {
        let to_store = reader.connect(address).unwrap().wait(SOON).unwrap();
        (to_store, store.accept().wait(SOON).unwrap())
    };
    let (memory, access) =
        (store.allocate(4096).wait(SOON).unwrap(), Access::only(["Reader-1.example.", "reader-2.EXAMPLE"]));
    let published = store.publish_exposed(memory, Rights::READ, access).wait(SOON).unwrap();
    let open = |peer: &Peer| peer.open(published.token()).wait(SOON);
    let is_refused = |peer: &Peer| open(peer).unwrap_err().cause().contains("revoked");

    let (first, first_peer) = join(&readers[0]);
    let (again, _again_peer) = join(&readers[0]);
    let (other, _other_peer) = join(&readers[1]);
    let remotes = [&first, &again, &other].map(|peer| open(peer).unwrap());
    published.revoke_peer(&first_peer, SOON).wait(SOON).unwrap();
    for (peer, remote) in [(&first, &remotes[0]), (&again, &remotes[1])] {
        assert!(peer.read(remote, vec![0; 8]).wait(SOON).is_err() && is_refused(peer));
    }
    other.read(&remotes[2], vec![0; 8]).wait(SOON).unwrap();
    let (later, later_peer) = join(&readers[0]);
    assert!(is_refused(&later));
    published.admit("reader-1.Example").wait(SOON).unwrap();
    let remote = open(&later).unwrap();
    later.read(&remote, vec![0; 8]).wait(SOON).unwrap();

    // Its name is known after its connection is gone.
    drop(later);
    let is_forgotten = || (later_peer.lost().is_some() && store.peer_count().unwrap() == 3).then_some(());
    wait_for("the connection is gone", is_forgotten);
    published.revoke_peer(&later_peer, SOON).wait(SOON).unwrap();
    assert!(is_refused(&join(&readers[0]).0));

    published.expel("reader-2.example", SOON).wait(SOON).unwrap();
    assert!(other.read(&remotes[2], vec![0; 8]).wait(SOON).is_err() && is_refused(&other));
    for name in ["", "127.0.0.1", "::1"] {
        let error = published.expel(name, SOON).wait(SOON).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
    }
}

#[test]
fn only_peers_with_a_permitted_name_open_a_shared_counter() {
    let (network, authority) = (network(), Authority::new("the house"));
    let settings = |name: &str| named(name).tls(tls(&authority, &["127.0.0.1", name]));
    let store = engine(&network, settings("store.example"));
    let address = store.listen("127.0.0.1:0").unwrap();
    let arrived = store.open_counter(Access::only(["writer-1.example"])).wait(SOON).unwrap();
    let writers = ["writer-1.example", "writer-2.example"].map(|name| {
        let writer = engine(&network, settings(name));
        let to_store = writer.connect(address).unwrap().wait(SOON).unwrap();
        (to_store, store.accept().wait(SOON).unwrap(), writer)
    });
    writers[0].0.open_shared_counter(arrived.token()).wait(SOON).unwrap();
    let error = writers[1].0.open_shared_counter(arrived.token()).wait(SOON).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotGranted);
    says(&error, "does not permit this peer", "check the token");
    arrived.admit("writer-2.example").wait(SOON).unwrap();
    writers[1].0.open_shared_counter(arrived.token()).wait(SOON).unwrap();
    arrived.opened_by(2).wait(SOON).unwrap();
    let plain = engine(&network, named("plain"));
    let refused = plain.open_counter(Access::only(["a"])).wait(SOON).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Tls, "{refused}");
    let anyone = plain.open_counter(Access::Anyone).wait(SOON).unwrap();
    assert_eq!(anyone.admit("a").wait(SOON).unwrap_err().kind(), ErrorKind::Argument);
}

#[test]
fn names_need_certificates() {
    let plain = engine(&network(), named("plain"));
    let memory = plain.allocate(4096).wait(SOON).unwrap();
    let refused = plain.publish_exposed(memory, Rights::READ, Access::only(["a"])).wait(SOON).unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::Tls, "{refused}");
    let memory = refused.memory.expect("it comes back").try_into_slice().expect("nobody has a key");
    let anyone = plain.publish_exposed(memory, Rights::READ, Access::Anyone).wait(SOON).unwrap();
    assert_eq!(anyone.admit("a").wait(SOON).unwrap_err().kind(), ErrorKind::Argument);
}

#[test]
fn who_speaks_tls_and_who_does_not_both_say_so() {
    let (network, authority) = (network(), Authority::new("the house"));
    for caller_is_secure in [true, false] {
        let secure = named("secure").tls(tls(&authority, &["127.0.0.1"]));
        let (secure, plain) = (engine(&network, secure), engine(&network, named("plain")));
        let (caller, called) = if caller_is_secure { (&secure, &plain) } else { (&plain, &secure) };
        let address = called.listen("127.0.0.1:0").unwrap();
        let begun = Instant::now();
        let connecting = caller.connect(address).unwrap().wait(SOON).unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(5));
        let accepting = called.accept().wait(A_WHILE).unwrap_err();
        let (here, there) = ("the peer uses TLS, this side does not", "the peer does not");
        let (by_caller, by_called) = if caller_is_secure { (there, here) } else { (here, there) };
        says(&connecting, by_caller, "Settings::tls");
        says(&accepting, by_called, "Settings::tls");
        assert_eq!(connecting.kind(), ErrorKind::Connect, "{connecting:?}");
        assert!(accepting.to_string().starts_with("accept from 127.0.0.1:"), "{accepting}");
        // The error was reported, and is not reported again.
        let nobody = called.accept().wait(Duration::from_millis(20));
        assert_eq!(nobody.unwrap_err().kind(), ErrorKind::TimedOut);
    }
}

#[test]
fn who_is_not_trusted_is_told_what_to_do() {
    let network = network();
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let called = engine(&network, named("called").tls(tls(&ours, &["127.0.0.1"])));
    let stranger = engine(&network, named("stranger").tls(tls(&theirs, &["127.0.0.1"])));
    let address = called.listen("127.0.0.1:0").unwrap();
    let error = stranger.connect(address).unwrap().wait(SOON).unwrap_err();
    says(&error, "no root of this side has issued it", "to the roots of this side");
    let error = called.accept().wait(A_WHILE).unwrap_err();
    says(&error, "no root of the peer has issued it", "to the roots of the peer");
    // The engine keeps accepting peers.
    let friend = engine(&network, named("friend").tls(tls(&ours, &[])));
    let friend_to_called = friend.connect(address).unwrap().wait(SOON).unwrap();
    let called_to_friend = called.accept().wait(SOON).unwrap();
    exchange(&friend_to_called, &called_to_friend);
}

/// The certificate has to be valid for the host of the address, in whichever form the address is
/// given.
#[test]
fn the_host_that_was_asked_for_is_the_name_that_is_checked() {
    let (network, authority) = (network(), Authority::new("the house"));
    let called = engine(&network, named("called").tls(tls(&authority, &["localhost"])));
    let port = called.listen("localhost:0").unwrap().port();
    let caller = engine(&network, named("caller").tls(tls(&authority, &[])));
    for _ in 0..2 {
        caller.connect(format!("localhost:{port}")).unwrap().wait(SOON).unwrap();
        caller.connect(("localhost", port)).unwrap().wait(SOON).unwrap();
    }
    let address = std::net::ToSocketAddrs::to_socket_addrs(&("localhost", port)).unwrap().next().unwrap();
    let error = caller.connect(address).unwrap().wait(SOON).unwrap_err();
    says(&error, &format!("it is for localhost, not for {}", address.ip()), "Tls::server_name");
    let expecting = tls(&authority, &[]).server_name("localhost").unwrap();
    let caller = engine(&network, named("caller").tls(expecting));
    caller.connect(address).unwrap().wait(SOON).unwrap();
}

#[test]
fn a_plain_stream_of_an_engine_over_tls_is_made_secure() {
    let (network, authority) = (network(), Authority::new("the house"));
    let secure = |name| engine(&network, named(name).tls(tls(&authority, &["127.0.0.1"])));
    let (a, b) = (secure("a"), secure("b"));
    let (one, other) = streams();
    let (mut accepting, mut connecting) = (b.accept_over(other).unwrap(), a.connect_over(one).unwrap());
    exchange(&connecting.wait(SOON).unwrap(), &accepting.wait(SOON).unwrap());
    // A side without TLS is refused, whichever side it is.
    let plain = engine(&network, named("plain"));
    for (caller, called) in [(&a, &plain), (&plain, &a)] {
        let (one, other) = streams();
        let (mut accepting, mut connecting) =
            (called.accept_over(other).unwrap(), caller.connect_over(one).unwrap());
        for error in [connecting.wait(SOON).unwrap_err(), accepting.wait(SOON).unwrap_err()] {
            says(&error, "uses TLS, ", "Settings::tls");
        }
    }
}

#[test]
fn a_session_that_both_have_talked_in_becomes_a_peer() {
    let (network, authority) = (network(), Authority::new("the house"));
    let (here, there) = (tls(&authority, &["127.0.0.1"]), tls(&authority, &["127.0.0.1"]));
    let (mut one, mut other) = streams();
    let (a, b) = (engine(&network, named("a")), engine(&network, named("b")));
    let answering = thread::spawn(move || {
        let mut session = there.accepting().unwrap();
        let mut exchange = rustls::Stream::new(&mut *session, &mut other);
        let mut wish = [0; 9];
        exchange.read_exact(&mut wish).unwrap();
        exchange.write_all(b"two").unwrap();
        b.accept_over(ControlStream::tls(other, session)).unwrap().wait(SOON).unwrap()
    });
    let mut session = here.connecting("127.0.0.1").unwrap();
    let mut wishing = rustls::Stream::new(&mut *session, &mut one);
    wishing.write_all(b"how many?").unwrap();
    wishing.read_exact(&mut [0; 3]).unwrap();
    let a_to_b = a.connect_over(ControlStream::tls(one, session)).unwrap().wait(SOON).unwrap();
    let b_to_a = answering.join().unwrap();
    exchange(&a_to_b, &b_to_a);
}

/// A caller waits until its deadline, and no longer.
#[test]
fn a_peer_that_never_answers_ends_the_wait() {
    let (network, authority) = (network(), Authority::new("the house"));
    let caller = engine(&network, named("caller").tls(tls(&authority, &[])));
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let begun = Instant::now();
    let error = caller.connect(silent.local_addr().unwrap()).unwrap().wait(A_WHILE).unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(error.to_string().contains("no answer within"), "{error}");
}

const SECRET: &str = "5f1d7a9c03e2b846d1f0a37c9be4582610cc47e39a5d8b71f2640e9d3ab8c75e";

#[test]
fn engines_with_one_secret_are_peers_and_others_are_not() {
    let network = network();
    let of = |name, digits: &str| engine(&network, named(name).secret(digits.parse().unwrap()));
    let (called, friend) = (of("called", SECRET), of("friend", SECRET));
    let address = called.listen("127.0.0.1:0").unwrap();
    let friend_to_called = friend.connect(address).unwrap().wait(SOON).unwrap();
    exchange(&friend_to_called, &called.accept().wait(SOON).unwrap());
    let stranger = of("stranger", &SECRET.chars().rev().collect::<String>());
    let error = stranger.connect(address).unwrap().wait(SOON).unwrap_err();
    says(&error, "the two sides have different secrets", "the same secret");
    says(
        &called.accept().wait(A_WHILE).unwrap_err(),
        "the two sides have different secrets",
        "the same secret",
    );
    // By a stream of the program, too.
    let (one, other) = streams();
    let (mut accepting, mut connecting) =
        (called.accept_over(other).unwrap(), friend.connect_over(one).unwrap());
    exchange(&connecting.wait(SOON).unwrap(), &accepting.wait(SOON).unwrap());
}

/// Over TLS, every address may be used, and nothing is warned of.
#[test]
fn an_engine_with_a_secret_listens_anywhere() {
    let network = network();
    let settings = || named("anywhere").secret(SECRET.parse().unwrap());
    let called = engine(&network, settings().listen("0.0.0.0:0".parse().unwrap()));
    let address = called.listen("0.0.0.0:0").unwrap();
    let caller = engine(&network, settings());
    let peer = caller.connect(("127.0.0.1", address.port())).unwrap().wait(SOON).unwrap();
    exchange(&peer, &called.accept().wait(SOON).unwrap());
    assert_eq!((called.warnings(), caller.warnings()), (vec![], vec![]));
}

#[test]
fn an_engine_warns_of_its_certificate() {
    let authority = Authority::new("the house");
    let shown = authority.certify_for_days(&["127.0.0.1"], 7);
    let tls = Tls::from_pem(TlsParts {
        certificate: shown.certificate.as_str(),
        key: &shown.key,
        roots: authority.root(),
    });
    let warnings = engine(&network(), named("old").tls(tls.unwrap())).warnings();
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0].kind(), farreach::WarningKind::Certificate);
    assert!(warnings[0].to_string().contains("expires on 20"), "{}", warnings[0]);
}

fn chmod(path: &std::path::Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Who can read a key can pretend to be this side, and who can change it chooses the key.
#[test]
fn a_key_of_others_is_refused() {
    let authority = Authority::new("the house");
    let shown = authority.certify(&["127.0.0.1"]);
    let folder = tempfile::tempdir().unwrap();
    let [certificate, key, roots] = ["cert.pem", "key.pem", "roots.pem"].map(|name| folder.path().join(name));
    std::fs::write(&certificate, &shown.certificate).unwrap();
    std::fs::write(&key, &shown.key).unwrap();
    std::fs::write(&roots, authority.root()).unwrap();
    let read = || Tls::from_files(TlsParts { certificate: &certificate, key: &key, roots: &roots });
    let fix = format!("\nchmod 600 {}", key.display());
    for mode in [0o666, 0o644, 0o602, 0o620, 0o660] {
        chmod(&key, mode);
        let error = read().unwrap_err();
        assert!(error.to_string().starts_with(&format!("read the key in {}", key.display())), "{error:?}");
        says(&error, &format!("other users have access to it (mode {mode:04o})"), &fix);
    }
    chmod(&key, 0o600);
    read().unwrap();
    // A certificate and roots are no secrets.
    chmod(&certificate, 0o644);
    read().unwrap();
    // Only root can give a file away.
    if std::os::unix::fs::chown(&key, Some(12_345), None).is_ok() {
        let fix = format!(" && chmod 600 {}", key.display());
        says(&read().unwrap_err(), "belongs to another user (uid 12345)", &fix);
    }
}

#[test]
fn files_that_are_of_no_use_are_told_by_name() {
    let authority = Authority::new("the house");
    let (shown, other) = (authority.certify(&["127.0.0.1"]), authority.certify(&["127.0.0.1"]));
    let folder = std::env::temp_dir().join(format!("farreach-tls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let files = [
        ("cert.pem", shown.certificate.as_str()),
        ("key.pem", &shown.key),
        ("roots.pem", authority.root()),
        ("other.pem", &other.key),
        ("text.pem", "no PEM at all"),
        ("torn.pem", &shown.certificate[..100]),
    ];
    for (name, content) in files {
        std::fs::write(folder.join(name), content).unwrap();
        chmod(&folder.join(name), 0o600);
    }
    let read = |cert: &str, key: &str, roots: &str| {
        Tls::from_files(TlsParts {
            certificate: folder.join(cert),
            key: folder.join(key),
            roots: folder.join(roots),
        })
    };
    read("cert.pem", "key.pem", "roots.pem").unwrap();
    let wrong = [
        (read("none.pem", "key.pem", "roots.pem"), "none.pem", "no such file", "this user may read it"),
        (read("text.pem", "key.pem", "roots.pem"), "text.pem", "no certificate", "`CERTIFICATE`"),
        (read("torn.pem", "key.pem", "roots.pem"), "torn.pem", "", "`CERTIFICATE`"),
        (
            read("cert.pem", "text.pem", "roots.pem"),
            "text.pem",
            "no unencrypted private key",
            "`PRIVATE KEY`",
        ),
        (read("cert.pem", "key.pem", "key.pem"), "roots in", "no certificate", "`CERTIFICATE`"),
        (read("cert.pem", "other.pem", "roots.pem"), "cert.pem", "", "use the key of this certificate"),
    ];
    for (error, file, cause, fix) in wrong {
        let error = error.unwrap_err();
        assert!(error.to_string().contains(file), "{error:?}");
        says(&error, cause, fix);
    }
    std::fs::remove_dir_all(folder).unwrap();
    let good = Tls::from_pem(TlsParts {
        certificate: shown.certificate.as_str(),
        key: &shown.key,
        roots: authority.root(),
    })
    .unwrap();
    let error = good.clone().server_name("10.0.0.7:18520").unwrap_err();
    says(&error, "", "without a port");
    assert!(!format!("{good:?}").contains("PRIVATE"));
}
