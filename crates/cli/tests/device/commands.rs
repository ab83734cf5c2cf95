//! ping, fill and blast on real RDMA, as a user runs them.

use std::time::Duration;

use crate::support::host::Host;
use crate::support::schema;
use crate::support::server::Server;
use crate::support::trials::Rail;

/// The card of host a, to that of host b where there is one.
fn rail() -> Rail {
    let names = if Host::all().len() == 1 { ["rxe0", "rxe0"] } else { ["rxea", "rxeb"] };
    Rail {
        server: Server::start_far(&[]),
        device: names[0],
        names,
        is_rdma: true,
        trips: 20,
        pages: 8,
        messages: 20,
        is_slow: true,
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn ping_measures_every_operation_in_every_way() {
    let rail = rail();
    rail.pings();
    rail.pings_wait_in_every_way();
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn fill_checks_every_byte_and_blast_goes_every_way() {
    let rail = rail();
    rail.fills();
    rail.blasts();
    rail.blasts_read_and_send();
}

/// Nothing is named: the cards are taken, and why is told.
#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn the_cards_are_chosen_and_ctrl_c_tells_what_was_measured() {
    let mut server = Server::start_far(&[]);
    let ended = server.interrupt("ping", &["-D", "300", "-v", "--json"], Duration::from_secs(4));
    assert_eq!(ended.code, Some(130), "{ended:#?}");
    let report = ended.json();
    schema::assert_valid("ping", &report);
    assert_eq!((&report["is_interrupted"], &report["rails"][0]["is_rdma"]), (&true.into(), &true.into()));
    assert!(report["rows"][0]["round_trips"].as_u64() > Some(0), "{report:#}");
    for words in ["rail: rxe", "(RDMA), GID ", "RoCE v2", "why: both sides have active RDMA cards"] {
        assert!(ended.stderr.contains(words), "{words:?}: {ended:#?}");
    }
}
