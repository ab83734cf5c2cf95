//! Inputs made of real data: frames as the engine encodes them, packs and rules of the doctor's
//! tests, orders as clients send them. Fuzzing begins with them.

use std::fs;
use std::path::{Path, PathBuf};

use farreach_proto::counter::{CounterId, LinkId};
use farreach_proto::ids::{GrantId, PublicationId, SharedCounterId};
use farreach_proto::rail::Scope;
use farreach_proto::wire::fields::{Field, Kind};
use farreach_proto::wire::{self, BoundKey, Frame};

/// Histories begin with these many sets of hosts; in a third of them one lies.
const HOSTS_OF_HISTORIES: u64 = 24;

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
    // Any bytes are a history; these are not all alike.
    let any = |len: u32| (0..len).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8);
    for (target, len) in [("tls", 16), ("tls", 64), ("pages", 48), ("pages", 96)] {
        add(target, &format!("any-{len}"), any(len).collect());
    }
    for hosts in 0..HOSTS_OF_HISTORIES {
        let choices = any(64 << (hosts % 4)).skip(hosts as usize);
        add("machine", &format!("hosts-{hosts}"), hosts.to_le_bytes().into_iter().chain(choices).collect());
    }
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

/// Returns a frame of each kind, with something in each field.
fn frames() -> Vec<Frame> {
    let filled = |kind: &Kind| {
        let mut frame = Frame::blank(*kind);
        frame.fields(&mut fill);
        frame
    };
    Kind::ALL.iter().map(filled).collect()
}

/// A number that no list would have as its length.
const NUMBER: u64 = 0xfeed_beef_dead_cafe;

fn fill(field: Field<'_>) {
    let (a_link, a_counter) = (LinkId(3), CounterId::from_raw(0x102));
    match field {
        Field::Flag(flag) => *flag = true,
        Field::Link(link) => *link = a_link,
        Field::Counter(counter) => *counter = a_counter,
        Field::Grant(grant) => *grant = GrantId::from_raw(5),
        Field::Publication(id) => *id = PublicationId::from_raw(NUMBER),
        Field::Shared(id) => *id = SharedCounterId::from_raw(NUMBER),
        Field::Mark(mark) => *mark = NUMBER,
        Field::Number(number) => *number = 1024,
        Field::Short(number) => *number = 256,
        Field::Rail(rail) => *rail = 1,
        Field::Rights(rights) => *rights = 7,
        Field::Scope(scope) => *scope = Scope::Host,
        Field::Address(bytes) | Field::Bytes(bytes) => *bytes = vec![7; 40],
        Field::Text(text) => text.push_str("storage-7"),
        Field::Rails(rails) => rails.extend(["verbs/rc/roce", "fabric/tcp"].map(str::to_owned)),
        Field::Keys(keys) => keys.extend([Some((4096, 99)), None]),
        Field::BoundKeys(keys) => keys.push(BoundKey { grant: GrantId::from_raw(5), address: 4096, key: 99 }),
        Field::Names(names) => names.push((a_link, a_counter)),
    }
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
    use super::*;

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
