//! Engines without TLS: within this host only, unless the program allows more, and then each
//! connection adds a warning.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use farreach::{Engine, Error, ErrorKind, Settings, WarningKind};
use farreach_sim::{SimCard, SimNetwork, SimRail, SimSettings};

const SOON: Duration = Duration::from_secs(20);

fn engine(network: &SimNetwork, settings: Settings) -> Result<Engine, Error> {
    let rail = SimRail::new(network, 0, SimCard::tcp());
    Engine::over(vec![Box::new(rail)], settings)
}

fn network() -> SimNetwork {
    SimNetwork::real_time(SimSettings::new(1))
}

/// Returns an address of this host that is not loopback, if it has one. Nothing is sent.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

#[track_caller]
fn assert_refused<T>(result: Result<T, Error>, operation: &str) {
    let Err(error) = result else { panic!("{operation}: it is allowed") };
    assert_eq!(error.kind(), ErrorKind::Insecure, "{error:?}");
    assert!(error.to_string().starts_with(operation), "{error}");
    let commands: Vec<&str> = error.fix().lines().filter(|line| line.starts_with("farreach ")).collect();
    if cfg!(feature = "tls") {
        assert_eq!(
            commands,
            ["farreach secret new farreach.secret", "farreach tls init farreach-tls HOST HOST"],
            "each command is alone on its line: {error:?}"
        );
    }
    assert!(error.fix().contains("`Settings::insecure`"), "{error:?}");
}

#[test]
fn beyond_loopback_nothing_is_in_clear_text_by_default() {
    let network = network();
    let plain = engine(&network, Settings::new()).unwrap();
    for address in ["0.0.0.0:0", "[::]:0", "[::ffff:0.0.0.0]:0"] {
        assert_refused(plain.listen(address), "listen on ");
    }
    for address in ["192.0.2.7:18520", "[2001:db8::7]:18520", "0.0.0.0:18520", "[::ffff:192.0.2.7]:18520"] {
        assert_refused(plain.connect(address), "connect to ");
    }
    let early = engine(&network, Settings::new().listen("0.0.0.0:0".parse().unwrap()));
    assert_refused(early, "listen on 0.0.0.0:0: ");
    plain.listen("127.0.0.1:0").unwrap();
    plain.listen("127.9.9.9:0").unwrap();
    assert_eq!(plain.warnings(), []);
}

#[test]
fn who_allows_clear_text_is_warned_each_time() {
    let network = network();
    let called = engine(&network, Settings::new().name("called").insecure()).unwrap();
    let ports = [0, 1].map(|_| called.listen("0.0.0.0:0").unwrap().port());
    called.listen("127.0.0.1:0").unwrap();
    let warnings = called.warnings();
    assert_eq!(warnings.len(), 2, "one for each listener beyond loopback: {warnings:?}");
    for warning in warnings {
        assert_eq!(warning.kind(), WarningKind::Insecure);
        assert!(warning.to_string().starts_with("listen on 0.0.0.0:0: "), "{warning}");
        assert!(warning.fix().contains("Settings::secret"), "{}", warning.fix());
    }
    let Some(address) = own_address() else {
        return eprintln!("skipped: this host has no address but loopback");
    };
    let address = SocketAddr::new(address, ports[0]);
    let plain = engine(&network, Settings::new().name("plain")).unwrap();
    assert_refused(plain.connect(address), &format!("connect to {address}: "));
    let caller = engine(&network, Settings::new().name("caller").insecure()).unwrap();
    for count in 1..=2 {
        caller.connect(address).unwrap().wait(SOON).unwrap();
        assert_eq!(caller.warnings().len(), count);
    }
}

/// A stream that the program has made is judged by its peer's address.
#[test]
fn a_stream_in_clear_text_is_refused_too() {
    let Some(address) = own_address() else {
        return eprintln!("skipped: this host has no address but loopback");
    };
    let network = network();
    let plain = engine(&network, Settings::new()).unwrap();
    let listener = TcpListener::bind((address, 0)).unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    assert_refused(plain.connect_over(one.try_clone().unwrap()), "connect to ");
    assert_refused(plain.accept_over(other.try_clone().unwrap()), "accept ");
    let allowing = |name| engine(&network, Settings::new().name(name).insecure()).unwrap();
    let (a, b) = (allowing("a"), allowing("b"));
    let (mut accepting, mut connecting) = (b.accept_over(other).unwrap(), a.connect_over(one).unwrap());
    connecting.wait(SOON).unwrap();
    accepting.wait(SOON).unwrap();
    assert_eq!((a.warnings().len(), b.warnings().len()), (1, 1));
}
