//! Prepared transfers: lists that are planned, checked and registered once, and started many times.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farreach_memory::{Exposed, ExposedPart};
use farreach_proto::counter::CounterId;
use farreach_proto::machine::{Direction, NewTransfer, Regions, TransferFault};
use farreach_proto::plan::Plan;
use farreach_proto::segments::{Segment, Segments};
use farreach_proto::time::Time;
use farreach_rail::{Held, HeldList};

use crate::contiguous::register;
use crate::delivery::next_op;
use crate::driver::{Command, Driver};
use crate::hung_call::Timeout;
use crate::list::{Join, Planned, own_side};
use crate::pending::{Answer, Making, Pending};
use crate::progress::Listener;
use crate::start_pool::StartPool;
use crate::starts::Starts;
use crate::transfer::error_of;
use crate::watch::Watcher;
use crate::{Buffer, Error, Peer, RemoteCounter, Shared, Slice, Transfer, TransferError, TransferList};

/// A list of regions whose transfer repeats: [`Peer::prepare_write`], [`Peer::prepare_read`].
///
/// It is planned, checked and registered once. Each [`start`](Self::start) moves a
/// [subset](Self::subset) of its segments, in the order in which they were pushed. Any number of starts
/// may run at once.
///
/// The memory stays with it until [`finish`](Self::finish) returns it. A `Prepared<Shared>` writes
/// memory that the program can read meanwhile. A `Prepared<Slice>` reads into memory of which bytes can
/// be copied at any time ([`memory`](Prepared::memory)), because a start may be writing to it.
///
/// If the peer revokes a region, or is lost, starts end with an error as any other transfer. After a
/// lost link they use another one.
///
/// ```
/// # use std::time::Duration;
/// # use farreach::{Engine, PageMap, Rights, Slice, TransferList};
/// # const SOON: Duration = Duration::from_secs(20);
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (here, there) = (Engine::new()?, Engine::new()?);
/// # let peer = here.connect(there.listen("127.0.0.1:0")?)?.wait(SOON)?;
/// # let owner = there.accept().wait(SOON)?;
/// # let grant = owner.grant(there.allocate(8 * 4096).wait(SOON)?, Rights::READ).wait(SOON)?;
/// # grant.write_at(5 * 4096, b"block 5");
/// let remote = peer.remote(grant.token()).wait(SOON)?;
/// let mut list = TransferList::<Slice>::new();
/// let map = PageMap::of(4096).first(8);
/// list.push_pages(here.allocate(8 * 4096).wait(SOON)?, &map, &remote);
///
/// let blocks = peer.prepare_read(list).wait(SOON)?;
/// let two = blocks.subset(&[5, 2])?;
/// for _ in 0..10 {
///     blocks.start(&two).wait(SOON)?;
///     let mut bytes = [0; 7];
///     blocks.memory(0).read_at(5 * 4096, &mut bytes);
///     assert_eq!(&bytes, b"block 5");
/// }
/// let memory: Vec<Slice> = blocks.finish().wait(SOON)?;
/// assert!(memory[0][5 * 4096..].starts_with(b"block 5"));
/// # Ok(())
/// # }
/// ```
pub struct Prepared<M: Preparable> {
    peer: Peer,
    /// Distinguishes its subsets from those of others.
    id: u64,
    direction: Direction,
    counter: Option<CounterId>,
    /// All segments, within their memory on both sides.
    segments: Arc<[Segment]>,
    regions: Regions,
    held: Arc<HeldList>,
    views: Vec<M::View>,
    starts: Arc<Starts>,
    pool: Arc<StartPool>,
}

/// Memory of this side that a transfer can be prepared with: [`Shared`] to write, [`Slice`] to read
/// into. Other crates cannot implement it.
pub trait Preparable: sealed::Memory {}

impl Preparable for Shared {}
impl Preparable for Slice {}

mod sealed {
    use super::{Arc, Buffer, Exposed, ExposedPart, Shared, Slice};
    use crate::source::{Sealed, Source};

    pub trait Memory: Source {
        /// What the program uses while transfers may run.
        type View: Send + Sync + 'static;
        fn view(buffer: Buffer) -> (Self::View, Buffer);
        /// Returns the memory when no transfer runs. `None` if a card has a part of it.
        fn back(view: Self::View) -> Option<Self>;
    }

    impl Memory for Shared {
        type View = Self;

        fn view(buffer: Buffer) -> (Self, Buffer) {
            let shared = Self::from_buffer(buffer).expect("it was made from shared memory");
            (shared.clone(), shared.into_buffer())
        }

        fn back(view: Self) -> Option<Self> {
            Some(view)
        }
    }

    impl Memory for Slice {
        type View = Arc<Exposed>;

        fn view(buffer: Buffer) -> (Arc<Exposed>, Buffer) {
            let slice = Self::from_buffer(buffer).expect("it was made from a slice");
            let exposed = Arc::new(slice.expose());
            (Arc::clone(&exposed), ExposedPart::new(exposed).into())
        }

        fn back(view: Arc<Exposed>) -> Option<Self> {
            // No peer has a key to it, so the parts in flight are all that could change it.
            Arc::into_inner(view)?.try_into_slice().ok()
        }
    }
}

/// Segments of a [`Prepared`] transfer. A subset is allocated and checked once, and started many times.
#[derive(Clone)]
pub struct Subset {
    of: u64,
    segments: Segments,
}

impl Subset {
    /// Returns the number of segments.
    #[expect(clippy::len_without_is_empty, reason = "a subset is never empty")]
    pub fn len(&self) -> usize {
        self.segments.len()
    }
}

impl fmt::Debug for Subset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subset").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl Peer {
    /// Prepares to write the regions of a list. Each start raises the counter, if one is given, by the
    /// number of its segments. On failure the memory is returned with the error.
    pub fn prepare_write(
        &self,
        list: TransferList<Shared>,
        counter: Option<&RemoteCounter>,
    ) -> Pending<Prepared<Shared>, TransferError<Vec<Shared>>> {
        self.prepare(Direction::Write, list, counter)
    }

    /// Prepares to read the regions of a list. On failure the memory is returned with the error.
    pub fn prepare_read(
        &self,
        list: TransferList<Slice>,
    ) -> Pending<Prepared<Slice>, TransferError<Vec<Slice>>> {
        self.prepare(Direction::Read, list, None)
    }

    fn prepare<M: Preparable>(
        &self,
        direction: Direction,
        list: TransferList<M>,
        counter: Option<&RemoteCounter>,
    ) -> Pending<Prepared<M>, TransferError<Vec<M>>> {
        if counter.is_some_and(|counter| counter.peer.0 != self.key()) {
            let error = TransferError::refused(Error::not_granted("counter"), list.into_memory());
            return Pending::finished(self.running(), Err(error));
        }
        // Each region keeps its own memory, which the program can name by the region.
        let Planned { segments, regions, buffers, .. } = match list.plan(self, direction, Join::Nothing) {
            Ok(planned) => planned,
            Err((error, memory)) => {
                return Pending::finished(self.running(), Err(TransferError::refused(error, memory)));
            }
        };
        let (views, buffers): (Vec<_>, Vec<_>) = buffers.into_iter().map(M::view).unzip();
        let Ok(held) = HeldList::new(buffers) else {
            let error = TransferError::refused(Error::limit("bytes or buffers in one list"), back(views));
            return Pending::finished(self.running(), Err(error));
        };
        let prepared = Prepared {
            peer: self.clone(),
            id: next_id(),
            direction,
            counter: counter.map(|counter| counter.token.id()),
            segments: segments.into(),
            regions: Regions::List(regions.into()),
            held: Arc::new(held),
            views,
            starts: Arc::default(),
            pool: Arc::default(),
        };
        let (key, regions, counter) = (self.key(), prepared.regions.clone(), prepared.counter);
        let held = Arc::clone(&prepared.held);
        let make = move |driver: &mut Driver, _: Time| -> Result<(), TransferFault> {
            // Before the memory is registered, which may take long.
            driver.machine.may_transfer(key, direction, &regions, counter)?;
            let held = Held::List(held);
            register(driver, key, &regions, &held).map_err(|error| TransferFault::Rail(Box::new(error)))
        };
        // `finish` may be called again after a timeout, so it takes the value out only when it
        // succeeds or the preparation has failed.
        let (cell, prepared) = (Arc::clone(self.cell()), std::sync::Mutex::new(Some(prepared)));
        let finish = move |made: Result<Result<(), TransferFault>, Error>| {
            let mut prepared = prepared.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            match made {
                Ok(Ok(())) => Ok(prepared.take().expect("the result is taken once")),
                Ok(Err(fault)) => {
                    let memory = prepared.take().map(Prepared::into_memory).unwrap_or_default();
                    Err(TransferError::refused(error_of(&cell, fault), memory))
                }
                // The prepared transfer stays in its place: after a timeout the caller may wait
                // again.
                Err(error) => Err(TransferError::without_buffer(error)),
            }
        };
        let nothing_to_undo = |_: &mut Driver, _, made: Result<(), TransferFault>| drop(made);
        let operation = "prepare a transfer";
        let making = Making::new(self.running(), operation, make, finish, nothing_to_undo);
        Pending::new(self.running(), making)
    }
}

/// Returns an id that no other prepared transfer of this process has.
fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Returns memory that no transfer has.
fn back<M: Preparable>(views: Vec<M::View>) -> Vec<M> {
    views.into_iter().filter_map(M::back).collect()
}

impl Prepared<Shared> {
    /// Returns the memory of a region, by its place in the list.
    ///
    /// # Panics
    ///
    /// Panics if there is no such region.
    pub fn memory(&self, region: usize) -> &Shared {
        &self.views[region]
    }
}

impl Prepared<Slice> {
    /// Returns the memory of a region, by its place in the list. Of bytes that a start writes at the
    /// same time, each may be old or new.
    ///
    /// # Panics
    ///
    /// Panics if there is no such region.
    pub fn memory(&self, region: usize) -> &Exposed {
        &self.views[region]
    }
}

impl<M: Preparable> Prepared<M> {
    /// Returns the number of segments of the list.
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Returns the number of regions of the list.
    pub fn regions(&self) -> usize {
        self.views.len()
    }

    /// Returns all segments. An error if some overlap at the destination.
    pub fn all(&self) -> Result<Subset, Error> {
        self.subset_of(Arc::clone(&self.segments))
    }

    /// Returns these segments, by their numbers: the segments of all regions are counted in the order of
    /// the list. An error if there is no such segment, or if some overlap at the destination, as a
    /// segment does that is named twice.
    pub fn subset(&self, segments: &[u32]) -> Result<Subset, Error> {
        let segment = |number: &u32| {
            let segment = self.segments.get(*number as usize).copied();
            segment.ok_or_else(|| Error::no_such_segment(*number, self.segments.len()))
        };
        self.subset_of(segments.iter().map(segment).collect::<Result<_, _>>()?)
    }

    fn subset_of(&self, segments: Arc<[Segment]>) -> Result<Subset, Error> {
        if segments.is_empty() {
            return Err(Error::no_regions());
        }
        // The whole list may overlap. What one start moves may not.
        let segments = Segments::of_checked(segments, own_side(self.direction)).map_err(Error::of_list)?;
        Ok(Subset { of: self.id, segments })
    }

    /// Starts the transfer of a subset, which is not planned again. The memory for the start itself is that
    /// of an earlier one, if one has ended, so that nothing is allocated. A subset of another prepared
    /// transfer is refused.
    ///
    /// Starts that overlap at the destination and run at the same time leave the bytes of either.
    pub fn start(&self, subset: &Subset) -> Transfer<()> {
        // Its segments were checked against other memory.
        if subset.of != self.id {
            let refused = Err(TransferError::without_buffer(Error::other_subset()));
            return Pending::finished(self.peer.running(), refused);
        }
        let (op, peer, direction) = (next_op(), self.peer.key(), self.direction);
        let plan = Plan::of_segments(subset.segments.clone());
        // Clones of an `Arc`: a start must cost no more with many regions.
        let (regions, counter) = (self.regions.clone(), self.counter);
        let (priority, deadline) = self.peer.terms_now();
        let new = NewTransfer { op, peer, direction, plan, regions, counter, priority, deadline };
        let (start, sender) = self.pool.start(peer, self.peer.cell(), op);
        // Before the command is submitted: the start may end within that call.
        self.starts.begin();
        let command = Command::Start(new, Arc::clone(&self.held), sender, Arc::clone(&self.starts));
        self.peer.running().submit(command);
        Pending::boxed(self.peer.running(), start)
    }

    /// Returns the memory, in the order of the regions, when all starts have ended. [Abort](Pending::abort)
    /// starts that are not wanted any more.
    ///
    /// An error of [`ErrorKind::Rail`](crate::ErrorKind::Rail) if a card still has a part of it, as after the
    /// loss of the peer. The engine frees all of it when the card is done.
    ///
    /// If it is dropped before, the engine frees the memory when they have ended.
    pub fn finish(self) -> Pending<Vec<M>> {
        let progress = Arc::clone(self.peer.running());
        let watcher = self.starts.watcher();
        Pending::new(&progress, Finishing { prepared: Some(self), watcher })
    }

    fn into_memory(self) -> Vec<M> {
        let Self { held, views, .. } = self;
        // First: its buffers are parts of the memory, which is whole again when none is left.
        drop(held);
        back(views)
    }
}

impl<M: Preparable> fmt::Debug for Prepared<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Prepared");
        shown.field("regions", &self.regions()).field("segments", &self.segments()).finish_non_exhaustive()
    }
}

struct Finishing<M: Preparable> {
    /// `None` when the memory was taken.
    prepared: Option<Prepared<M>>,
    watcher: Watcher,
}

impl<M: Preparable> Answer<Result<Vec<M>, Error>> for Finishing<M> {
    fn is_ready(&self) -> bool {
        // A result that was taken counts as ready: a wait for several must not hang on it.
        self.prepared.as_ref().is_none_or(|prepared| prepared.starts.are_over())
    }

    fn listen(&self, listener: &Listener) {
        self.watcher.listen(listener);
    }

    fn take(&mut self) -> Option<Result<Vec<M>, Error>> {
        if !self.is_ready() {
            return None;
        }
        let prepared = self.prepared.take().expect("the result was taken before");
        let regions = prepared.regions();
        let memory = prepared.into_memory();
        // Memory of which a card has a part is left out by `back`.
        Some(if memory.len() == regions { Ok(memory) } else { Err(Error::memory_kept()) })
    }

    fn timed_out(&mut self, timeout: &Timeout) -> Result<Vec<M>, Error> {
        Err(Error::timed_out("finish a prepared transfer", timeout))
    }

    fn ended(&mut self) -> Result<Vec<M>, Error> {
        Err(Error::ended())
    }
}
