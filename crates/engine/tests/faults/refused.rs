//! What is stale or out of bounds is refused before it is posted: over tcp it would wedge the endpoint.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farreach::provider::{
    Event, Exposure, ExposureId, LinkKey, Properties, Provider, ProviderError, Refused, Request,
};
use farreach::{Engine, Memory, PageMap, Pages, Rights, Settings, TransferReason};
use farreach_memory::Exposed;

use super::survivor::SOON;

/// A rail that counts what is posted to it.
#[derive(Debug)]
struct Counting {
    rail: Box<dyn Provider>,
    posts: Arc<AtomicU64>,
}

impl Provider for Counting {
    fn properties(&self) -> &Properties {
        self.rail.properties()
    }

    fn open_link(&mut self) -> Result<(LinkKey, Vec<u8>), ProviderError> {
        self.rail.open_link()
    }

    fn connect(&mut self, link: LinkKey, peer_end: &[u8]) -> Result<(), ProviderError> {
        self.rail.connect(link, peer_end)
    }

    fn close_link(&mut self, link: LinkKey) {
        self.rail.close_link(link);
    }

    fn reset(&mut self) -> Result<(), ProviderError> {
        self.rail.reset()
    }

    fn register(&mut self, memory: &Memory) -> Result<(), ProviderError> {
        self.rail.register(memory)
    }

    fn expose(&mut self, memory: &Arc<Exposed>, rights: Rights) -> Result<Exposure, ProviderError> {
        self.rail.expose(memory, rights)
    }

    fn conceal(&mut self, exposure: ExposureId) -> Result<(), ProviderError> {
        self.rail.conceal(exposure)
    }

    fn post(&mut self, link: LinkKey, tag: u64, request: Request) -> Result<(), Refused> {
        self.posts.fetch_add(1, Ordering::SeqCst);
        self.rail.post(link, tag, request)
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> Result<usize, ProviderError> {
        self.rail.poll(sink)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.rail.wait_fd()
    }

    fn may_sleep(&mut self) -> Result<bool, ProviderError> {
        self.rail.may_sleep()
    }

    fn in_flight(&self) -> usize {
        self.rail.in_flight()
    }
}

pub(crate) fn what_is_stale_or_out_of_bounds_is_never_posted(open: fn() -> Box<dyn Provider>) {
    let posts = Arc::new(AtomicU64::new(0));
    let counting = Counting { rail: open(), posts: Arc::clone(&posts) };
    let writer = Engine::over(vec![Box::new(counting)], Settings::new().name("writer")).unwrap();
    let owner = Engine::over(vec![open()], Settings::new().name("owner")).unwrap();
    let address = owner.listen("127.0.0.1:0").unwrap();
    let to_owner = writer.connect(address).unwrap().wait(SOON).unwrap();
    let to_writer = owner.accept().wait(SOON).unwrap();
    let grant = to_writer.grant(owner.allocate(8 * 4096).unwrap(), Rights::WRITE).unwrap();
    let remote = to_owner.remote(grant.token()).wait(SOON).unwrap();
    let source = writer.allocate(16 * 4096).unwrap().share();
    let write = |map: &PageMap| to_owner.write_pages(source.clone(), map, &remote, None).wait(SOON);

    write(&PageMap::contiguous(4096, 8)).unwrap();
    let before = posts.load(Ordering::SeqCst);
    assert!(before > 0, "it counts");
    let far = Pages { indices: vec![u32::MAX], stride: u64::MAX / 2, offset: 0 };
    let beyond = PageMap { page_len: 4096, source: Pages::contiguous(1, 4096), destination: far };
    for map in [PageMap::contiguous(4096, 9), beyond] {
        let refused = write(&map).unwrap_err();
        assert!(matches!(refused.reason, TransferReason::Pages(_)), "{refused}");
        assert!(refused.buffer.is_some(), "nothing was posted");
    }
    drop(grant.revoke(SOON).unwrap());
    let stale = write(&PageMap::contiguous(4096, 8)).unwrap_err();
    assert_eq!(stale.reason, TransferReason::NotGranted);
    assert_eq!(posts.load(Ordering::SeqCst), before, "what was refused was posted");

    // The link is as well as before.
    let grant = to_writer.grant(owner.allocate(8 * 4096).unwrap(), Rights::WRITE).unwrap();
    let remote = to_owner.remote(grant.token()).wait(SOON).unwrap();
    let map = PageMap::contiguous(4096, 8);
    to_owner.write_pages(source, &map, &remote, None).wait(SOON).unwrap();
}
