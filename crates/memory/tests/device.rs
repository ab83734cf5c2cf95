//! Tests huge pages and NUMA nodes against the kernel's own records. Every guest has two nodes and
//! 64 huge pages.

use std::fs;

use farreach_memory::{
    AllocateReason, Exchange, ExchangeError, HugePages, KeyAccess, Memory, MemoryOptions, Slice,
};

/// Returns the line of `/proc/self/numa_maps` for the mapping that begins with a slice.
fn numa_map(slice: &Slice) -> String {
    let address = format!("{:x} ", slice.address().as_ptr().addr());
    let maps = fs::read_to_string("/proc/self/numa_maps").expect("the kernel supports NUMA");
    let line = maps.lines().find(|line| line.starts_with(&address));
    line.unwrap_or_else(|| panic!("no mapping begins at {address}in\n{maps}")).to_owned()
}

fn free_huge_pages() -> usize {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap();
    let line = meminfo.lines().find_map(|line| line.strip_prefix("HugePages_Free:")).expect("huge pages");
    line.trim().parse().unwrap()
}

#[test]
#[ignore = "needs two NUMA nodes: cargo xtask vm test runs it"]
fn memory_lies_on_the_node_that_was_asked_for() {
    for node in [0, 1] {
        let slice = MemoryOptions::new().numa_node(node).allocate(1 << 20).unwrap();
        let map = numa_map(&slice);
        assert!(map.contains(&format!("bind:{node}")), "{map}");
        // 256 pages of 4 KiB, all present, all on this node.
        assert!(map.contains(&format!("N{node}=256")), "{map}");
        assert!(!map.contains(&format!("N{}=", 1 - node)), "{map}");
    }
}

#[test]
#[ignore = "needs a kernel with NUMA support: cargo xtask vm test runs it"]
fn a_node_that_does_not_exist_is_refused_with_a_fix() {
    for node in [7, 5000] {
        let error = MemoryOptions::new().numa_node(node).allocate(4096).unwrap_err();
        assert!(matches!(error.reason, AllocateReason::Bind(_)), "{error}");
        assert!(error.to_string().contains(&format!("on NUMA node {node}")), "{error}");
        assert!(error.fix().contains("/sys/devices/system/node"), "{}", error.fix());
    }
}

#[test]
#[ignore = "needs huge pages: cargo xtask vm test runs it"]
fn huge_pages_are_used_and_given_back() {
    let before = free_huge_pages();
    assert!(before >= 4, "{before} huge pages");
    let mut slice = MemoryOptions::new().huge_pages(HugePages::Require).allocate((3 << 20) + 1).unwrap();
    assert!(numa_map(&slice).contains("huge"), "{}", numa_map(&slice));
    assert_eq!(free_huge_pages(), before - 2);
    assert!(slice.memory().notes().is_empty());
    slice.fill(1);
    let rest = slice.split_off(5);
    drop(slice);
    assert_eq!(free_huge_pages(), before - 2, "a part of it still exists");
    drop(rest);
    assert_eq!(free_huge_pages(), before);
}

/// The new pages are huge, too. An exchange for which none are free fails, and leaves the memory as it was:
/// to touch a page that is not there would end the process.
#[test]
#[ignore = "needs huge pages: cargo xtask vm test runs it"]
fn huge_pages_are_exchanged_for_huge_pages() {
    let before = free_huge_pages();
    let huge = || MemoryOptions::new().huge_pages(HugePages::Require);
    let mut slice = huge().allocate(4 << 20).unwrap();
    slice.iter_mut().enumerate().for_each(|(index, byte)| *byte = (index % 251) as u8);
    let exposed = slice.expose();
    let guard = exposed.guard_key(KeyAccess::Write).unwrap();
    // SAFETY: no descriptor of this memory was passed, so no key leads to it.
    let begun = unsafe { Exchange::begin(vec![guard]) };
    let mut exchange = begun.unwrap_or_else(|(error, _)| panic!("{error}"));
    let others = huge().allocate(free_huge_pages() * (2 << 20)).unwrap();
    let failed = exchange.step(false).unwrap_err();
    assert!(matches!(failed, ExchangeError::Call { .. }), "{failed}");
    assert_eq!(exchange.left(), 4 << 20);
    drop(others);
    while exchange.left() > 0 {
        exchange.step(false).unwrap();
    }
    assert!(exchange.finish().is_ok());
    let slice = exposed.try_into_slice().expect("its only key has ended");
    assert!(slice.iter().enumerate().all(|(index, byte)| *byte == (index % 251) as u8));
    assert!(numa_map(&slice).contains("huge"), "{}", numa_map(&slice));
    drop(slice);
    assert_eq!(free_huge_pages(), before);
}

#[test]
#[ignore = "needs huge pages: cargo xtask vm test runs it"]
fn without_free_huge_pages_there_is_a_note_or_an_error() {
    let too_much = (free_huge_pages() + 1) * (2 << 20);
    let error = MemoryOptions::new().huge_pages(HugePages::Require).allocate(too_much).unwrap_err();
    assert!(matches!(error.reason, AllocateReason::NoHugePages(_)), "{error}");
    assert!(error.fix().contains("vm.nr_hugepages"), "{}", error.fix());

    let slice = MemoryOptions::new().huge_pages(HugePages::Try).allocate(too_much).unwrap();
    assert_eq!(slice.memory().notes().len(), 1);
    assert!(slice.memory().notes()[0].contains("no huge pages are free"), "{:?}", slice.memory().notes());
}

/// The pool has enough huge pages and the node does not. The kernel reserves the pages, and
/// touching them would raise SIGBUS.
#[test]
#[ignore = "needs two NUMA nodes and huge pages: cargo xtask vm test runs it"]
fn without_enough_huge_pages_on_a_node_there_is_a_note_or_an_error() {
    let on_node = "/sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages";
    let on_node: usize = fs::read_to_string(on_node).unwrap().trim().parse().unwrap();
    let free = free_huge_pages();
    assert!(on_node < free, "{on_node} huge pages on node 1 of {free}");
    let len = (on_node + 1) * (2 << 20);
    let options = MemoryOptions::new().numa_node(1);
    let error = options.clone().huge_pages(HugePages::Require).allocate(len).unwrap_err();
    assert!(matches!(error.reason, AllocateReason::NoHugePages(_)), "{error}");
    assert_eq!(free_huge_pages(), free, "the mapping was released");

    let slice = options.huge_pages(HugePages::Try).allocate(len).unwrap();
    assert!(slice.memory().notes()[0].contains("no huge pages are free"), "{:?}", slice.memory().notes());
    assert!(!numa_map(&slice).contains("huge"), "{}", numa_map(&slice));
}

#[test]
#[ignore = "needs a kernel with NUMA support: cargo xtask vm test runs it"]
fn every_page_is_there_before_the_first_use() {
    let slice = Memory::allocate(4 << 20).unwrap();
    let map = numa_map(&slice);
    // The pages on each node: `N0=512 N1=512`.
    let on_nodes = map.split_whitespace().filter_map(|word| word.strip_prefix('N')?.split_once('='));
    let pages: usize = on_nodes.map(|(_, pages)| pages.parse::<usize>().unwrap()).sum();
    assert_eq!(pages, 1024, "{map}");
}
