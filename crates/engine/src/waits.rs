//! Waits for several operations at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Error;
use crate::engine::Engine;
use crate::pending::Pending;
use crate::progress::{Group, Listener};
use crate::running::Running;
use crate::time;

use sealed::{Place, Wait};

/// An operation that [`Engine::wait_any`] and [`Engine::wait_all`] can wait for: a [`Pending`] of any
/// result. Other crates cannot implement it.
pub trait Waitable: Wait {}

impl<T, E> Waitable for Pending<T, E> {}

mod sealed {
    use super::{Arc, Listener, Pending, Running};

    /// A place among the operations of a wait.
    #[derive(Debug)]
    pub struct Place {
        pub(super) listener: Listener,
        /// The engine that is driven meanwhile.
        pub(super) driven: Arc<Running>,
    }

    pub trait Wait {
        /// Returns whether the result is available.
        fn is_ready(&mut self) -> bool;
        /// Registers a listener, and begins a wait. Returns whether the result is available.
        fn listen(&mut self, place: &Place) -> bool;
        /// Ends a wait that has begun.
        fn end(&mut self);
    }

    impl<T, E> Wait for Pending<T, E> {
        fn is_ready(&mut self) -> bool {
            Pending::is_ready(self)
        }

        fn listen(&mut self, place: &Place) -> bool {
            let is_ready = Pending::listen(self, &place.listener);
            if !is_ready && !Arc::ptr_eq(self.running(), &place.driven) {
                // A thread that waits for this engine finds out if the other one has ended.
                let _ = self.running().call_worker();
            }
            is_ready
        }

        fn end(&mut self) {
            self.end_wait();
        }
    }
}

impl Engine {
    /// Waits until the result of one of the operations is available, for at most `timeout`. Returns its
    /// index: of those that are available at first, the first one.
    ///
    /// The result stays where it is. `wait(Duration::ZERO)` takes it, and so does a task. It is not
    /// reserved: a message, an event or a peer that another thread takes first is gone, and the wait for
    /// it times out.
    ///
    /// The thread drives this engine while it waits, as [`Pending::wait`] does. Operations of other
    /// engines are driven by their own workers.
    ///
    /// A call takes a constant time for each of the operations, when it begins and when it ends. A
    /// wakeup costs a constant time for each operation that has changed. A program that takes `n`
    /// results one by one spends a time that grows with the square of `n`; for many operations, tasks,
    /// [`wait_all`](Self::wait_all) or [`recv_any`](Self::recv_any) are faster.
    ///
    /// The error has the kind [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut), or
    /// [`ErrorKind::Ended`](crate::ErrorKind::Ended) if the engine has ended, or
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) if there is no operation.
    ///
    /// ```
    /// use std::time::Duration;
    /// use farreach::{Engine, Error};
    ///
    /// const SOON: Duration = Duration::from_secs(5);
    ///
    /// # fn main() -> Result<(), Error> {
    /// let server = Engine::new()?;
    /// let address = server.listen("127.0.0.1:0")?;
    /// let client = Engine::new()?;
    /// let to_server = client.connect(address)?.wait(SOON)?;
    /// to_server.send("hello").wait(SOON)?;
    ///
    /// let (mut newcomers, mut requests) = (server.accept(), server.recv_any());
    /// let mut peers = Vec::new();
    /// for _ in 0..2 {
    ///     match server.wait_any(&mut [&mut newcomers, &mut requests], SOON)? {
    ///         0 => peers.push(newcomers.wait(Duration::ZERO)?),
    ///         _ => {
    ///             let (peer, request) = requests.wait(Duration::ZERO)?;
    ///             println!("{}: {} bytes", peer.name(), request.len());
    ///         }
    ///     }
    /// }
    /// assert_eq!(peers.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_any(&self, waits: &mut [&mut dyn Waitable], timeout: Duration) -> Result<usize, Error> {
        if waits.is_empty() {
            return Err(Error::no_waits());
        }
        // A result that is there needs no listener, and no peer is pinged for it.
        if let Some(first) = waits.iter_mut().position(|wait| wait.is_ready()) {
            return Ok(first);
        }
        let mut first = None;
        self.wait_until(waits, timeout, "wait for one of several results", |index| {
            first = Some(index);
            true
        })?;
        Ok(first.expect("the wait has ended with one"))
    }

    /// Waits until the results of all operations are available, for at most `timeout`. The results stay
    /// where they are, as with [`wait_any`](Self::wait_any). An operation that has failed has a result
    /// too.
    ///
    /// The whole wait takes a constant time for each of the operations and for each change of one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use farreach::{Engine, Error, Waitable};
    ///
    /// const SOON: Duration = Duration::from_secs(5);
    ///
    /// # fn main() -> Result<(), Error> {
    /// let engine = Engine::new()?;
    /// let mut small = engine.allocate(4096);
    /// let mut large = engine.allocate(1 << 20);
    /// engine.wait_all(&mut [&mut small, &mut large], SOON)?;
    /// assert_eq!(small.wait(Duration::ZERO)?.len(), 4096);
    ///
    /// let mut more: Vec<_> = (1..=8).map(|pages| engine.allocate(pages * 4096)).collect();
    /// let mut waits: Vec<&mut dyn Waitable> = more.iter_mut().map(|it| it as _).collect();
    /// engine.wait_all(&mut waits, SOON)?;
    /// # drop(large.wait(Duration::ZERO)?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_all(&self, waits: &mut [&mut dyn Waitable], timeout: Duration) -> Result<(), Error> {
        let (mut is_done, mut left) = (vec![false; waits.len()], waits.len());
        let mut done = |index: usize| {
            // An operation may tell of several changes, and counts once.
            left -= usize::from(!std::mem::replace(&mut is_done[index], true));
            left == 0
        };
        if waits.is_empty() {
            return Ok(());
        }
        self.wait_until(waits, timeout, "wait for several results", &mut done)
    }

    /// Waits until `is_enough` returns `true`. It is called with the index of each operation whose
    /// result is available.
    fn wait_until(
        &self,
        waits: &mut [&mut dyn Waitable],
        timeout: Duration,
        operation: &'static str,
        mut is_enough: impl FnMut(usize) -> bool,
    ) -> Result<(), Error> {
        let waited = self.wait_in_group(waits, timeout, operation, &mut is_enough);
        // None of them waits any more, until it is waited for again.
        waits.iter_mut().for_each(|wait| wait.end());
        waited
    }

    fn wait_in_group(
        &self,
        waits: &mut [&mut dyn Waitable],
        timeout: Duration,
        operation: &'static str,
        is_enough: &mut dyn FnMut(usize) -> bool,
    ) -> Result<(), Error> {
        let (group, deadline, count) = (Arc::new(Group::new()), time::after(timeout), waits.len());
        let mut look_at = |index: usize| {
            let listener = Listener::Member(Arc::clone(&group), index);
            let place = Place { listener, driven: Arc::clone(self.running()) };
            // It listens before it is looked at, so that no change is missed.
            waits[index].listen(&place) && is_enough(index)
        };
        // At first, all of them are looked at, and later those that have changed.
        let (mut told, mut has_waited): (Vec<usize>, _) = ((0..count).collect(), false);
        loop {
            for index in told.drain(..) {
                if look_at(index) {
                    return Ok(());
                }
            }
            // The group may be told of changes without a pause that make no result available. They must
            // not extend the wait beyond its deadline. The first wait makes a step in any case.
            let is_late = std::mem::replace(&mut has_waited, true) && Instant::now() >= deadline;
            if is_late || !self.running().wait(&*group, deadline).map_err(|_| Error::ended())? {
                return Err(Error::timed_out(operation, &self.running().timeout(timeout)));
            }
            group.take(&mut told);
        }
    }
}
