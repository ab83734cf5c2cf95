//! Tests of the diagnosis on constructed readings.

use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use super::super::readings::{Arrived, CardEnd, GidReading};
use super::*;
use crate::finding::Verdict;
use crate::probes::{Chain, Probes, Reading, Rule};

fn pack() -> Pack {
    Pack::new("h", UNIX_EPOCH, Vec::new(), BTreeMap::new(), Probes::default()).by_version("0")
}

/// A host whose firewall drops RoCE v2 packets on this hook.
fn walled(hook: &str) -> Pack {
    let probes = Probes { firewall: Reading::Read(vec![walled_chain(hook)]), ..Probes::default() };
    pack().with_probes(probes)
}

fn walled_chain(hook: &str) -> Chain {
    let rule = Rule { port: "udp 4791".to_owned(), verdict: "drop".to_owned(), is_partial: false };
    Chain {
        name: format!("inet filter {hook}"),
        hook: hook.to_owned(),
        policy: "accept".to_owned(),
        rules: vec![rule],
    }
}

fn gid(index: u32, gid: &str) -> GidReading {
    let address: std::net::Ipv6Addr = gid.parse().expect("a GID");
    GidReading {
        index,
        gid: gid.to_owned(),
        kind: "RoCE v2".to_owned(),
        address: Some(address.to_canonical()),
        net_device: Some("eth1".to_owned()),
    }
}

fn end(number: u8) -> CardEnd {
    let gids = vec![
        gid(0, "fe80::1"),
        gid(1, &format!("::ffff:192.0.2.{number}")),
        gid(2, &format!("2001:db8::{number}")),
    ];
    CardEnd {
        port: 1,
        driver: Some("rdma_rxe".to_owned()),
        link_layer: "Ethernet".to_owned(),
        mtu_bytes: 1024,
        gid: gids[1].clone(),
        gids,
    }
}

fn arrived(count: u32) -> Arrived {
    Arrived { count: Some(count), trouble: None }
}

fn trouble(obstacle: Obstacle) -> Trouble {
    let (cause, fix) = (Some("a cause".to_owned()), Some("a fix".to_owned()));
    Trouble { cause, fix, ..Trouble::new(obstacle, "ibv_modify_qp INIT to RTR") }
}

fn failed(obstacle: Obstacle) -> Tried {
    Tried::Failed(trouble(obstacle))
}

/// Two cards between which everything works.
fn well() -> CardsTried {
    CardsTried {
        local: end(1),
        remote: end(2),
        datagrams: 16,
        there: arrived(16),
        back: arrived(16),
        connected_here: Tried::Worked,
        connected_there: Tried::Worked,
        path_mtu_bytes: 1024,
        short: Tried::Worked,
        long_there: Tried::Worked,
        long_back: Tried::Worked,
        mtu_that_works_bytes: None,
    }
}

/// Readings of this host where no write is acknowledged.
fn silent(there: u32, back: u32) -> CardsTried {
    let (long_there, long_back) = (Tried::NotYet, Tried::NotYet);
    let short = failed(Obstacle::Unanswered);
    CardsTried { there: arrived(there), back: arrived(back), short, long_there, long_back, ..well() }
}

/// Readings where one side has no route.
fn without_way(obstacle: Obstacle, is_here: bool) -> CardsTried {
    let (ok, not) = (Tried::Worked, failed(obstacle));
    let (connected_here, connected_there) = if is_here { (not, ok) } else { (ok, not) };
    let lost = Arrived { count: None, trouble: Some(trouble(obstacle)) };
    CardsTried {
        there: if is_here { lost.clone() } else { arrived(0) },
        back: if is_here { arrived(0) } else { lost },
        connected_here,
        connected_there,
        ..silent(0, 0)
    }
}

fn cell(local: &str, remote: &str, tried: CardsTried) -> Cell {
    Cell { cards: Some(tried), ..Cell::new(local, remote) }
}

fn of_cells(cells: Vec<Cell>) -> PairReadings {
    let control = Control {
        here: "192.0.2.1:40000".to_owned(),
        there: "192.0.2.2:18520".to_owned(),
        is_tls: false,
        round_trip_ns: 84_200,
    };
    let (peer, left_out) = ("storage-7".to_owned(), Vec::new());
    PairReadings { peer, control: Some(control), is_restricted: false, cells, left_out }
}

/// Names the hosts web-1 and storage-7, and checks the fixes of every finding.
fn of_readings(readings: PairReadings, here: &Pack, peer: &Pack) -> PairReport {
    let (here, peer) = (here.clone().named("web-1"), peer.clone().named("storage-7"));
    let report = super::of_readings(readings, &here, &peer);
    for fix in report.findings.iter().flat_map(|finding| &finding.fixes) {
        assert_eq!(crate::prose::objections(&fix.what, &fix.commands), [""; 0]);
    }
    report
}

fn report(cells: Vec<Cell>) -> PairReport {
    of_readings(of_cells(cells), &pack(), &pack())
}

/// A peer chooses each of these texts.
#[test]
fn a_text_of_the_peer_is_neither_a_command_nor_an_escape_sequence() {
    const TEXT: &str = "\u{1b}[2J\n  fix: curl \u{202e}$(id)'";
    let peer = walled("input").named(TEXT);
    let chains = vec![Chain { name: "inet filter;flush input".to_owned(), ..walled_chain("input") }];
    let injected = pack().with_probes(Probes { firewall: Reading::Read(chains), ..Probes::default() });
    let hostile = |mut tried: CardsTried| {
        tried.remote.gid.net_device = Some("v; touch x".to_owned());
        tried.remote.gid.gid = TEXT.to_owned();
        Cell { remote: TEXT.to_owned(), ..cell("rxe0", "rxe0", tried) }
    };
    let told = Trouble {
        cause: Some(TEXT.to_owned()),
        fix: Some(TEXT.to_owned()),
        ..Trouble::new(Obstacle::Other, TEXT)
    };
    let mut cells = vec![Cell { trouble: Some(told.clone()), ..Cell::new("tcp", TEXT) }];
    cells.extend(
        [Obstacle::NoRoute, Obstacle::NoNeighbour, Obstacle::NoNetDevice]
            .map(|obstacle| hostile(without_way(obstacle, false))),
    );
    cells.extend(
        [silent(0, 0), silent(16, 0), CardsTried { long_there: failed(Obstacle::Unanswered), ..well() }]
            .map(hostile),
    );
    let mut readings = of_cells(cells);
    readings.peer = TEXT.to_owned();
    readings.left_out = vec![LeftOut::new(TEXT, TEXT)];
    for peer in [peer, injected] {
        let report = super::of_readings(readings.clone(), &pack(), &peer);
        let fixes = || report.findings.iter().flat_map(|finding| &finding.fixes);
        let texts =
            report.findings.iter().flat_map(|it| [&it.found].into_iter().chain(&it.subject).chain(&it.read));
        let of_fixes = fixes().flat_map(|it| [&it.what].into_iter().chain(&it.place).chain(&it.commands));
        let of_rows = report.matrix.iter().flat_map(|it| [&it.why, &it.cell.local, &it.cell.remote]);
        let left_out = report.left_out.iter().flat_map(|it| [&it.rail, &it.reason]);
        for text in texts.chain(of_fixes).chain(of_rows).chain(left_out).chain([&report.here, &report.peer]) {
            assert!(!text.chars().any(|it| it.is_control() || it == '\u{202e}'), "{text:?}");
        }
        let commands: Vec<&String> = fixes().flat_map(|fix| &fix.commands).collect();
        assert!(commands.iter().any(|it| it.contains("'v; touch x'")), "{commands:?}");
        for command in commands {
            let bare: String = command.split('\'').step_by(2).collect();
            assert!(!bare.contains([';', '$', '(']) && !command.contains("curl"), "{command}");
        }
        let quoted = fixes().any(|fix| fix.what.starts_with(r#"the error says "\u001b[2J fix: curl"#));
        assert!(quoted, "{:?}", report.findings);
    }
}

/// Returns the findings about rails.
fn of_rails(report: &PairReport) -> Vec<&Finding> {
    let is_of_rail = |it: &&Finding| ![Some(CONTROL), Some(VERSIONS)].contains(&it.subject.as_deref());
    report.findings.iter().filter(is_of_rail).collect()
}

/// Asserts that the only finding about rails has this verdict, and these words in its text or
/// fixes.
#[track_caller]
fn assert_told(report: &PairReport, verdict: Verdict, words: &[&str]) {
    let [finding] = of_rails(report)[..] else { panic!("one finding: {report:#?}") };
    assert_eq!(finding.verdict, verdict, "{finding:#?}");
    let told = format!("{finding:?}");
    for word in words {
        assert!(told.contains(word), "{word:?} is not told: {finding:#?}");
    }
    if verdict == Verdict::Fail || verdict == Verdict::Warn {
        assert!(!finding.fixes.is_empty(), "what to do is told: {finding:#?}");
    }
}

#[test]
fn what_is_well_passes() {
    let found = report(vec![cell("rxe0", "rxe1", well())]);
    assert_told(
        &found,
        Verdict::Pass,
        &["packets of 1024 bytes arrive in both directions", "rxe0 with rxe1"],
    );
    assert_eq!(found.matrix[0].state, State::Works);
    let tcp = report(vec![Cell::new("tcp", "tcp")]);
    assert_told(&tcp, Verdict::Pass, &["tcp with tcp"]);
}

#[test]
fn one_way_loss_has_a_direction() {
    let back = report(vec![cell("rxe0", "rxe1", silent(16, 0))]);
    let words =
        ["16 of 16 datagrams arrive at storage-7, 0 of 16 arrive at web-1", "from storage-7 to web-1"];
    assert_told(&back, Verdict::Fail, &words);
    assert_told(&back, Verdict::Fail, &["UDP port 4791", "on web-1", "nft list ruleset"]);
    let there = report(vec![cell("rxe0", "rxe1", silent(0, 15))]);
    let words =
        ["0 of 16 datagrams arrive at storage-7, 15 of 16 arrive at web-1", "from web-1 to storage-7"];
    assert_told(&there, Verdict::Fail, &words);
}

#[test]
fn a_firewall_that_a_pack_knows_is_named() {
    let cells = || of_cells(vec![cell("rxe0", "rxe1", silent(0, 16))]);
    let named = of_readings(cells(), &pack(), &walled("input"));
    let words = [
        "on storage-7, chain inet filter input drops UDP port 4791",
        "nft insert rule inet filter input udp dport 4791 accept",
    ];
    assert_told(&named, Verdict::Fail, &words);
    let named = of_readings(cells(), &walled("output"), &pack());
    assert_told(&named, Verdict::Fail, &["on web-1, chain inet filter output drops"]);
    // A chain for the other direction is not the cause.
    let other = of_readings(cells(), &walled("input"), &pack());
    assert!(!format!("{:?}", other.findings).contains("chain"), "{other:#?}");
    let both = of_readings(of_cells(vec![cell("rxe0", "rxe1", silent(0, 0))]), &walled("input"), &pack());
    assert_told(&both, Verdict::Fail, &["0 of 16 datagrams arrive in each direction", "on web-1, chain"]);
}

#[test]
fn a_hardware_card_is_not_sought_behind_the_hosts_firewall() {
    let mut tried = silent(0, 16);
    for end in [&mut tried.local, &mut tried.remote] {
        end.driver = Some("mlx5_core".to_owned());
    }
    let found =
        of_readings(of_cells(vec![cell("mlx5_0", "mlx5_0", tried.clone())]), &pack(), &walled("input"));
    assert!(!format!("{found:?}").contains("nft"), "{found:#?}");
    assert_told(&found, Verdict::Fail, &["ACLs", "VLAN"]);
    // The same applies if only full packets are lost.
    let long = CardsTried { short: Tried::Worked, long_there: failed(Obstacle::Unanswered), ..tried };
    let found = of_readings(of_cells(vec![cell("mlx5_0", "mlx5_0", long)]), &pack(), &walled("input"));
    assert!(!format!("{found:?}").contains("nft"), "{found:#?}");
}

#[test]
fn infiniband_is_not_sought_behind_the_hosts_firewall() {
    let mut tried = silent(0, 0);
    for end in [&mut tried.local, &mut tried.remote] {
        (end.driver, end.link_layer) = (Some("mlx5_core".to_owned()), "InfiniBand".to_owned());
        end.gid.kind = "IB".to_owned();
    }
    let found =
        of_readings(of_cells(vec![cell("mlx5_0", "mlx5_0", tried)]), &walled("input"), &walled("input"));
    assert!(!format!("{found:?}").contains("nft"), "{found:#?}");
    assert_told(&found, Verdict::Fail, &["pkeys", "partition"]);
}

#[test]
fn a_firewall_that_does_not_explain_it_does_not_end_the_search() {
    let mut probes = walled("input").probes().clone();
    if let Reading::Read(chains) = &mut probes.firewall {
        chains[0].rules[0].is_partial = true;
    }
    let partly = pack().with_probes(probes);
    let found = of_readings(of_cells(vec![cell("rxe0", "rxe1", silent(0, 16))]), &pack(), &partly);
    assert_told(&found, Verdict::Fail, &["drops some packets of UDP port 4791", "ACLs", "VLAN"]);
    // A chain for one direction does not explain the other.
    let found = of_readings(of_cells(vec![cell("rxe0", "rxe1", silent(0, 0))]), &walled("input"), &pack());
    assert_told(&found, Verdict::Fail, &["on web-1, chain", "ACLs"]);
    let both = of_cells(vec![cell("rxe0", "rxe1", silent(0, 0))]);
    let found = of_readings(both, &walled("input"), &walled("input"));
    assert!(!format!("{found:?}").contains("ACLs"), "{found:#?}");
}

#[test]
fn what_a_write_has_passed_is_not_blocked() {
    for (there, back) in [(0, 16), (16, 0)] {
        let tried = CardsTried { there: arrived(there), back: arrived(back), ..well() };
        let found = report(vec![cell("mlx5_0", "mlx5_0", tried)]);
        assert_eq!(found.matrix[0].state, State::Warns, "{found:#?}");
        assert_told(&found, Verdict::Warn, &["a reliable connection works in both directions", "16 of 16"]);
    }
    let neither = CardsTried { there: arrived(0), back: arrived(0), ..well() };
    assert_told(&report(vec![cell("m0", "n0", neither)]), Verdict::Pass, &["datagrams do not arrive"]);
}

/// One card is InfiniBand, the other Ethernet.
fn unlike_wires() -> CardsTried {
    let mut tried = silent(0, 0);
    tried.local.link_layer = "InfiniBand".to_owned();
    tried.local.gid.kind = "IB".to_owned();
    tried
}

#[test]
fn two_wires_are_told_where_nothing_else_works() {
    let found = report(vec![cell("mlx5_0", "mlx5_2", unlike_wires()), Cell::new("tcp", "tcp")]);
    assert_eq!(found.matrix[0].state, State::Fails, "{found:#?}");
    assert_eq!(found.matrix[0].why, "InfiniBand with Ethernet");
    let told = of_rails(&found)[0];
    let words = "mlx5_0 of web-1 is InfiniBand, and mlx5_2 of storage-7 is Ethernet";
    assert!(told.found.starts_with(words), "{told:#?}");
    assert!(format!("{told:?}").contains("LINK_TYPE_P1"), "{told:#?}");
}

#[test]
fn hosts_with_two_kinds_of_wire_are_well() {
    // Both hosts have both; then one is a storage host that has only Ethernet.
    let both = vec![
        cell("ib0", "ib0", well()),
        cell("ib0", "eth0", unlike_wires()),
        cell("eth0", "ib0", unlike_wires()),
        cell("eth0", "eth0", well()),
    ];
    let storage = vec![cell("ib0", "eth0", unlike_wires()), cell("eth0", "eth0", well())];
    let compute = vec![cell("eth0", "ib0", unlike_wires()), cell("eth0", "eth0", well())];
    for cells in [both, storage, compute] {
        let found = report(cells);
        assert_eq!(found.verdict(), Verdict::Pass, "{found:#?}");
        assert!(found.matrix.iter().any(|row| row.state == State::Apart), "{found:#?}");
    }
}

#[test]
fn an_efa_that_hears_nothing_names_the_security_group() {
    let efa = |obstacle| Cell { trouble: Some(trouble(obstacle)), ..Cell::new("efa", "efa") };
    for obstacle in [Obstacle::Unanswered, Obstacle::Silent] {
        let words =
            ["a cause; an EFA fails like this", "a fix", "--source-group GROUP", "egress", "hw_counters"];
        assert_told(&report(vec![efa(obstacle)]), Verdict::Fail, &words);
    }
    let other =
        [efa(Obstacle::Other), Cell { trouble: Some(trouble(Obstacle::Silent)), ..Cell::new("tcp", "tcp") }];
    for cell in other {
        let found = report(vec![cell]);
        assert!(!format!("{found:?}").contains("security"), "{found:#?}");
    }
}

#[test]
fn the_way_is_told_by_whose_kernel_does_not_find_it() {
    let route = report(vec![cell("rxe0", "rxe1", without_way(Obstacle::NoRoute, true))]);
    let words = ["web-1 has no route", "on web-1", "ip route get 192.0.2.2 from 192.0.2.1 oif eth1"];
    assert_told(&route, Verdict::Fail, &words);
    let route = report(vec![cell("rxe0", "rxe1", without_way(Obstacle::NoRoute, false))]);
    assert_told(&route, Verdict::Fail, &["storage-7 has no route from 192.0.2.2", "on storage-7"]);
    let neighbour = report(vec![cell("rxe0", "rxe1", without_way(Obstacle::NoNeighbour, true))]);
    assert_told(&neighbour, Verdict::Fail, &["no ARP or NDP answer", "ping -c1 -I eth1 192.0.2.2"]);
    let device = report(vec![cell("rxe0", "rxe1", without_way(Obstacle::NoNetDevice, false))]);
    assert_told(&device, Verdict::Fail, &["of storage-7 has no usable net device"]);
}

#[test]
fn gids_of_two_families_are_told_with_an_index_that_works() {
    let mut tried = without_way(Obstacle::GidFamilies, true);
    tried.local.gid = tried.local.gids[2].clone();
    let found = report(vec![cell("rxe0", "rxe1", tried)]);
    let words = [
        "GID 2 of web-1 is 2001:db8::1",
        "use GID 1, which is RoCE v2 and IPv4",
        "farreach doctor PEER -x 1",
        "farreach serve -x 2",
    ];
    assert_told(&found, Verdict::Fail, &words);
    let mut tried = silent(0, 0);
    tried.local.gid.kind = "RoCE v1".to_owned();
    let found = report(vec![cell("rxe0", "rxe1", tried)]);
    assert_told(&found, Verdict::Fail, &["one GID is RoCE v1 and the other RoCE v2", "PEER -x 1"]);
}

#[test]
fn full_packets_that_are_lost_are_told_with_the_size_that_works() {
    let lost = || failed(Obstacle::Unanswered);
    let tried =
        CardsTried { long_there: lost(), path_mtu_bytes: 4096, mtu_that_works_bytes: Some(1024), ..well() };
    let found = report(vec![cell("rxe0", "rxe1", tried)]);
    let words = [
        "packets of 4096 bytes are lost from web-1 to storage-7; packets of 1024 bytes arrive",
        "ping -c1 -M do -s 4128 -I eth1 192.0.2.2",
        "mtu 1500",
    ];
    assert_told(&found, Verdict::Fail, &words);
    let tried = CardsTried { long_back: lost(), ..well() };
    let found = report(vec![cell("rxe0", "rxe1", tried)]);
    assert_told(&found, Verdict::Fail, &["from storage-7 to web-1", "all but the first packet are lost"]);
}

#[test]
fn ports_of_unlike_mtu_and_some_loss_are_warnings() {
    let mut tried = well();
    tried.local.mtu_bytes = 4096;
    let found = report(vec![cell("rxe0", "rxe1", tried)]);
    let words = ["rxe0 of web-1 has an MTU of 4096 bytes", "on storage-7", "ip link set dev eth1 mtu 4200"];
    assert_told(&found, Verdict::Warn, &words);
    assert_eq!(found.matrix[0].state, State::Warns);
    let lossy = report(vec![cell("rxe0", "rxe1", CardsTried { back: arrived(13), ..well() })]);
    assert_told(&lossy, Verdict::Warn, &["0 of 16", "3 of 16"]);
}

#[test]
fn what_hangs_or_does_not_come_up_is_told_in_its_own_words() {
    let hung = Cell { trouble: Some(trouble(Obstacle::Silent)), ..Cell::new("tcp", "tcp") };
    let found = report(vec![hung]);
    assert_told(&found, Verdict::Fail, &["ibv_modify_qp INIT to RTR: a cause", "a fix"]);
    assert_eq!(found.matrix[0].why, "no answer in time");
    let wrong = CardsTried { long_back: failed(Obstacle::Mismatch), ..well() };
    assert_told(&report(vec![cell("rxe0", "rxe1", wrong)]), Verdict::Fail, &["a cause"]);
}

#[test]
fn rails_of_different_networks_are_apart_where_each_has_another() {
    let none = || without_way(Obstacle::NoRoute, true);
    let found = report(vec![
        cell("m0", "n0", well()),
        cell("m0", "n1", none()),
        cell("m1", "n0", none()),
        cell("m1", "n1", well()),
    ]);
    let states: Vec<State> = found.matrix.iter().map(|row| row.state).collect();
    assert_eq!(states, [State::Works, State::Apart, State::Apart, State::Works]);
    assert_eq!(found.verdict(), Verdict::Pass);
}

#[test]
fn a_card_that_reaches_nobody_fails_and_one_that_nobody_reaches_warns() {
    let none = || without_way(Obstacle::NoNeighbour, true);
    let found = report(vec![
        cell("m0", "n0", well()),
        cell("m0", "n1", none()),
        cell("m1", "n0", none()),
        cell("m1", "n1", none()),
    ]);
    let states: Vec<State> = found.matrix.iter().map(|row| row.state).collect();
    assert_eq!(states, [State::Works, State::Apart, State::Fails, State::Fails]);
    assert_eq!(found.verdict(), Verdict::Fail);
    let cells = || vec![cell("m0", "n0", well()), cell("m0", "n1", none())];
    let found = report(cells());
    assert_eq!(found.verdict(), Verdict::Warn, "{found:#?}");
    assert!(of_rails(&found)[0].found.contains("no card of web-1 reaches n1 of storage-7"), "{found:#?}");
    let restricted = PairReadings { is_restricted: true, ..of_cells(cells()) };
    assert_eq!(of_readings(restricted, &pack(), &pack()).verdict(), Verdict::Pass);
}

#[test]
fn one_way_loss_and_lost_sizes_are_faults_whatever_else_works() {
    for wrong in [silent(16, 0), CardsTried { long_there: failed(Obstacle::Unanswered), ..well() }] {
        let found = report(vec![cell("m0", "n0", well()), cell("m0", "n1", wrong)]);
        assert_eq!(found.matrix[1].state, State::Fails, "{found:#?}");
    }
}

#[test]
fn nothing_in_common_is_never_a_pass() {
    let found = report(Vec::new());
    assert_eq!(found.verdict(), Verdict::Unknown);
}

#[test]
fn the_control_connection_and_versions_are_told() {
    let told = |report: &PairReport, subject: &str| {
        let finding =
            report.findings.iter().find(|it| it.subject.as_deref() == Some(subject)).expect(subject);
        (finding.verdict, finding.found.clone())
    };
    let found = report(vec![cell("rxe0", "rxe1", well())]);
    let words = "TCP from 192.0.2.1:40000 to 192.0.2.2:18520, without TLS; first answer after 84.2 µs";
    assert_eq!(told(&found, CONTROL), (Verdict::Pass, words.to_owned()));
    assert_eq!(told(&found, VERSIONS), (Verdict::Pass, "farreach 0 on both hosts".to_owned()));
    let newer = pack().by_version("7");
    let older = PairReadings { control: None, ..of_cells(vec![cell("rxe0", "rxe1", well())]) };
    let found = of_readings(older, &pack(), &newer);
    assert_eq!(told(&found, CONTROL).0, Verdict::Unknown);
    let (verdict, words) = told(&found, VERSIONS);
    assert_eq!(verdict, Verdict::Warn);
    assert!(words.starts_with("farreach 0 on web-1, 7 on storage-7"), "{words}");
}

#[test]
fn hosts_of_the_same_name_are_told_apart_by_their_addresses() {
    let mut readings = of_cells(vec![cell("rxe0", "rxe1", silent(0, 16))]);
    readings.peer = "192.0.2.2".to_owned();
    let same = pack().named("node");
    let found = super::of_readings(readings.clone(), &same, &same);
    assert_eq!((&*found.here, &*found.peer), ("node (192.0.2.1)", "node (192.0.2.2)"));
    let told = &of_rails(&found)[0];
    assert!(told.found.contains("from node (192.0.2.1) to node (192.0.2.2)"), "{told:#?}");
    assert_eq!(told.fixes[0].place.as_deref(), Some("on node (192.0.2.2)"), "{told:#?}");
    // A host that is its own peer has one address, and the name that was typed.
    readings.peer = "localhost".to_owned();
    readings.control.as_mut().unwrap().there = "192.0.2.1:18520".to_owned();
    let found = super::of_readings(readings, &same, &same);
    assert_eq!((&*found.here, &*found.peer), ("node", "localhost"));
}

/// Invariant: where the matrix shows a failure, a finding fails, and so does the command.
#[test]
fn a_trial_that_was_not_completed_fails() {
    let tried = CardsTried { long_there: Tried::NotYet, long_back: Tried::NotYet, ..well() };
    let found = report(vec![cell("rxe0", "rxe1", tried)]);
    assert_eq!(found.matrix[0].state, State::Fails);
    assert_told(&found, Verdict::Fail, &["the trial ended before"]);
}

#[test]
fn a_way_that_is_not_found_needs_no_more_tries() {
    let (connected_here, connected_there) = (Tried::NotYet, Tried::NotYet);
    let tried = CardsTried { connected_here, connected_there, ..without_way(Obstacle::NoNeighbour, true) };
    let tried = CardsTried { back: Arrived::default(), short: Tried::NotYet, ..tried };
    let found = report(vec![cell("rxe0", "rxe1", tried)]);
    assert_told(&found, Verdict::Fail, &["web-1 gets no ARP or NDP answer from 192.0.2.2 on eth1"]);
}
