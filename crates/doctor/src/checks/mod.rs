//! The table of checks.
//!
//! To add a check, write a function of a [`Pack`] in the file of its subject, and add a row here.
//! Then add to tests/packs hosts on which it passes, fails, and cannot tell: a test requires all
//! three.
//!
//! A check reads nothing but the pack. `collect` puts the data there: a file is collected if a
//! pattern in `collect/patterns.rs` matches it.

mod cards;
mod cgroup;
mod counters;
mod cpu;
mod firewall;
mod gid;
mod library;
mod lossless;
mod memory;
mod pci;
mod port;
mod routes;
mod shm;
mod shm_directory;
mod stack;
mod subnet;
mod wire;

use crate::finding::{Answer, Verdict, text_of};
use crate::pack::Pack;
use crate::report::{CheckReport, HostReport, NotHere};

/// One question about a host.
#[derive(Debug)]
pub struct Check {
    name: &'static str,
    why: &'static str,
    look: fn(&Pack) -> Answer,
}

impl Check {
    /// Returns the name of the check, in JSON and on the screen.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns why the check matters, in one sentence.
    pub fn why(&self) -> &'static str {
        self.why
    }

    /// Runs the check on a host's pack. The texts of the answer can be printed, whatever the pack
    /// contains.
    pub fn run(&self, pack: &Pack) -> Answer {
        (self.look)(pack).printable()
    }
}

/// Returns all checks, ordered from the kernel up to the wire, so that the most basic problem comes
/// first.
pub fn all() -> &'static [Check] {
    CHECKS
}

/// Runs every check on a pack.
pub fn run(pack: &Pack) -> HostReport {
    let (mut checks, mut not_here) = (Vec::new(), Vec::new());
    for check in CHECKS {
        match check.run(pack) {
            Answer::Findings(findings) => checks.push(CheckReport {
                check: check.name.to_owned(),
                why: check.why.to_owned(),
                verdict: findings.iter().map(|it| it.verdict).max().unwrap_or(Verdict::Unknown),
                findings,
            }),
            Answer::DoesNotApply(reason) => not_here.push(NotHere { check: check.name.to_owned(), reason }),
        }
    }
    HostReport {
        host: text_of(pack.host()),
        address: None,
        read_unix_seconds: pack.recorded_unix_seconds(),
        constructed: pack.constructed().map(text_of),
        has_rdma: cards::has_rdma(pack),
        checks,
        not_here,
    }
}

const CHECKS: &[Check] = &[
    Check { name: "kernel", why: "The kernel's RDMA core provides every RDMA device.", look: stack::kernel },
    Check {
        name: "modules",
        why: "Programs use devices through ib_uverbs, and the connection manager through rdma_ucm.",
        look: stack::modules,
    },
    Check {
        name: "drivers",
        why: "A card without its RDMA driver has no RDMA device.",
        look: cards::drivers,
    },
    Check {
        name: "namespaces",
        why: "A process does not see RDMA devices of another network namespace.",
        look: stack::namespaces,
    },
    Check {
        name: "nodes",
        why: "A program opens a device through its node in /dev/infiniband.",
        look: stack::nodes,
    },
    Check {
        name: "provider",
        why: "libibverbs needs a provider library for each kind of card.",
        look: library::provider,
    },
    Check {
        name: "memlock",
        why: "Registered memory is locked, and the amount that a process may lock is limited.",
        look: memory::memlock,
    },
    Check {
        name: "cgroup",
        why: "A control group can limit the contexts and queue pairs of a process.",
        look: cgroup::cgroup,
    },
    Check {
        name: "queue pairs",
        why: "A card has a limited number of queue pairs, which all processes share.",
        look: library::queue_pairs,
    },
    Check {
        name: "maps",
        why: "A memory region may need a mapping of its own, and a process has a limited number of mappings.",
        look: memory::maps,
    },
    Check {
        name: "open files",
        why: "Memory that processes share, links and connections need file descriptors.",
        look: shm::open_files,
    },
    Check {
        name: "shm",
        why: "Processes of one host share memory over the rail shm, which needs no library.",
        look: shm::shm,
    },
    Check {
        name: "shm directory",
        why: "Processes of different network namespaces meet over shm in a directory that both see.",
        look: shm_directory::shm_directory,
    },
    Check {
        name: "huge pages",
        why: "With huge pages, registration is faster and a card looks up fewer addresses.",
        look: memory::huge_pages,
    },
    Check {
        name: "fork",
        why: "After a fork, a card may write to a page that now belongs to the child.",
        look: library::fork,
    },
    Check {
        name: "gpu",
        why: "If a card can access GPU memory, data need not be copied through host memory.",
        look: stack::gpu,
    },
    Check {
        name: "on-chip memory",
        why: "Memory on the card has a lower latency than host memory.",
        look: library::on_chip_memory,
    },
    Check { name: "port", why: "A port that is not active cannot send or receive.", look: port::port },
    Check {
        name: "rate",
        why: "A link can come up with one lane of four, without an error.",
        look: port::rate,
    },
    Check {
        name: "mtu",
        why: "Small packets lower the rate, and packets larger than the net device's MTU are lost.",
        look: port::mtu,
    },
    Check {
        name: "gids",
        why: "A queue pair with the wrong GID connects, but receives nothing.",
        look: gid::gids,
    },
    Check {
        name: "gid namespace",
        why: "RoCE packets leave through a net device, which must be in this network namespace.",
        look: gid::namespace,
    },
    Check {
        name: "subnet manager",
        why: "A subnet manager assigns each InfiniBand port its address (LID).",
        look: subnet::manager,
    },
    Check {
        name: "partition keys",
        why: "Two InfiniBand ports communicate only if they share a partition and one is a full member.",
        look: subnet::partition_keys,
    },
    Check {
        name: "counters",
        why: "Growing error counters show a bad cable, a congested switch or a lost peer.",
        look: counters::counters,
    },
    Check {
        name: "pfc",
        why: "RoCE recovers slowly from lost packets, so a congested switch should pause senders (PFC).",
        look: lossless::pfc,
    },
    Check {
        name: "dscp trust",
        why: "RoCE v2 carries the priority of a packet in its DSCP.",
        look: lossless::dscp_trust,
    },
    Check {
        name: "ecn",
        why: "Congestion notification (ECN) slows senders down before packets are paused or lost.",
        look: lossless::ecn,
    },
    Check {
        name: "traffic class",
        why: "The traffic class selects the DSCP, and with it the priority of packets.",
        look: lossless::traffic_class,
    },
    Check {
        name: "firewall",
        why: "A packet filter can drop Soft-RoCE packets and the control connection without an error.",
        look: firewall::firewall,
    },
    Check {
        name: "routes",
        why: "By default, net devices that share a subnet answer ARP requests for each other.",
        look: routes::routes,
    },
    Check {
        name: "pcie",
        why: "A PCIe slot with too few lanes is slower than the network link.",
        look: pci::link,
    },
    Check {
        name: "iommu",
        why: "An IOMMU that translates each address lowers the rate, and can block access to GPU memory.",
        look: pci::iommu,
    },
    Check {
        name: "acs",
        why: "PCI bridges with ACS redirect traffic between a card and a GPU to the root complex.",
        look: pci::acs,
    },
    Check {
        name: "numa",
        why: "Memory and CPUs of another NUMA node are slower for a card.",
        look: cpu::numa,
    },
    Check { name: "governor", why: "A CPU at a low frequency adds latency.", look: cpu::governor },
    Check { name: "libfabric", why: "The rails efa and tcp need libfabric.", look: library::libfabric },
    Check {
        name: "efa",
        why: "An Elastic Fabric Adapter works only through libfabric's provider efa.",
        look: library::efa,
    },
    Check {
        name: "transfer",
        why: "A transfer shows whether data really arrives over each rail.",
        look: library::transfer,
    },
];

#[cfg(test)]
mod tests {
    use std::panic;

    use serde_json::Value;

    use super::*;
    use crate::pack::Entry;

    const PACKS: &[&str] = &[
        include_str!("../../tests/packs/connectx-roce.json"),
        include_str!("../../tests/packs/efa.json"),
        include_str!("../../tests/packs/infiniband.json"),
        include_str!("../../tests/packs/soft-roce.json"),
    ];

    /// Runs every check; returns `false` if one panics.
    fn is_borne(pack: &Pack) -> bool {
        panic::catch_unwind(|| CHECKS.iter().for_each(|check| drop(check.run(pack)))).is_ok()
    }

    /// Replaces each number in a text.
    fn renumbered(text: &str, number: &str) -> String {
        let mut out = String::new();
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            if !letter.is_ascii_digit() {
                out.push(letter);
                continue;
            }
            while letters.next_if(char::is_ascii_digit).is_some() {}
            out.push_str(number);
        }
        out
    }

    #[test]
    fn no_check_is_upset_by_a_strange_number_in_a_file() {
        let (huge, mut tried) = (u64::MAX.to_string(), 0);
        for text in PACKS {
            let pack: Pack = serde_json::from_str(text).unwrap();
            assert!(is_borne(&pack));
            for number in [huge.as_str(), "0"] {
                let strange = |entry: &Entry| match entry {
                    Entry::Text(text) => Entry::Text(renumbered(text, number)),
                    other => other.clone(),
                };
                for (path, entry) in pack.files().filter(|(_, entry)| strange(entry) != **entry) {
                    assert!(is_borne(&pack.with_file(path, strange(entry))), "{path} with {number}");
                    tried += 1;
                }
                assert!(is_borne(&pack.map_files(|_, entry| strange(entry))), "all of them with {number}");
            }
        }
        assert!(tried > 500, "{tried}");
    }

    /// Collects the JSON pointers of all numbers.
    fn numbers(value: &Value, at: &str, found: &mut Vec<String>) {
        match value {
            Value::Number(_) => found.push(at.to_owned()),
            Value::Array(all) => {
                all.iter().enumerate().for_each(|(index, it)| numbers(it, &format!("{at}/{index}"), found));
            }
            Value::Object(all) => {
                all.iter().for_each(|(key, it)| {
                    numbers(it, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), found);
                });
            }
            _ => {}
        }
    }

    #[test]
    fn no_check_is_upset_by_a_strange_number_in_a_probe() {
        for text in PACKS {
            let whole: Value = serde_json::from_str(text).unwrap();
            let mut places = Vec::new();
            numbers(&whole["probes"], "/probes", &mut places);
            assert!(!places.is_empty());
            for place in places {
                // The largest value that its type accepts.
                let sizes = [u64::MAX, u32::MAX.into(), u8::MAX.into()];
                let packs = sizes.map(|size| {
                    let mut strange = whole.clone();
                    *strange.pointer_mut(&place).unwrap() = size.into();
                    serde_json::from_value::<Pack>(strange)
                });
                let pack = packs.into_iter().find_map(Result::ok).unwrap();
                assert!(is_borne(&pack), "{place}");
            }
        }
    }
}
