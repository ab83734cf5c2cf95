//! Transfers of many regions at once, each with its own memory on both sides.
//!
//! A list is planned by the caller's thread: its regions become segments with one place on each side
//! ([`Segments`]), which the protocol moves as the pages of one transfer.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use farreach_proto::ids::GrantId;
use farreach_proto::machine::{Direction, GrantRange, NewTransfer, Regions};
use farreach_proto::plan::{Plan, PlanError, Side};
use farreach_proto::segments::{Segment, Segments};
use farreach_proto::time::Time;
use farreach_rail::{Held, HeldList};

use crate::contiguous::submit;
use crate::delivery::next_op;
use crate::driver::{Command, Driver};
use crate::pending::Pending;
use crate::progress::oneshot;
use crate::source::{Destination, Source};
use crate::transfer::TransferInFlight;
use crate::{Buffer, Error, PageMap, Peer, RemoteCounter, RemoteSlice, Transfer, TransferError};

/// Regions to move in one transfer: [`Peer::write_list`], [`Peer::read_list`],
/// [`Peer::prepare_write`], [`Peer::prepare_read`].
///
/// A region is memory of this side, a range of the peer's memory, and the segments that move between
/// them: all bytes of this side's memory as one segment ([`push`](Self::push)), or pages
/// ([`push_pages`](Self::push_pages)). Regions may be of different grants of the peer.
///
/// Segments that are neighbours on both sides are moved by one operation. Slices that were
/// [split](crate::Slice::split_off) are neighbours again if they are pushed one after the other.
pub struct TransferList<B = Buffer> {
    own: Vec<B>,
    remote: Vec<Remote>,
    segments: usize,
}

/// The side of the peer of a region.
struct Remote {
    memory: RemoteSlice,
    /// `None` if all bytes of this side's memory move.
    map: Option<PageMap>,
}

impl<B: Source> TransferList<B> {
    /// Returns an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns an empty list with room for so many regions.
    pub fn with_capacity(regions: usize) -> Self {
        Self { own: Vec::with_capacity(regions), remote: Vec::with_capacity(regions), segments: 0 }
    }

    /// Adds a region of one segment: all bytes of `own`, and as many at the beginning of `remote`.
    pub fn push(&mut self, own: B, remote: &RemoteSlice) {
        self.own.push(own);
        self.remote.push(Remote { memory: remote.clone(), map: None });
        self.segments += 1;
    }

    /// Adds a region of pages, each of which is a segment. The source of the map is `own` in a list to
    /// write, and `remote` in a list to read.
    pub fn push_pages(&mut self, own: B, map: &PageMap, remote: &RemoteSlice) {
        self.own.push(own);
        // A range of indices may stand for billions of pages. It is refused when the list is
        // planned.
        self.segments = self.segments.saturating_add(map.source.indices.len());
        self.remote.push(Remote { memory: remote.clone(), map: Some(map.clone()) });
    }

    /// Returns the number of segments of all regions.
    pub fn segments(&self) -> usize {
        self.segments
    }

    /// Returns the number of regions.
    pub fn len(&self) -> usize {
        self.own.len()
    }

    /// Returns `true` if there are no regions.
    pub fn is_empty(&self) -> bool {
        self.own.is_empty()
    }

    /// Returns the memory of this side, in the order of its regions.
    pub fn into_memory(self) -> Vec<B> {
        self.own
    }
}

impl<B> Default for TransferList<B> {
    fn default() -> Self {
        Self { own: Vec::new(), remote: Vec::new(), segments: 0 }
    }
}

impl<B> fmt::Debug for TransferList<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("TransferList");
        shown.field("regions", &self.own.len()).field("segments", &self.segments).finish()
    }
}

/// A planned list, with its memory in the form of work requests.
pub(crate) struct Planned {
    pub(crate) segments: Vec<Segment>,
    pub(crate) regions: Vec<GrantRange>,
    pub(crate) buffers: Vec<Buffer>,
    /// For each region, its buffer and the bytes of it.
    pub(crate) parts: Vec<Part>,
}

/// The memory of one region in a list of buffers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    buffer: u32,
    len: usize,
}

/// Which slices that are neighbours are joined to one buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Join {
    Neighbours,
    Nothing,
}

impl<B: Source> TransferList<B> {
    /// Plans a transfer with this peer. The memory is returned with an error.
    pub(crate) fn plan(
        self,
        peer: &Peer,
        direction: Direction,
        join: Join,
    ) -> Result<Planned, (Error, Vec<B>)> {
        let Self { own, remote, segments } = self;
        let (buffers, parts) = match join {
            Join::Neighbours => joined(own),
            Join::Nothing => apart(own),
        };
        let mut planner = Planner {
            direction,
            // The pages of a region are checked before they become segments.
            segments: Vec::with_capacity(segments.min(ROOM_MAX)),
            regions: Vec::new(),
            by_grant: HashMap::new(),
            last: None,
        };
        let planned = planner.plan(peer, &remote, &parts);
        let Planner { segments, regions, .. } = planner;
        match planned {
            Ok(()) => Ok(Planned { segments, regions, buffers, parts }),
            // Nothing has been lent, so all of it can be restored.
            Err(error) => Err((error, restored(buffers, &parts).unwrap_or_default())),
        }
    }
}

/// The segments for which a list has room before they are checked.
const ROOM_MAX: usize = 1 << 16;

struct Planner {
    direction: Direction,
    segments: Vec<Segment>,
    /// One for each grant.
    regions: Vec<GrantRange>,
    by_grant: HashMap<GrantId, u32>,
    /// The grant that was used last, and its index: most lists have few.
    last: Option<(GrantId, u32)>,
}

impl Planner {
    fn plan(&mut self, peer: &Peer, remote: &[Remote], parts: &[Part]) -> Result<(), Error> {
        if parts.is_empty() {
            return Err(Error::no_regions());
        }
        let (mut buffer, mut offset) = (0, 0);
        for (number, (remote, part)) in remote.iter().zip(parts).enumerate() {
            if remote.memory.peer.0 != peer.key() {
                return Err(Error::not_granted("memory"));
            }
            // Regions of joined slices share a buffer, and follow each other in it.
            if part.buffer != buffer {
                (buffer, offset) = (part.buffer, 0);
            }
            let own_len = part.len as u64;
            // A longer buffer would have places of the next one.
            if offset + own_len > HeldList::LEN_MAX || buffer as usize >= HeldList::BUFFERS_MAX {
                return Err(Error::limit("bytes or buffers in one list"));
            }
            let more = remote.map.as_ref().map_or(1, |map| map.source.indices.len());
            // Before the segments are added, which take memory: a range of indices takes none.
            if self.segments.len() + more > u32::MAX as usize {
                return Err(Error::limit("segments in one list"));
            }
            let own = HeldList::place(buffer, offset);
            match &remote.map {
                None => self.add_range(own, own_len, &remote.memory),
                Some(map) => self.add_pages(own, own_len, map, &remote.memory),
            }
            .map_err(|error| Error::of_region(number, error))?;
            offset += own_len;
        }
        if self.segments.is_empty() { Err(Error::no_regions()) } else { Ok(()) }
    }

    fn add_range(&mut self, own: u64, len: u64, remote: &RemoteSlice) -> Result<(), PlanError> {
        let segment = self.segments.len();
        match () {
            () if len == 0 => Err(PlanError::EmptySegment { segment }),
            () if len > remote.len => Err(PlanError::SegmentOutOfBounds { segment, region_len: remote.len }),
            () => {
                let region = self.region(remote);
                self.segments.push(Segment { own, remote: remote.offset, len, region });
                Ok(())
            }
        }
    }

    fn add_pages(
        &mut self,
        own: u64,
        own_len: u64,
        map: &PageMap,
        remote: &RemoteSlice,
    ) -> Result<(), PlanError> {
        // It checks the bounds of all pages, so no place overflows.
        map.plan(self.direction, own_len, remote.len)?;
        let region = self.region(remote);
        let (here, there) = match self.direction {
            Direction::Write => (&map.source, &map.destination),
            Direction::Read => (&map.destination, &map.source),
        };
        let place = |index: u32, pages: &crate::Pages| pages.offset + u64::from(index) * pages.stride;
        let pages = here.indices.iter_from(0).zip(there.indices.iter_from(0)).map(|(from, to)| Segment {
            own: own + place(from, here),
            remote: remote.offset + place(to, there),
            len: map.page_len,
            region,
        });
        self.segments.extend(pages);
        Ok(())
    }

    /// Returns the index of the grant of this memory, after extending its range to the memory.
    fn region(&mut self, remote: &RemoteSlice) -> u32 {
        let RemoteSlice { grant, offset, len, .. } = *remote;
        let index = match self.last {
            Some((last, index)) if last == grant => index,
            _ => *self.by_grant.entry(grant).or_insert_with(|| {
                // The length of the grant is not known here. The machine checks the range against
                // it.
                self.regions.push(GrantRange { grant, base: 0, len: 0 });
                (self.regions.len() - 1) as u32
            }),
        };
        self.last = Some((grant, index));
        let region = &mut self.regions[index as usize];
        region.len = region.len.max(offset + len);
        index
    }
}

/// Returns the memory as buffers, and the buffer of each region.
fn apart<B: Source>(own: Vec<B>) -> (Vec<Buffer>, Vec<Part>) {
    let buffers: Vec<Buffer> = own.into_iter().map(B::into_buffer).collect();
    let part = |(index, buffer): (usize, &Buffer)| Part { buffer: index as u32, len: buffer.len() };
    let parts = buffers.iter().enumerate().map(part).collect();
    (buffers, parts)
}

/// Returns the memory as buffers, with one for slices that follow each other in their allocation.
fn joined<B: Source>(own: Vec<B>) -> (Vec<Buffer>, Vec<Part>) {
    let (mut buffers, mut parts) = (Vec::<Buffer>::new(), Vec::with_capacity(own.len()));
    for buffer in own.into_iter().map(B::into_buffer) {
        let len = buffer.len();
        let apart = match (buffers.last_mut(), buffer) {
            // Slices that are not neighbours come back from the failure.
            (Some(Buffer::Slice(last)), Buffer::Slice(slice)) => last.unsplit(slice).err().map(Buffer::Slice),
            (_, buffer) => Some(buffer),
        };
        buffers.extend(apart);
        parts.push(Part { buffer: (buffers.len() - 1) as u32, len });
    }
    (buffers, parts)
}

/// Returns the memory of each region from the buffers, in the order in which it was given. `None` if a
/// card has not returned all of it.
pub(crate) fn restored<B: Source>(buffers: Vec<Buffer>, parts: &[Part]) -> Option<Vec<B>> {
    let mut restored = Vec::with_capacity(parts.len());
    let mut buffers = buffers.into_iter();
    for of_buffer in parts.chunk_by(|left, right| left.buffer == right.buffer) {
        let buffer = buffers.next()?;
        let [.., last] = of_buffer else { return None };
        // Only slices are joined, so a buffer of one region may be of another kind.
        if of_buffer.len() == 1 {
            restored.push(B::from_buffer(buffer)?);
            continue;
        }
        // A joined buffer was made of slices. It is none as long as a card has a part of it.
        let mut rest = buffer.into_slice().ok()?;
        for part in &of_buffer[..of_buffer.len() - 1] {
            restored.push(B::from_buffer(rest.split_to(part.len).into())?);
        }
        debug_assert_eq!(rest.len(), last.len, "the parts are all of the buffer");
        restored.push(B::from_buffer(rest.into())?);
    }
    Some(restored)
}

impl Peer {
    /// Writes all regions of a list. When the transfer is done, the bytes are there, and the counter,
    /// if one is given, has risen by the number of segments. Segments arrive in any order, and must not
    /// overlap at the peer. The memory comes back in the order of the regions.
    ///
    /// Memory that a card has not registered yet is registered in this transfer.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use farreach::{Engine, PageMap, Rights};
    /// # const SOON: Duration = Duration::from_secs(20);
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (here, there) = (Engine::new()?, Engine::new()?);
    /// # let peer = here.connect(there.listen("127.0.0.1:0")?)?.wait(SOON)?;
    /// # let owner = there.accept().wait(SOON)?;
    /// # let grants = [0, 1].map(|_| {
    /// #     let memory = there.allocate(8 * 4096).wait(SOON).unwrap();
    /// #     owner.grant(memory, Rights::WRITE).wait(SOON).unwrap()
    /// # });
    /// # let counter = owner.open_counter().wait(SOON)?;
    /// use farreach::{Slice, TransferList};
    ///
    /// # let tokens = [grants[0].token(), grants[1].token()];
    /// # let arrivals = peer.remote_counter(counter.token()).wait(SOON)?;
    /// let keys = peer.remote(tokens[0]).wait(SOON)?;
    /// let values = peer.remote(tokens[1]).wait(SOON)?;
    ///
    /// let mut list = TransferList::<Slice>::new();
    /// // All of this memory, to one place.
    /// list.push(here.allocate(100).wait(SOON)?, &keys.at(500));
    /// // Three pages, to the places 5, 0 and 3 of other memory.
    /// let map = PageMap::of(4096).from([0, 1, 2]).to([5, 0, 3]);
    /// list.push_pages(here.allocate(3 * 4096).wait(SOON)?, &map, &values);
    ///
    /// let done = peer.write_list(list, Some(&arrivals)).wait(SOON)?;
    /// assert_eq!(done.buffer.iter().map(Slice::len).collect::<Vec<_>>(), [100, 3 * 4096]);
    ///
    /// // In the process of the owner:
    /// counter.reach(4).wait(SOON)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn write_list<B: Source>(
        &self,
        list: TransferList<B>,
        counter: Option<&RemoteCounter>,
    ) -> Transfer<Vec<B>> {
        self.move_list(Direction::Write, list, counter)
    }

    /// Reads all regions of a list into memory of this side. The memory comes back in the order of the
    /// regions.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use farreach::{Engine, Rights};
    /// # const SOON: Duration = Duration::from_secs(20);
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (here, there) = (Engine::new()?, Engine::new()?);
    /// # let peer = here.connect(there.listen("127.0.0.1:0")?)?.wait(SOON)?;
    /// # let owner = there.accept().wait(SOON)?;
    /// # let grant = owner.grant(there.allocate(8 * 4096).wait(SOON)?, Rights::READ).wait(SOON)?;
    /// # grant.write_at(4096, b"key");
    /// # grant.write_at(9000, b"value");
    /// use farreach::TransferList;
    ///
    /// let remote = peer.remote(grant.token()).wait(SOON)?;
    /// let mut list = TransferList::<Vec<u8>>::new();
    /// list.push(vec![0; 3], &remote.at(4096));
    /// list.push(vec![0; 5], &remote.at(9000));
    /// let done = peer.read_list(list).wait(SOON)?;
    /// assert_eq!(done.buffer, [b"key".to_vec(), b"value".to_vec()]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn read_list<B: Destination>(&self, list: TransferList<B>) -> Transfer<Vec<B>> {
        self.move_list(Direction::Read, list, None)
    }

    fn move_list<B: Source>(
        &self,
        direction: Direction,
        list: TransferList<B>,
        counter: Option<&RemoteCounter>,
    ) -> Transfer<Vec<B>> {
        let refused =
            |error, memory| Pending::finished(self.running(), Err(TransferError::refused(error, memory)));
        if counter.is_some_and(|counter| counter.peer.0 != self.key()) {
            return refused(Error::not_granted("counter"), list.into_memory());
        }
        let Planned { segments, regions, buffers, parts } = match list.plan(self, direction, Join::Neighbours)
        {
            Ok(planned) => planned,
            Err((error, memory)) => return refused(error, memory),
        };
        // Segments arrive in any order, so a byte that two of them write would have either value.
        let segments = match Segments::of_checked(segments, own_side(direction)) {
            Ok(segments) => segments,
            Err(error) => {
                return refused(Error::of_list(error), restored(buffers, &parts).unwrap_or_default());
            }
        };
        let (op, peer) = (next_op(), self.key());
        let held = match HeldList::new(buffers) {
            Ok(list) => Held::List(Arc::new(list)),
            Err(buffers) => {
                let error = Error::limit("bytes or buffers in one list");
                return refused(error, restored(buffers, &parts).unwrap_or_default());
            }
        };
        let (plan, regions) = (Plan::of_segments(segments), Regions::List(regions.into()));
        let counter = counter.map(|counter| counter.token.id());
        let (priority, deadline) = self.terms_now();
        let new = NewTransfer { op, peer, direction, plan, regions, counter, priority, deadline };
        let (sender, receiver) = oneshot::channel();
        let call = move |driver: &mut Driver, now: Time| submit(driver, new, held, sender, now);
        self.running().submit(Command::Call(Box::new(call)));
        let restore = move |held: Option<Held>| match held {
            // Only this transfer has had the list, so the handle that comes back is the last one.
            Some(Held::List(list)) => restored(Arc::into_inner(list)?.into_buffers(), &parts),
            _ => None,
        };
        Pending::new(self.running(), TransferInFlight::new(receiver, peer, self.cell(), op, restore))
    }
}

/// Returns the side of a transfer that the memory of this process is.
pub(crate) fn own_side(direction: Direction) -> Side {
    match direction {
        Direction::Write => Side::Source,
        Direction::Read => Side::Destination,
    }
}

#[cfg(test)]
mod tests {
    use farreach_proto::machine::PeerKey;

    use super::*;
    use crate::grant::PeerKeyTag;
    use crate::{Memory, Rights, Slice};

    fn slice(byte: u8, len: usize) -> Slice {
        let mut slice = Memory::allocate(len).unwrap();
        slice.fill(byte);
        slice
    }

    #[test]
    fn neighbours_are_one_buffer_and_come_back_apart() {
        let mut first = slice(1, 100);
        let mut second = first.split_off(30);
        let third = second.split_off(30);
        (second[0], first[29]) = (2, 7);
        // Another allocation, and a neighbour that comes before it.
        let given = vec![first, second, slice(3, 5), third, slice(4, 6)];
        let places: Vec<_> = given.iter().map(|slice| (slice.address(), slice.len())).collect();
        let (buffers, parts) = joined(given);
        assert_eq!(buffers.iter().map(Buffer::len).collect::<Vec<_>>(), [60, 5, 40, 6]);
        assert_eq!(parts.iter().map(|part| part.buffer).collect::<Vec<_>>(), [0, 0, 1, 2, 3]);
        let back: Vec<Slice> = restored(buffers, &parts).unwrap();
        assert_eq!(back.iter().map(|slice| (slice.address(), slice.len())).collect::<Vec<_>>(), places);
        assert_eq!((back[0][29], back[1][0], back[3][39]), (7, 2, 1));
    }

    #[test]
    fn memory_of_which_a_card_has_a_part_does_not_come_back() {
        let (buffers, parts) = joined(vec![slice(1, 10), slice(2, 10)]);
        let list = HeldList::new(buffers).unwrap();
        assert!(restored::<Slice>(list.into_buffers(), &parts).is_some());
        let lent = slice(3, 10).lend();
        let buffers = vec![slice(1, 10).into(), Buffer::Lent(lent)];
        assert!(restored::<Slice>(buffers, &parts).is_none());
    }

    #[test]
    fn a_range_that_ends_beyond_the_memory_of_the_peer_is_refused() {
        let mut planner = Planner {
            direction: Direction::Write,
            segments: Vec::new(),
            regions: Vec::new(),
            by_grant: HashMap::new(),
            last: None,
        };
        let (peer, rights) = (PeerKeyTag(PeerKey(1)), Rights::WRITE);
        let remote = RemoteSlice { peer, grant: GrantId::from_raw(7), offset: 5, len: 10, rights };
        planner.add_range(0, 10, &remote).unwrap();
        let refused = planner.add_range(10, 11, &remote).unwrap_err();
        assert_eq!(refused, PlanError::SegmentOutOfBounds { segment: 1, region_len: 10 });
        assert_eq!(planner.segments.len(), 1);
    }
}
