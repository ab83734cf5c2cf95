//! Inputs made of real data: frames as the engine encodes them, packs and rules of the doctor's
//! tests, orders as clients send them. Fuzzing begins with them.

use std::fs;
use std::path::{Path, PathBuf};

use farreach_proto::counter::{CounterId, LinkId};
use farreach_proto::rail::Scope;
use farreach_proto::wire::{self, BoundKey, Frame, GrantOffer, Hello, LinkOffer};

/// Returns the seeds: the target, a name, and the input.
pub fn seeds() -> Vec<(&'static str, String, Vec<u8>)> {
    let mut all = Vec::new();
    let mut add = |target, name: &str, input: Vec<u8>| all.push((target, name.to_owned(), input));
    let mut session = [&[15][..], &wire::preamble()].concat();
    add("frames", "preamble", session.clone());
    session.truncate(1);
    for (number, frame) in frames().iter().enumerate() {
        let mut bytes = vec![number as u8];
        wire::encode(frame, &mut bytes).expect("a frame that an engine sends");
        session.extend_from_slice(&bytes[1..]);
        add("frames", &format!("frame-{number}"), bytes);
    }
    add("frames", "session", session);
    for (number, text) in NAMES.iter().enumerate() {
        add("names", &format!("name-{number}"), text.as_bytes().to_vec());
    }
    for (number, order) in ORDERS.iter().enumerate() {
        add("orders", &format!("order-{number}"), [b"o", order.as_bytes()].concat());
    }
    for (number, (kind, message)) in MESSAGES.iter().enumerate() {
        add("orders", &format!("message-{number}"), [&[*kind], message.as_bytes()].concat());
    }
    for (number, bytes) in ENDS.iter().enumerate() {
        add("ends", &format!("end-{number}"), bytes.to_vec());
    }
    for (target, len) in
        [("machine", 64), ("machine", 512), ("tls", 16), ("tls", 64), ("pages", 48), ("pages", 96)]
    {
        // Any bytes are a history; these are not all alike.
        let bytes = (0..len).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        add(target, &format!("any-{len}"), bytes);
    }
    add("machine", "settle-flood", settle_flood());
    for path in files("crates/doctor/tests/packs") {
        let text = fs::read_to_string(&path).expect("a pack");
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
        // These hold changes of the other packs.
        if name.ends_with(".variants") {
            continue;
        }
        add("packs", name, text.replace("\n  ", " ").into_bytes());
        add("sysfs", name, record(&text));
    }
    for path in files("crates/doctor/tests/firewall") {
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        add("firewall", name, fs::read(&path).expect("a file"));
    }
    let netlink = [&b"n"[..], &hex(RESOURCES)].concat();
    add("sysfs", "netlink", netlink);
    all.retain(|(_, _, input)| input.len() < 64 << 10);
    all
}

/// Returns a history in which a peer asks about 12,000 links that never were. Each was remembered once.
fn settle_flood() -> Vec<u8> {
    // A variant of an enum is chosen by the upper bits of four bytes.
    let variant = |index: u64, count: u64| (((index << 32).div_ceil(count)) as u32).to_le_bytes();
    let mut bytes = vec![0, 0, 1];
    // `Step::OpenCounter(0)`
    bytes.extend(variant(3, 25));
    bytes.push(0);
    for first in 1..4_u64 {
        // `Step::Flood(0, Lie::Settle { link: Number::Any(…), counter: Number::Heard(0) }, 4095)`
        bytes.extend(variant(1, 25));
        bytes.push(0);
        bytes.extend(variant(7, 22));
        bytes.extend(variant(2, 4));
        bytes.extend((first << 32).to_le_bytes());
        bytes.extend(variant(1, 4));
        bytes.push(0);
        bytes.extend(4095_u16.to_le_bytes());
    }
    bytes
}

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder);
    let entries = fs::read_dir(&folder).expect("the folder exists");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.is_file());
    files.sort_unstable();
    files
}

/// Returns the files of a pack as an input of the target `sysfs`.
fn record(pack: &str) -> Vec<u8> {
    let mut bytes = b"k".to_vec();
    // Lines of the form `"/sys/…": "TEXT",` and `"/sys/…": { "link": "TARGET" },`.
    for line in pack.lines().map(str::trim).filter(|line| line.starts_with("\"/")) {
        let words: Vec<&str> = line.split('"').collect();
        match words[..] {
            [_, path, ": ", text, ..] => {
                bytes.extend(format!("{path}={}\0", text.replace("\\n", "\n")).bytes())
            }
            [_, path, _, "link", _, target, ..] => bytes.extend(format!("{path}>{target}\0").bytes()),
            _ => {}
        }
    }
    bytes.truncate(16 << 10);
    bytes
}

fn hex(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks_exact(2);
    pairs.filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// Returns a frame of each kind.
fn frames() -> Vec<Frame> {
    let (link, counter, reason) = (LinkId(3), CounterId::from_raw(0x102), "it is gone".to_owned());
    let mut hello = Hello::new(0x1234_5678_9abc_def0);
    (hello.name, hello.rails) =
        ("storage-7".to_owned(), vec!["verbs/rc/roce".to_owned(), "fabric/tcp".to_owned()]);
    (hello.messages, hello.grants, hello.counters) = (256, 16_384, 16_384);
    vec![
        Frame::Hello(hello),
        Frame::Link(LinkOffer { link, from: 0, to: 1, address: vec![7; 40] }),
        Frame::LinkReady { link, mark: 0xfeed_beef_dead_cafe, needs_names: true, binds_keys: true },
        Frame::LinkLost { link, is_quiet: true, reason: reason.clone() },
        Frame::Grant(GrantOffer {
            grant: 5,
            len: 1 << 20,
            rights: 7,
            scope: Scope::Network,
            keys: vec![Some((4096, 99)), None],
        }),
        Frame::Revoke { grant: 5 },
        Frame::Revoked { grant: u64::MAX },
        Frame::Settle { link, counter },
        Frame::Settled { link, counter, pages: 1024 },
        Frame::Counter { counter, names: vec![(link, CounterId::from_raw(9))] },
        Frame::CounterClosed { counter },
        Frame::Add { counter, pages: 3 },
        Frame::Abort { counter, reason: reason.clone() },
        Frame::Message { sequence: 9, bytes: b"hello".to_vec() },
        Frame::Taken { count: 1 },
        Frame::Held { next: 10 },
        Frame::Ping { nonce: 7 },
        Frame::Look,
        Frame::Refused { reason: reason.clone() },
        Frame::Goodbye,
        Frame::Keys { link, keys: vec![BoundKey { grant: 5, address: 4096, key: 99 }] },
        Frame::Pong { nonce: 7 },
        Frame::Open { publication: 7 },
        Frame::Opened { publication: 7, grant: 5 },
        Frame::NotOpened { publication: 7, reason: reason.clone() },
        Frame::OpenCounter { shared: 7 },
        Frame::CounterOpened { shared: 7, counter },
        Frame::CounterNotOpened { shared: 7, reason },
    ]
}

const NAMES: &[&str] = &[
    "g-7",
    "g-ffffffffffffffff",
    "c-102",
    "5f1d7a9c03e2b846d1f0a37c9be4582610cc47e39a5d8b71f2640e9d3ab8c75e",
    "::ffff:192.0.2.1",
    "fe80::1%lo",
    "[fe80::1%eth0]:99",
    "storage-7:18520",
    "(\"localhost\", 18520)",
    "2-3,4-5",
    "8,64..256*4",
    "127.0.0.1",
];

/// The answer of a kernel about the resources of Soft-RoCE, as netlink sends it.
const RESOURCES: &str = "c400000009140200000000000000000008000100000000000900020072786530000000009c000f0018001000070011007064\
00000c001200010000000000000018001000070011006371000\
00c0012000100000000000000";

/// Ends of a link over libfabric's tcp and over verbs, with the byte that chooses the format.
const ENDS: &[&[u8]] = &[
    &[0, 0x82, 0x80, 0xc0, 0xd5, 0x0f, 4, b'i', b'p', b'v', b'4', 8, 2, 0, 0x48, 0x58, 10, 0, 0, 7],
    &[
        0, 17, 0xff, 0xff, 0xff, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1, 7, 0x80, 0x20,
        16, 1, 0x80, 0x20,
    ],
];

/// Orders as clients of each command send them.
const ORDERS: &[&str] = &[
    r#"{"version":"0.1.0","host":"storage-7","rails":{"cards":false,"providers":["tcp"]},"engine":{"wait":"adaptive","depth":128,"messages":256,"message_bytes_max":4096},"test":7,"connections":1,"task":{"Ping":{"operation":"write","sizes":[64,4096],"seed":1,"alter_byte":false}}}"#,
    r#"{"version":"0.1.0","host":"storage-7","rails":{"cards":true,"providers":["tcp","efa"],"tuning":{"tclass":104,"sl":3,"cpu":{"client":{"first":2,"last":3},"server":null}}},"engine":{"wait":"busy","depth":4096,"messages":1,"message_bytes_max":1048576},"test":18446744073709551615,"connections":256,"task":{"Fill":{"page_bytes":4096,"pages":8,"regions":2,"seed":1,"alter_byte":false}}}"#,
    r#"{"version":"0.1.0","host":"storage-7","rails":{"cards":false,"providers":["tcp"]},"engine":{"wait":"event","depth":128,"messages":256,"message_bytes_max":4096},"test":7,"connections":1,"task":{"Blast":{"operation":"write","direction":"to_server","message_bytes":4096,"depth":16,"count":null,"seed":1,"alter_byte":false}}}"#,
    r#"{"version":"0.1.0","host":"storage-7","rails":{"cards":true,"providers":[]},"engine":{"wait":"adaptive","depth":128,"messages":256,"message_bytes_max":4096},"test":7,"connections":1,"task":{"Chip":{"host_memory":true,"size_bytes":4096,"clients":8,"wait":"adaptive","seed":1}}}"#,
    r#"{"version":"0.1.0","host":"storage-7","rails":{"cards":false,"providers":["tcp"]},"engine":{"wait":"adaptive","depth":128,"messages":256,"message_bytes_max":4096},"test":7,"connections":1,"task":{"Bench":{"memory_bytes":4096}}}"#,
    r#"{"version":"0.1.0","host":"storage-7","rails":{"cards":false,"providers":["tcp"]},"engine":{"wait":"adaptive","depth":128,"messages":256,"message_bytes_max":4096},"test":7,"connections":1,"task":{"Doctor":{"Cards":{"server":"rxe0","client":"rxe0"}}}}"#,
    r#"{"version":"0.1.0","host":"storage-7","rails":{"cards":false,"providers":["tcp"]},"engine":{"wait":"adaptive","depth":128,"messages":256,"message_bytes_max":4096},"test":7,"connections":1,"task":{"Doctor":"Look"}}"#,
];

/// Other messages between the two sides: of the client (`c`) and of the server (`s`).
const MESSAGES: &[(u8, &str)] = &[
    (b'c', r#"{"operation":"write","size_bytes":4096,"depth":16,"wait":"busy"}"#),
    (
        b'c',
        r#"{"Connect":{"end":{"qp_num":17,"psn":1,"gid":"::ffff:192.0.2.1","lid":0,"mtu_bytes":1024,"rd_atomic":1,"qkey":0},"mtu_bytes":1024}}"#,
    ),
    (b'c', r#"farreach message{"Value":7}"#),
    (
        b'c',
        r#"farreach message{"Failed":{"error":"it is busy","cause":null,"fix":"wait","exit":"peer_lost"}}"#,
    ),
    (b's', r#"{"Waiting":{"ahead":3,"served":1}}"#),
    (b's', r#""Served""#),
    (
        b's',
        r#"{"Refused":{"error":"it is busy","cause":"it has 8 clients","fix":"wait","exit":"unavailable"}}"#,
    ),
    (
        b's',
        r#"{"Ok":{"version":"0.1.0","host":"storage-7","offers":{"cards":false,"providers":["tcp"]},"connections_max":8}}"#,
    ),
    (b's', "frcmd\n\u{0}\u{4}"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use farreach_proto::wire::Decoder;

    use super::*;

    /// Returns the number of a frame's kind: the first byte behind its length.
    fn kind(frame: &Frame) -> u8 {
        let mut bytes = Vec::new();
        wire::encode(frame, &mut bytes).unwrap();
        bytes[4]
    }

    /// Returns whether there is a kind of this number: its frame with zeros in all fields, which are
    /// empty lists and texts as well, is decoded.
    fn is_kind(kind: u8) -> bool {
        (0..64_u32).any(|zeros| {
            let content = [&[kind][..], &vec![0; zeros as usize]].concat();
            let mut decoder = Decoder::new();
            decoder.feed(&[&(zeros + 1).to_be_bytes()[..], &content].concat());
            matches!(decoder.next(), Ok(Some(_)))
        })
    }

    #[test]
    fn every_kind_of_frame_has_a_seed() {
        let seeded: BTreeSet<u8> = frames().iter().map(kind).collect();
        let kinds: BTreeSet<u8> = (0..128).filter(|kind| is_kind(*kind)).collect();
        assert_eq!(seeded, kinds);
    }

    #[test]
    fn the_corpus_has_the_frames_as_they_are_encoded_now() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/frames");
        for (_, name, input) in seeds().into_iter().filter(|(target, ..)| *target == "frames") {
            let file = fs::read(folder.join(format!("seed-{name}"))).unwrap_or_default();
            assert!(
                file == input,
                "{name} has changed; write the seeds anew:\n\
                 cargo run --manifest-path fuzz/Cargo.toml --example seeds"
            );
        }
    }
}
