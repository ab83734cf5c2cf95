//! Stale or out-of-bounds transfers are refused before they are posted: over tcp they would block
//! the endpoint.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farreach::{Engine, ErrorKind, Memory, PageMap, Pages, Rights, Settings};
use farreach_memory::Buffers;
use farreach_memory::Exposed;
use farreach_rail::{Event, Key, KeyId, LinkKey, PeerKey, Properties, Rail, RailError, Refusal, WorkRequest};

use super::survivor::SOON;

/// A rail that counts posts.
#[derive(Debug)]
struct Counting {
    rail: Box<dyn Rail>,
    posts: Arc<AtomicU64>,
}

impl Rail for Counting {
    fn properties(&self) -> &Properties {
        self.rail.properties()
    }

    fn open_link(&mut self, peer: PeerKey) -> Result<(LinkKey, Vec<u8>), RailError> {
        self.rail.open_link(peer)
    }

    fn connect(&mut self, link: LinkKey, peer_end: &[u8]) -> Result<(), RailError> {
        self.rail.connect(link, peer_end)
    }

    fn close_link(&mut self, link: LinkKey) {
        self.rail.close_link(link);
    }

    fn reset(&mut self) -> Result<(), RailError> {
        self.rail.reset()
    }

    fn register(&mut self, memory: &Memory) -> Result<(), RailError> {
        self.rail.register(memory)
    }

    fn make_key(&mut self, peer: PeerKey, memory: &Arc<Exposed>, rights: Rights) -> Result<Key, RailError> {
        self.rail.make_key(peer, memory, rights)
    }

    fn end_key(&mut self, key: KeyId) -> Result<(), RailError> {
        self.rail.end_key(key)
    }

    fn post(
        &mut self,
        link: LinkKey,
        tag: u64,
        request: WorkRequest<'_>,
        buffers: Buffers,
    ) -> Result<(), (Refusal, Buffers)> {
        self.posts.fetch_add(1, Ordering::SeqCst);
        self.rail.post(link, tag, request, buffers)
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> Result<usize, RailError> {
        self.rail.poll(sink)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.rail.wait_fd()
    }

    fn may_sleep(&mut self) -> Result<bool, RailError> {
        self.rail.may_sleep()
    }

    fn in_flight(&self) -> usize {
        self.rail.in_flight()
    }
}

pub(crate) fn what_is_stale_or_out_of_bounds_is_never_posted(open: fn() -> Box<dyn Rail>) {
    let posts = Arc::new(AtomicU64::new(0));
    let counting = Counting { rail: open(), posts: Arc::clone(&posts) };
    let writer = Engine::over(vec![Box::new(counting)], Settings::new().name("writer")).unwrap();
    let owner = Engine::over(vec![open()], Settings::new().name("owner")).unwrap();
    let address = owner.listen("127.0.0.1:0").unwrap();
    let to_owner = writer.connect(address).unwrap().wait(SOON).unwrap();
    let to_writer = owner.accept().wait(SOON).unwrap();
    let grant =
        to_writer.grant(owner.allocate(8 * 4096).wait(SOON).unwrap(), Rights::WRITE).wait(SOON).unwrap();
    let remote = to_owner.remote(grant.token()).wait(SOON).unwrap();
    let source = writer.allocate(16 * 4096).wait(SOON).unwrap().share();
    let write = |map: &PageMap| to_owner.write_pages(source.clone(), map, &remote, None).wait(SOON);

    write(&PageMap::of(4096).first(8)).unwrap();
    let before = posts.load(Ordering::SeqCst);
    assert!(before > 0, "it counts");
    let far = Pages { indices: [u32::MAX].into(), stride: u64::MAX / 2, offset: 0 };
    let beyond = PageMap { page_len: 4096, source: Pages::contiguous(1, 4096), destination: far };
    for map in [PageMap::of(4096).first(9), beyond] {
        let refused = write(&map).unwrap_err();
        assert_eq!(refused.error.kind(), ErrorKind::Argument, "{refused}");
        assert!(refused.buffer.is_some(), "nothing was posted");
    }
    drop(grant.revoke(SOON).unwrap());
    let stale = write(&PageMap::of(4096).first(8)).unwrap_err();
    assert_eq!(stale.error.kind(), ErrorKind::NotGranted);
    assert_eq!(posts.load(Ordering::SeqCst), before, "what was refused was posted");

    // The link works as before.
    let grant =
        to_writer.grant(owner.allocate(8 * 4096).wait(SOON).unwrap(), Rights::WRITE).wait(SOON).unwrap();
    let remote = to_owner.remote(grant.token()).wait(SOON).unwrap();
    let map = PageMap::of(4096).first(8);
    to_owner.write_pages(source, &map, &remote, None).wait(SOON).unwrap();
}
