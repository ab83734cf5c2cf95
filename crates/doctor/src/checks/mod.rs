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
mod stack;
mod subnet;
mod wire;

use crate::finding::{Answer, Verdict};
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

    /// Runs the check on a host's pack.
    pub fn run(&self, pack: &Pack) -> Answer {
        (self.look)(pack)
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
        host: pack.host().to_owned(),
        read_unix_seconds: pack.recorded_unix_seconds(),
        constructed: pack.constructed().map(str::to_owned),
        has_rdma: cards::has_rdma(pack),
        checks,
        not_here,
    }
}

const CHECKS: &[Check] = &[
    Check {
        name: "kernel",
        why: "Every RDMA device is the kernel's: without its RDMA core there is none.",
        look: stack::kernel,
    },
    Check {
        name: "modules",
        why: "User space gets at a device through ib_uverbs, and at the connection manager through rdma_ucm.",
        look: stack::modules,
    },
    Check {
        name: "drivers",
        why: "A card without its RDMA driver is a network card at best.",
        look: cards::drivers,
    },
    Check {
        name: "namespaces",
        why: "An RDMA device may be in another network namespace, where this process does not see it.",
        look: stack::namespaces,
    },
    Check {
        name: "nodes",
        why: "A program opens a device by its node in /dev/infiniband.",
        look: stack::nodes,
    },
    Check {
        name: "provider",
        why: "libibverbs drives each card by a library that is for it alone.",
        look: library::provider,
    },
    Check {
        name: "memlock",
        why: "A card reaches memory behind the kernel's back, so registered memory is locked, and a process may lock only so much.",
        look: memory::memlock,
    },
    Check {
        name: "cgroup",
        why: "A control group may leave a process no contexts or queue pairs.",
        look: cgroup::cgroup,
    },
    Check {
        name: "queue pairs",
        why: "A card has a number of queue pairs, and what was left behind holds some.",
        look: library::queue_pairs,
    },
    Check {
        name: "maps",
        why: "Regions are mappings, and a process has a number of those.",
        look: memory::maps,
    },
    Check {
        name: "huge pages",
        why: "A card looks up fewer of them, and they are faster to register.",
        look: memory::huge_pages,
    },
    Check {
        name: "fork",
        why: "After a fork, a page that a card writes to may be the child's.",
        look: library::fork,
    },
    Check {
        name: "gpu",
        why: "A card that reaches a GPU's memory itself saves the way through the host's.",
        look: stack::gpu,
    },
    Check {
        name: "on-chip memory",
        why: "A card's own memory answers faster than the host's.",
        look: library::on_chip_memory,
    },
    Check { name: "port", why: "A port that is not active carries nothing.", look: port::port },
    Check {
        name: "rate",
        why: "A link comes up also with one lane of four, and says nothing.",
        look: port::rate,
    },
    Check {
        name: "mtu",
        why: "Small packets cost rate, and those larger than the net device's are lost.",
        look: port::mtu,
    },
    Check {
        name: "gids",
        why: "A queue pair with the wrong GID connects, and hears nothing.",
        look: gid::gids,
    },
    Check {
        name: "gid namespace",
        why: "RoCE packets leave by a net device of this network namespace, or not at all.",
        look: gid::namespace,
    },
    Check {
        name: "subnet manager",
        why: "An InfiniBand port gets its address from a subnet manager.",
        look: subnet::manager,
    },
    Check {
        name: "partition keys",
        why: "Two InfiniBand ports channel only within a partition, one of them as a full member.",
        look: subnet::partition_keys,
    },
    Check {
        name: "counters",
        why: "A cable that goes bad, and a switch that drops, show in counters first.",
        look: counters::counters,
    },
    Check {
        name: "pfc",
        why: "RoCE bears lost packets badly: switches must pause senders instead.",
        look: lossless::pfc,
    },
    Check {
        name: "dscp trust",
        why: "A packet's priority must be read from where RoCE v2 writes it.",
        look: lossless::dscp_trust,
    },
    Check {
        name: "ecn",
        why: "Marked packets slow a sender down before its packets are paused, or lost.",
        look: lossless::ecn,
    },
    Check {
        name: "traffic class",
        why: "Only packets of the right class get the priority that is not dropped.",
        look: lossless::traffic_class,
    },
    Check {
        name: "firewall",
        why: "A packet filter drops Soft-RoCE and the control connection without a word.",
        look: firewall::firewall,
    },
    Check {
        name: "routes",
        why: "Net devices that share a subnet answer and filter for each other, unless told not to.",
        look: routes::routes,
    },
    Check { name: "pcie", why: "A card in a narrow slot is slower than its wire.", look: pci::link },
    Check {
        name: "iommu",
        why: "An IOMMU that translates each address costs rate, and keeps cards from a GPU's memory.",
        look: pci::iommu,
    },
    Check {
        name: "acs",
        why: "Bridges that send everything to the root make the way between card and GPU long.",
        look: pci::acs,
    },
    Check {
        name: "numa",
        why: "Memory and processors of the far node are slower for a card.",
        look: cpu::numa,
    },
    Check { name: "governor", why: "A processor that saves power answers late.", look: cpu::governor },
    Check { name: "libfabric", why: "EFA and tcp are libfabric's.", look: library::libfabric },
    Check {
        name: "efa",
        why: "An Elastic Fabric Adapter is used through libfabric's provider efa alone.",
        look: library::efa,
    },
    Check { name: "transfer", why: "Only bytes that arrive prove that it works.", look: library::transfer },
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
