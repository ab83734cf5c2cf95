//! `farreach doctor PEER` between two hosts with RDMA: each fault is named, and when it is undone nothing is.

mod support {
    pub(crate) mod client;
    #[allow(dead_code, reason = "of other tests")]
    pub(crate) mod host;
    pub(crate) mod network;
    pub(crate) mod run;
    pub(crate) mod schema;
    pub(crate) mod server;
}

/// The cards of both hosts.
mod two_hosts {
    use serde_json::Value;

    use super::support::host::Host;
    use super::support::network::{AddedAddress, DroppedPackets, LargerMtu};
    use super::support::schema;
    use super::support::server::Server;

    const CARD: &str = "rxea";
    const FAR_CARD: &str = "rxeb";

    fn far() -> Host {
        *Host::all().last().expect("a guest has a host")
    }

    /// What is said of the two cards, with this exit code.
    #[track_caller]
    fn doctor(server: &Server, words: &[&str], code: i32) -> (Value, String) {
        let ended = server.run("doctor", &[&["-d", CARD, "--json"], words].concat());
        let report = ended.json();
        schema::assert_valid("doctor", &report);
        let pair = &report["pair"];
        assert_eq!(ended.code, Some(code), "{pair:#}\n{}", ended.stderr);
        assert_eq!(pair["matrix"].as_array().map(Vec::len), Some(1), "{pair:#}");
        let row = pair["matrix"][0].clone();
        (row, pair["findings"].to_string())
    }

    #[track_caller]
    fn assert_fault(server: &Server, words: &[&str], why: &str, told: &[&str]) {
        let (row, findings) = doctor(server, words, 1);
        assert_eq!(row["state"], "fails", "{row:#}");
        assert!(row["why"].as_str().is_some_and(|it| it.contains(why)), "{why}: {row:#}\n{findings}");
        for word in told {
            assert!(findings.contains(word), "{word:?} is not told: {findings}\n{row:#}");
        }
    }

    #[track_caller]
    fn assert_clean(server: &Server) {
        let (row, findings) = doctor(server, &[], 0);
        assert_eq!(row["state"], "works", "{row:#}\n{findings}");
    }

    #[test]
    #[ignore = "needs two hosts: cargo xtask vm test runs it"]
    fn a_healthy_pair_is_measured_over_every_rail() {
        let server = Server::start_far(&[]);
        let ended = server.run("doctor", &["--json"]);
        let report = ended.json();
        assert_eq!(ended.code, Some(0), "{:#}\n{}", report["pair"], ended.stderr);
        let matrix = report["pair"]["matrix"].as_array().expect("a matrix");
        let cards = matrix.iter().find(|row| row["local"] == CARD).expect("the card is there");
        assert_eq!((&cards["remote"], &cards["state"]), (&FAR_CARD.into(), &"works".into()), "{cards:#}");
        assert!(matrix.iter().any(|row| row["local"] == "tcp"), "{report:#}");
        for row in matrix {
            assert!(row["round_trip_ns"].as_u64() > Some(0), "{row:#}");
            assert!(row["rate_bits_per_second"].as_u64() > Some(0), "{row:#}");
        }
        let tried = &cards["cards"];
        assert_eq!((&tried["there"]["count"], &tried["back"]["count"]), (&16.into(), &16.into()));
        let text = server.run("doctor", &["-d", CARD]).stdout;
        assert!(text.lines().any(|line| line.starts_with(CARD) && line.ends_with("works")), "{text}");
    }

    #[test]
    #[ignore = "needs two hosts: cargo xtask vm test runs it"]
    fn dropped_packets_are_told_by_their_direction() {
        let server = Server::start_far(&[]);
        let there = DroppedPackets::at(far());
        let told =
            ["0 of 16 datagrams arrive at", "16 of 16 come back", "UDP port 4791", "from this host to"];
        assert_fault(&server, &[], "blocked to", &told);
        let back = DroppedPackets::at(Host::HERE);
        let told = ["of 16 datagrams each way none arrives", "UDP port 4791"];
        assert_fault(&server, &[], "blocked both ways", &told);
        drop(there);
        let told = ["16 of 16 datagrams arrive at", "0 of 16 come back", "to this host"];
        assert_fault(&server, &[], "blocked from", &told);
        drop(back);
        assert_clean(&server);
    }

    #[test]
    #[ignore = "needs two hosts: cargo xtask vm test runs it"]
    fn full_packets_that_are_lost_are_told_with_the_size_that_works() {
        let server = Server::start_far(&[]);
        for (host, way) in [(far(), "from this host to"), (Host::HERE, "to this host")] {
            let dropped = DroppedPackets::longer_than(host, 700);
            let told = [
                "full ones of 1024 bytes are lost",
                way,
                "packets of 512 bytes arrive",
                "ping -c1 -M do -s 1056",
            ];
            assert_fault(&server, &[], "MTU", &told);
            drop(dropped);
        }
        assert_clean(&server);
    }

    #[test]
    #[ignore = "needs two hosts: cargo xtask vm test runs it"]
    fn ports_of_unlike_mtu_are_a_warning() {
        let server = Server::start_far(&[]);
        let larger = LargerMtu::of(Host::HERE, "va");
        let (row, findings) = doctor(&server, &[], 0);
        assert_eq!(row["state"], "warns", "{row:#}\n{findings}");
        assert!(
            findings.contains("takes packets of 4096 bytes") && findings.contains("mtu 4200"),
            "{findings}"
        );
        drop(larger);
        assert_clean(&server);
    }

    #[test]
    #[ignore = "needs two hosts: cargo xtask vm test runs it"]
    fn gids_of_two_families_are_told_with_an_index_that_works() {
        let index = |host: Host, card: &str, gid: &str| gid_index(host, card, gid).to_string();
        let server = Server::start_far(&["-d", FAR_CARD, "-x", &index(far(), FAR_CARD, V4_FAR)]);
        let (v4, v6) = (index(Host::HERE, CARD, V4_HERE), index(Host::HERE, CARD, V6_HERE));
        let told = ["one GID is IPv4 and the other IPv6", &format!("-x {v4}")];
        assert_fault(&server, &["-x", &v6], "GIDs of two families", &told);
        // And what it says helps.
        let (row, _) = doctor(&server, &["-x", &v4], 0);
        assert_eq!(row["state"], "works", "{row:#}");
    }

    /// A peer in another subnet is asked for on the link all the same: Linux takes an IPv4 address that it has no route to for a neighbour,
    /// where the net device is given, as RDMA gives it. Whether it works is then the neighbour's answer.
    #[test]
    #[ignore = "needs two hosts: cargo xtask vm test runs it"]
    fn an_address_of_another_subnet_is_a_neighbour_that_answers_or_does_not() {
        let address = AddedAddress::at(far(), "vb", "198.51.100.2/24");
        let index = gid_index(far(), FAR_CARD, "0000:0000:0000:0000:0000:ffff:c633:6402").to_string();
        let server = Server::start_far(&["-d", FAR_CARD, "-x", &index]);
        let routed = Host::HERE.run(&["ip", "route", "get", "198.51.100.2"]);
        assert_ne!(routed.code, Some(0), "there is no route: {routed:#?}");
        let on_link = Host::HERE.output(&["ip", "route", "get", "198.51.100.2", "oif", "va"]);
        assert!(on_link.contains("198.51.100.2 dev va"), "{on_link}");
        let (row, findings) = doctor(&server, &[], 0);
        assert_eq!(row["state"], "works", "{row:#}\n{findings}");

        let unanswered = DroppedPackets::questions_for(far(), "198.51.100.2");
        Host::HERE.run(&["ip", "neigh", "flush", "to", "198.51.100.2"]);
        let told = ["nobody answers", "ping -c1 -I va 198.51.100.2"];
        assert_fault(&server, &[], "no neighbour", &told);
        drop(unanswered);
        Host::HERE.run(&["ip", "neigh", "flush", "to", "198.51.100.2"]);
        assert_clean(&server);
        drop(address);
    }

    #[test]
    #[ignore = "needs two hosts: cargo xtask vm test runs it"]
    fn an_address_without_a_route_is_told() {
        let address = AddedAddress::at(far(), "vb", "2001:db8:7::2/64");
        let index = gid_index(far(), FAR_CARD, "2001:0db8:0007:0000:0000:0000:0000:0002").to_string();
        let server = Server::start_far(&["-d", FAR_CARD, "-x", &index]);
        let own = gid_index(Host::HERE, CARD, V6_HERE).to_string();
        let told = ["no route", "ip route get 2001:db8:7::2 from 2001:db8::1 oif va"];
        assert_fault(&server, &["-x", &own], "no route", &told);
        drop(address);
    }

    const V4_HERE: &str = "0000:0000:0000:0000:0000:ffff:c000:0201";
    const V4_FAR: &str = "0000:0000:0000:0000:0000:ffff:c000:0202";
    const V6_HERE: &str = "2001:0db8:0000:0000:0000:0000:0000:0001";

    /// The place of a GID in a card's table, as soon as it has one: addresses come to cards a moment after they come to net devices.
    #[track_caller]
    fn gid_index(host: Host, card: &str, gid: &str) -> u32 {
        let find = format!(
            "cd /sys/class/infiniband/{card}/ports/1/gids && for try in 1 2 3 4 5 6 7 8 9 10; do \
             grep -ls {gid} * && exit 0; sleep 0.3; done; exit 1"
        );
        let found = host.output(&["sh", "-c", &find]);
        found.lines().next().and_then(|index| index.parse().ok()).unwrap_or_else(|| panic!("{gid}: {found}"))
    }
}
