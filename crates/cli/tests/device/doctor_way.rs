//! `farreach doctor PEER` where the addresses of two cards do not go together: each fault is named, and when it is undone nothing is.

/// The cards of both hosts.
mod two_hosts {
    use crate::support::host::Host;
    use crate::support::network::{AddedAddress, DroppedPackets};
    use crate::support::pair::{
        CARD, FAR_CARD, assert_clean, assert_fault, doctor, far, gid_index, net_device,
    };
    use crate::support::server::Server;

    const V4_HERE: &str = "0000:0000:0000:0000:0000:ffff:c000:0201";
    const V4_FAR: &str = "0000:0000:0000:0000:0000:ffff:c000:0202";
    const V6_HERE: &str = "2001:0db8:0000:0000:0000:0000:0000:0001";

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
        let address = AddedAddress::at(far(), &net_device(far(), FAR_CARD), "198.51.100.2/24");
        let index = gid_index(far(), FAR_CARD, "0000:0000:0000:0000:0000:ffff:c633:6402").to_string();
        let server = Server::start_far(&["-d", FAR_CARD, "-x", &index]);
        let dev = net_device(Host::HERE, CARD);
        let routed = Host::HERE.run(&["ip", "route", "get", "198.51.100.2"]);
        assert_ne!(routed.code, Some(0), "there is no route: {routed:#?}");
        let on_link = Host::HERE.output(&["ip", "route", "get", "198.51.100.2", "oif", &dev]);
        assert!(on_link.contains(&format!("198.51.100.2 dev {dev}")), "{on_link}");
        let (row, findings) = doctor(&server, &[], 0);
        assert_eq!(row["state"], "works", "{row:#}\n{findings}");

        let unanswered = DroppedPackets::questions_for(far(), "198.51.100.2");
        Host::HERE.run(&["ip", "neigh", "flush", "to", "198.51.100.2"]);
        let told = ["no ARP or NDP answer", &format!("ping -c1 -I {dev} 198.51.100.2")];
        assert_fault(&server, &[], "no neighbour", &told);
        drop(unanswered);
        Host::HERE.run(&["ip", "neigh", "flush", "to", "198.51.100.2"]);
        assert_clean(&server);
        drop(address);
    }

    #[test]
    #[ignore = "needs two hosts: cargo xtask vm test runs it"]
    fn an_address_without_a_route_is_told() {
        let address = AddedAddress::at(far(), &net_device(far(), FAR_CARD), "2001:db8:7::2/64");
        let index = gid_index(far(), FAR_CARD, "2001:0db8:0007:0000:0000:0000:0000:0002").to_string();
        let server = Server::start_far(&["-d", FAR_CARD, "-x", &index]);
        let own = gid_index(Host::HERE, CARD, V6_HERE).to_string();
        let look =
            format!("ip route get 2001:db8:7::2 from 2001:db8::1 oif {}", net_device(Host::HERE, CARD));
        let told = ["no route", &look];
        assert_fault(&server, &["-x", &own], "no route", &told);
        drop(address);
    }
}
