//! `farreach doctor PEER` between two hosts with RDMA: each fault is named, and when it is undone nothing is.

/// The cards of both hosts.
mod two_hosts {
    use crate::support::host::Host;
    use crate::support::network::{DroppedPackets, LargerMtu};
    use crate::support::pair::{CARD, FAR_CARD, assert_clean, assert_fault, doctor, far, net_device};
    use crate::support::server::Server;

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
        let told = [
            "0 of 16 datagrams arrive at PEER",
            "16 of 16 arrive at HERE",
            "UDP port 4791",
            "from HERE to PEER",
        ];
        assert_fault(&server, &[], "blocked to", &told);
        let back = DroppedPackets::at(Host::HERE);
        let told = ["0 of 16 datagrams arrive in each direction", "UDP port 4791"];
        assert_fault(&server, &[], "blocked both ways", &told);
        drop(there);
        let told = ["16 of 16 datagrams arrive at PEER", "0 of 16 arrive at HERE", "from PEER to HERE"];
        assert_fault(&server, &[], "blocked from", &told);
        drop(back);
        assert_clean(&server);
    }

    #[test]
    #[ignore = "needs two hosts: cargo xtask vm test runs it"]
    fn full_packets_that_are_lost_are_told_with_the_size_that_works() {
        let server = Server::start_far(&[]);
        for (host, way) in [(far(), "from HERE to PEER"), (Host::HERE, "from PEER to HERE")] {
            let dropped = DroppedPackets::longer_than(host, 700);
            let told = [
                "packets of 1024 bytes are lost",
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
        let larger = LargerMtu::of(Host::HERE, &net_device(Host::HERE, CARD));
        let (row, findings) = doctor(&server, &[], 0);
        assert_eq!(row["state"], "warns", "{row:#}\n{findings}");
        assert!(findings.contains("has an MTU of 4096 bytes") && findings.contains("mtu 4200"), "{findings}");
        drop(larger);
        assert_clean(&server);
    }
}
