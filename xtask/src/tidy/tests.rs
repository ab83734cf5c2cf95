//! Checks each rule with small trees: some that violate it, with the place that must be named, and
//! some that do not.

use super::tree::Tree;
use super::{RULES, check};

type Files = &'static [(&'static str, &'static str)];

enum Case {
    /// The rule finds exactly this.
    Caught { rule: &'static str, at: &'static str, files: Files },
    /// The rule finds nothing.
    Clean { rule: &'static str, files: Files },
}

use Case::{Caught, Clean};

#[test]
fn each_case_is_caught_or_clean() {
    for case in CASES.iter().flat_map(|cases| cases.iter()) {
        let (rule, files, expected) = match *case {
            Caught { rule, at, files } => (rule, files, vec![at.to_owned()]),
            Clean { rule, files } => (rule, files, Vec::new()),
        };
        let findings = check(&Tree::of(files));
        let of_rule = findings.iter().filter(|finding| finding.rule == rule);
        let places: Vec<String> =
            of_rule.map(|finding| format!("{}:{}", finding.path, finding.line)).collect();
        assert_eq!(places, expected, "rule {rule} over {files:?}: {findings:?}");
    }
}

#[test]
fn each_rule_has_a_case_that_breaks_it_and_one_that_does_not() {
    let cases: Vec<&Case> = CASES.iter().flat_map(|cases| cases.iter()).collect();
    for rule in RULES {
        let caught = cases.iter().any(|case| matches!(case, Caught { rule: name, .. } if *name == rule.name));
        let clean = cases.iter().any(|case| matches!(case, Clean { rule: name, .. } if *name == rule.name));
        assert!(caught && clean, "{} lacks a case", rule.name);
    }
    for case in cases {
        let (Caught { rule: name, .. } | Clean { rule: name, .. }) = case;
        assert!(RULES.iter().any(|rule| rule.name == *name), "no rule is called {name}");
    }
}

#[test]
fn a_c_symbol_in_the_wrong_crate_is_told_with_place_and_remedy() {
    let tree = Tree::of(&[("crates/engine/src/worker.rs", "fn poll() {\n    ibv_poll_cq();\n}\n")]);
    let findings = check(&tree);
    let text: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(
        text.iter().any(|line| {
            line.starts_with("crates/engine/src/worker.rs:2: [c-symbols] `ibv_poll_cq`")
                && line.contains("crates/verbs")
        }),
        "{text:?}"
    );
}

const CASES: &[&[Case]] =
    &[C_SYMBOLS, KNOWLEDGE, ERRORS, UNSAFETY, EXAMPLES, MANIFESTS, TEXT, REACH, CYCLES, GLOSSARY];

const C_SYMBOLS: &[Case] = &[
    Caught {
        rule: "c-symbols",
        at: "crates/cli/src/main.rs:1",
        files: &[("crates/cli/src/main.rs", "use farreach_verbs_sys::ibv_open_device;\n")],
    },
    Caught {
        rule: "c-symbols",
        at: "crates/engine/src/rails/verbs.rs:2",
        files: &[("crates/engine/src/rails/verbs.rs", "fn f() {\n    call!(sys::IBV_QPT_RC);\n}\n")],
    },
    Caught {
        rule: "c-symbols",
        at: "crates/verbs/src/cq.rs:1",
        files: &[("crates/verbs/src/cq.rs", "fn f() { fi_cq_read(); }\n")],
    },
    Caught {
        rule: "c-symbols",
        at: "crates/fabric/src/cq.rs:1",
        files: &[("crates/fabric/src/cq.rs", "type C = ibv_cq;\n")],
    },
    // The names of librdmacm are those that verbs-sys declares, in the bindings or in a library
    // table.
    Caught {
        rule: "c-symbols",
        at: "crates/cli/src/main.rs:1",
        files: &[
            ("crates/verbs-sys/src/bindings.rs", "pub struct rdma_cm_id {}\n"),
            ("crates/cli/src/main.rs", "type Id = rdma_cm_id;\n"),
        ],
    },
    Caught {
        rule: "c-symbols",
        at: "crates/cli/src/main.rs:1",
        files: &[
            (
                "crates/verbs-sys/src/rdmacm.rs",
                "library! { fn rdma_bind_addr(id: u8) -> u8, since \"1\"; }\n",
            ),
            ("crates/cli/src/main.rs", "fn f() { rdma_bind_addr(0) }\n"),
        ],
    },
    Clean {
        rule: "c-symbols",
        files: &[
            (
                "crates/verbs-sys/src/rdmacm.rs",
                "library! { fn rdma_bind_addr(id: u8) -> u8, since \"1\"; }\n",
            ),
            ("crates/verbs/src/cm.rs", "fn bind() { rdma_bind_addr(0); ibv_poll_cq(); }\n"),
            ("crates/fabric/src/cq.rs", "fn read() { fi_cq_read(); }\n"),
            (
                "crates/cli/src/main.rs",
                "//! ibv_open_device\n#[doc(alias = \"fi_getinfo\")]\nfn require_rdma(rdma_rxe: &str) { f(\"ibv_a\") }\n",
            ),
        ],
    },
];

const KNOWLEDGE: &[Case] = &[
    Caught {
        rule: "engine-crates",
        at: "crates/engine/src/worker.rs:1",
        files: &[("crates/engine/src/worker.rs", "use farreach_verbs::QueuePair;\n")],
    },
    Caught {
        rule: "engine-crates",
        at: "crates/memory/Cargo.toml:2",
        files: &[("crates/memory/Cargo.toml", "[dependencies]\nfarreach-fabric-sys.workspace = true\n")],
    },
    Caught {
        rule: "engine-crates",
        at: "crates/verbs/src/lib.rs:1",
        files: &[("crates/verbs/src/lib.rs", "fn f() { farreach_fabric::open(); }\n")],
    },
    Caught {
        rule: "engine-crates",
        at: "crates/doctor/src/lib.rs:1",
        files: &[("crates/doctor/src/lib.rs", "use farreach::Engine;\n")],
    },
    Caught {
        rule: "engine-crates",
        at: "crates/doctor/Cargo.toml:2",
        files: &[("crates/doctor/Cargo.toml", "[dependencies]\nfarreach.workspace = true\n")],
    },
    Clean {
        rule: "engine-crates",
        files: &[
            ("crates/engine/Cargo.toml", "[dependencies]\nfarreach-verbs.workspace = true\n"),
            ("crates/engine/src/rails/verbs.rs", "use farreach_verbs::QueuePair;\n"),
            ("crates/engine/src/rails.rs", "use farreach_fabric::Endpoint;\n"),
            ("crates/engine/src/worker.rs", "use farreach_proto::plan;\n"),
            (
                "crates/doctor/src/lib.rs",
                "use farreach_verbs::DeviceList;\nstruct Dump { farreach: String }\n",
            ),
            (
                "crates/cli/src/cmd/devices.rs",
                "use farreach_verbs::DeviceList;\nuse farreach_fabric::Info;\n",
            ),
        ],
    },
    Caught {
        rule: "proto-pure",
        at: "crates/proto/src/route.rs:1",
        files: &[("crates/proto/src/route.rs", "use std::{fmt, thread};\n")],
    },
    Caught {
        rule: "proto-pure",
        at: "crates/proto/src/route.rs:1",
        files: &[("crates/proto/src/route.rs", "fn f(now: std::time::Instant) {}\n")],
    },
    Caught {
        rule: "proto-pure",
        at: "crates/proto/src/route.rs:2",
        files: &[("crates/proto/src/route.rs", "use std::fmt;\nuse std::sync::Mutex;\n")],
    },
    Caught {
        rule: "proto-pure",
        at: "crates/proto/Cargo.toml:2",
        files: &[("crates/proto/Cargo.toml", "[dependencies]\nfarreach-memory.workspace = true\n")],
    },
    Clean {
        rule: "proto-pure",
        files: &[
            ("crates/proto/Cargo.toml", "[dependencies]\nserde.workspace = true\n"),
            ("crates/proto/src/route.rs", "use std::time::Duration;\nfn f(thread: u8) {}\n"),
            ("crates/engine/src/worker.rs", "use std::thread;\n"),
        ],
    },
];

const ERRORS: &[Case] = &[
    Caught {
        rule: "typed-errors",
        at: "crates/fabric/Cargo.toml:2",
        files: &[("crates/fabric/Cargo.toml", "[dependencies]\nanyhow.workspace = true\n")],
    },
    Clean {
        rule: "typed-errors",
        files: &[("crates/cli/Cargo.toml", "[dependencies]\nanyhow.workspace = true\n")],
    },
];

const RETIRED: (&str, &str) = ("docs/GLOSSARY.md", "| immediate | 32 bits | `tick`, word |\n");

const GLOSSARY: &[Case] = &[
    Caught {
        rule: "glossary",
        at: "crates/proto/src/counter.rs:2",
        files: &[RETIRED, ("crates/proto/src/counter.rs", "fn arrive() {}\nfn on_tick() {}\n")],
    },
    Caught {
        rule: "glossary",
        at: "crates/proto/src/counter.rs:1",
        files: &[RETIRED, ("crates/proto/src/counter.rs", "struct LateTick;\n")],
    },
    Clean {
        rule: "glossary",
        files: &[
            RETIRED,
            // In comments and texts, in its ordinary meaning, and if only a part of a word is the
            // same.
            ("crates/proto/src/counter.rs", "// A tick.\nfn sticky() { f(\"tick\", tick_at, a_word) }\n"),
        ],
    },
];

const UNSAFETY: &[Case] = &[
    Caught {
        rule: "forbid-unsafe",
        at: "crates/proto/src/lib.rs:1",
        files: &[("crates/proto/src/lib.rs", "#![deny(unsafe_code)]\n")],
    },
    Caught {
        rule: "forbid-unsafe",
        at: "crates/cli/src/main.rs:1",
        files: &[("crates/cli/src/main.rs", "fn main() {}\n")],
    },
    Caught {
        rule: "forbid-unsafe",
        at: "crates/engine/src/lib.rs:1",
        files: &[("crates/engine/src/lib.rs", "#![deny(unsafe_code)]\n")],
    },
    Clean {
        rule: "forbid-unsafe",
        files: &[
            ("crates/proto/src/lib.rs", "#![forbid(unsafe_code)]\n"),
            ("crates/cli/src/main.rs", "#![forbid(unsafe_code)]\nfn main() {}\n"),
            ("crates/engine/src/lib.rs", "#![forbid(unsafe_code)]\n"),
            ("crates/memory/src/lib.rs", "fn f() { unsafe { g() } }\n"),
        ],
    },
    Caught {
        rule: "unsafe-table",
        at: "docs/UNSAFE.md:2",
        files: &[
            ("docs/UNSAFE.md", "## How much there is\n| `memory` | 24 | 1 | 8 | 1 |\n"),
            ("crates/memory/src/lib.rs", "fn f() { unsafe { g(unsafe { h() }) } }\n"),
        ],
    },
    Caught {
        rule: "unsafe-table",
        at: "docs/UNSAFE.md:1",
        files: &[("crates/verbs/src/lib.rs", "fn f() { unsafe { g() } }\n")],
    },
    Clean {
        rule: "unsafe-table",
        files: &[
            (
                "docs/UNSAFE.md",
                "| `memory` | 1 | 1 | 1 | 1 |\n## How much there is\n| `memory` | 24 | 2, one in a test | 8 | 1 |\n",
            ),
            ("crates/memory/src/lib.rs", "fn f() { unsafe { g(unsafe { h() }) } }\nunsafe fn k() {}\n"),
            ("crates/memory/tests/host/main.rs", "fn f() { unsafe { g() } }\n"),
        ],
    },
];

const EXAMPLES: &[Case] = &[
    Caught {
        rule: "examples",
        at: "crates/verbs/src/qp.rs:2",
        files: &[("crates/verbs/src/qp.rs", "/// Two queues.\npub struct QueuePair;\n")],
    },
    Clean {
        rule: "examples",
        files: &[
            (
                "crates/verbs/src/qp.rs",
                "/// Two queues.\n///\n/// ```no_run\n/// make();\n/// ```\npub struct QueuePair;\n",
            ),
            ("crates/verbs/src/ring.rs", "pub(crate) struct Ring;\nstruct Place;\n"),
            ("crates/verbs/tests/x.rs", "pub struct Rig;\n"),
        ],
    },
];

const MANIFEST: &str = "[package]\nname = \"farreach-x\"\ndescription = \"X\"\nversion.workspace = true\n\
    edition.workspace = true\nrust-version.workspace = true\nlicense.workspace = true\nauthors.workspace = true\n\
    [dependencies]\nlibc = { workspace = true, features = [\"std\"] }\nfarreach-dylib.workspace = true\n\
    [lints]\nworkspace = true\n";
const UNPUBLISHED: &str = "[package]\nname = \"farreach-sim\"\npublish = false\n";
const ROOT: &str = "[workspace.dependencies]\nfarreach-dylib = { path = \"crates/dylib\" }\nlibc = \"0.2\"\n";

const MANIFESTS: &[Case] = &[
    Caught {
        rule: "manifests",
        at: "crates/x/Cargo.toml:9",
        files: &[(
            "crates/x/Cargo.toml",
            "[package]\ndescription = \"X\"\nversion.workspace = true\nedition.workspace = true\n\
             rust-version.workspace = true\nlicense.workspace = true\nauthors.workspace = true\n\
             [dev-dependencies]\nlibc = \"0.2\"\n[lints]\nworkspace = true\n",
        )],
    },
    Caught {
        rule: "manifests",
        at: "crates/x/Cargo.toml:1",
        files: &[(
            "crates/x/Cargo.toml",
            "[package]\ndescription = \"X\"\nversion.workspace = true\nedition.workspace = true\n\
             rust-version.workspace = true\nlicense.workspace = true\nauthors.workspace = true\n",
        )],
    },
    Clean { rule: "manifests", files: &[("crates/x/Cargo.toml", MANIFEST)] },
    Caught {
        rule: "published",
        at: "crates/engine/Cargo.toml:2",
        files: &[
            ("crates/engine/Cargo.toml", "[dependencies]\nfarreach-sim.workspace = true\n"),
            ("crates/sim/Cargo.toml", UNPUBLISHED),
        ],
    },
    Caught {
        rule: "published",
        at: "crates/engine/Cargo.toml:2",
        files: &[
            (
                "crates/engine/Cargo.toml",
                "[target.'cfg(unix)'.dependencies]\nfarreach-sim = { workspace = true, optional = true }\n",
            ),
            ("crates/sim/Cargo.toml", UNPUBLISHED),
        ],
    },
    Clean {
        rule: "published",
        files: &[
            ("crates/engine/Cargo.toml", "[dev-dependencies]\nfarreach-sim.workspace = true\n"),
            ("crates/sim/Cargo.toml", UNPUBLISHED),
            (
                "crates/examples/Cargo.toml",
                "[package]\npublish = false\n[dependencies]\nfarreach-sim.workspace = true\n",
            ),
        ],
    },
    // Not listed.
    Caught {
        rule: "dependencies",
        at: "docs/DEPENDENCIES.md:1",
        files: &[("crates/x/Cargo.toml", MANIFEST)],
    },
    // Listed with another crate.
    Caught {
        rule: "dependencies",
        at: "docs/DEPENDENCIES.md:1",
        files: &[("crates/x/Cargo.toml", MANIFEST), ("docs/DEPENDENCIES.md", "| `libc` | dylib | C |\n")],
    },
    // Listed, but not used.
    Caught {
        rule: "dependencies",
        at: "docs/DEPENDENCIES.md:2",
        files: &[
            ("crates/x/Cargo.toml", MANIFEST),
            ("docs/DEPENDENCIES.md", "| `libc` | x | C |\n| `rand` | x | numbers |\n"),
        ],
    },
    Caught { rule: "dependencies", at: "Cargo.toml:3", files: &[("Cargo.toml", ROOT)] },
    Clean {
        rule: "dependencies",
        files: &[
            ("Cargo.toml", ROOT),
            ("crates/x/Cargo.toml", MANIFEST),
            ("docs/DEPENDENCIES.md", "| crate | used by | why |\n|---|---|---|\n| `libc` | x | C |\n"),
        ],
    },
];

const TEXT: &[Case] = &[
    Caught { rule: "rust-parses", at: "crates/x/src/lib.rs:1", files: &[("crates/x/src/lib.rs", "fn {\n")] },
    Clean { rule: "rust-parses", files: &[("crates/x/src/lib.rs", "fn f() {}\n")] },
    Caught { rule: "markers", at: "a.sh:1", files: &[("a.sh", concat!("# TO", "DO: more\n"))] },
    Clean {
        rule: "markers",
        files: &[
            ("a.rs", "// mktemp /tmp/XXXXXX\nfn todo() -> bool { \"todo!\" != dbg }\n"),
            ("a.md", "=======\n"),
        ],
    },
    Caught {
        rule: "registry-hosts",
        at: "a.md:1",
        files: &[("a.md", concat!("https://static.crates", ".", "io/x\n"))],
    },
    Caught { rule: "registry-hosts", at: "a.sh:1", files: &[("a.sh", concat!("curl deb.de", "bian.org\n"))] },
    Clean {
        rule: "registry-hosts",
        files: &[
            ("a.md", "A crate of the io kind, from Debian.\n"),
            ("Cargo.lock", concat!("rust-lang/crates", ".", "io-index\n")),
        ],
    },
    Caught { rule: "developer-paths", at: "a.rs:1", files: &[("a.rs", concat!("// see /ho", "me/ann/x\n"))] },
    Caught { rule: "developer-paths", at: "a.sh:1", files: &[("a.sh", concat!("ls /ro", "ot/.cargo\n"))] },
    Clean {
        rule: "developer-paths",
        files: &[("a.rs", concat!("// $CACHE/ro", "ot/usr and https://example.net/x/ho", "me/y\n"))],
    },
];

const REACH: &[Case] = &[
    Caught {
        rule: "dead-files",
        at: "crates/x/src/dead.rs:1",
        files: &[
            ("crates/x/Cargo.toml", ""),
            ("crates/x/src/lib.rs", "mod live;\n"),
            ("crates/x/src/live.rs", ""),
            ("crates/x/src/dead.rs", ""),
        ],
    },
    Caught { rule: "dead-files", at: "docs/lost.md:1", files: &[("docs/lost.md", "[me](lost.md)\n")] },
    Clean {
        rule: "dead-files",
        files: &[
            ("crates/x/Cargo.toml", "[[bin]]\nname = \"y\"\npath = \"src/y.rs\"\n"),
            ("crates/x/src/lib.rs", "mod a;\n#[path = \"other.rs\"]\nmod b;\nmod c { mod d; }\n"),
            ("crates/x/src/a/mod.rs", "mod e;\n"),
            ("crates/x/src/a/e.rs", "mod f;\ninclude!(\"table.rs\");\n"),
            ("crates/x/src/a/e/f.rs", ""),
            ("crates/x/src/a/table.rs", ""),
            ("crates/x/src/other.rs", ""),
            ("crates/x/src/c/d.rs", ""),
            ("crates/x/src/bin/z.rs", ""),
            ("crates/x/src/y.rs", ""),
            ("crates/x/tests/free.rs", "//! See docs/story.md.\n"),
            ("README.md", "[list](docs/list.md#top)\n"),
            ("docs/list.md", ""),
            ("docs/story.md", ""),
        ],
    },
    Caught { rule: "links", at: "README.md:2", files: &[("README.md", "A\n[list](docs/list.md)\n")] },
    Caught { rule: "links", at: "docs/a.md:1", files: &[("docs/a.md", "[out](../../out.md)\n")] },
    Clean {
        rule: "links",
        files: &[
            ("README.md", "[a](docs/a.md#x) [d](docs/) [w](https://example.net/y)\n"),
            ("docs/a.md", "[home](../README.md)\n"),
        ],
    },
];

const CYCLES: &[Case] = &[
    // Through a re-export, and through an imported module.
    Caught {
        rule: "cycles",
        at: "crates/x/src/a.rs:1",
        files: &[
            ("crates/x/Cargo.toml", ""),
            ("crates/x/src/lib.rs", "mod a;\nmod b;\npub use b::B;\n"),
            ("crates/x/src/a.rs", "use crate::B;\npub fn f(b: B) {}\n"),
            ("crates/x/src/b.rs", "use crate::a;\npub struct B;\nfn g() {\n    a::f(B);\n}\n"),
        ],
    },
    // Over three files, one of them a parent that uses its child.
    Caught {
        rule: "cycles",
        at: "xtask/src/a/c.rs:1",
        files: &[
            ("xtask/Cargo.toml", ""),
            ("xtask/src/main.rs", "mod a;\nmod b;\n"),
            ("xtask/src/a/mod.rs", "mod c;\nuse c::C;\npub struct A(C);\n"),
            ("xtask/src/a/c.rs", "use crate::b::B;\npub struct C(B);\n"),
            ("xtask/src/b.rs", "use crate::a::A;\npub struct B(Box<A>);\n"),
        ],
    },
    Clean {
        rule: "cycles",
        files: &[
            ("crates/x/Cargo.toml", ""),
            // A parent that hands on what its children define, one that uses a child which names it, and a test.
            ("crates/x/src/lib.rs", "mod a;\nmod b;\npub mod c;\npub use a::A;\npub struct Root;\n"),
            ("crates/x/src/a.rs", "use crate::Root;\npub struct A(Root);\n"),
            ("crates/x/src/b.rs", "use crate::A;\n#[cfg(test)]\nmod tests { use crate::c::C; }\n"),
            ("crates/x/src/c/mod.rs", "mod d;\nuse d::D;\nuse crate::b;\npub struct C(D);\n"),
            ("crates/x/src/c/d.rs", "use super::C;\npub struct D;\nfn f(c: C) {}\n"),
        ],
    },
    Clean {
        rule: "unit",
        files: &[("dist/farreach.service", include_str!("../../../dist/farreach.service"))],
    },
    // A value that is weaker, and a directive that undoes others.
    Caught {
        rule: "unit",
        at: "dist/x.service:1",
        files: &[("dist/x.service", "[Service]\nProtectSystem=full\nSystemCallFilter=@system-service\n")],
    },
];
