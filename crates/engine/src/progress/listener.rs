//! Notification of a thread or a task that its wait may be over, and of a thread that waits for several
//! results: it sleeps once, and learns which of them have changed without a look at the others.

use std::sync::Arc;
use std::task::Waker;

use super::Awaited;
use super::sync::{AtomicBool, Mutex, Ordering, Parker, lock};

/// A waiting thread or task.
#[derive(Debug, Clone)]
pub(crate) enum Listener {
    Thread(Arc<Parker>),
    Task(Waker),
    /// A wait for several results, one of which has this number.
    Member(Arc<Group>, usize),
}

impl Listener {
    /// Returns whether notifying either of them has the same effect.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Thread(parker), Self::Thread(other)) => Arc::ptr_eq(parker, other),
            (Self::Task(waker), Self::Task(other)) => waker.will_wake(other),
            (Self::Member(group, member), Self::Member(other, of_other)) => {
                Arc::ptr_eq(group, other) && member == of_other
            }
            _ => false,
        }
    }

    /// Notifies the listener. A thread is unparked at once. A waker is user code and may do
    /// anything, so it is pushed to `wakers` and runs after this thread has stepped down.
    pub(crate) fn tell(self, wakers: &mut Vec<Waker>) {
        match self {
            Self::Thread(parker) => parker.unpark(),
            Self::Task(waker) => wakers.push(waker),
            Self::Member(group, member) => group.tell(member, wakers),
        }
    }
}

/// What its members have told. Each [`Listener::Member`] names it.
#[derive(Debug)]
pub(crate) struct Group {
    /// Whether a member has told something, so that a leader that checks after each step takes no lock.
    has_told: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The members that have told something, each at most once for each time that it was registered.
    told: Vec<usize>,
    listener: Option<Listener>,
}

impl Group {
    pub(crate) fn new() -> Self {
        let state = State { told: Vec::new(), listener: None };
        Self { has_told: AtomicBool::new(false), state: Mutex::new(state) }
    }

    /// Notes that the wait for a member may be over. See [`Listener::tell`].
    pub(super) fn tell(&self, member: usize, wakers: &mut Vec<Waker>) {
        let mut state = lock(&self.state);
        state.told.push(member);
        // Under the lock, as in `take`: the flag is never cleared while `told` has a member.
        self.has_told.store(true, Ordering::Release);
        let listener = state.listener.take();
        drop(state);
        if let Some(listener) = listener {
            listener.tell(wakers);
        }
    }

    /// Moves the members that have told something to `told`, which is empty.
    pub(crate) fn take(&self, told: &mut Vec<usize>) {
        let mut state = lock(&self.state);
        // The two vectors change places for as long as the wait lasts, so neither allocates each
        // time.
        std::mem::swap(&mut state.told, told);
        self.has_told.store(false, Ordering::Release);
    }
}

impl Awaited for Group {
    fn is_ready(&self) -> bool {
        self.has_told.load(Ordering::Acquire)
    }

    fn listen(&self, listener: &Listener) {
        let mut state = lock(&self.state);
        let before = match &state.listener {
            Some(known) if known.is_same(listener) => None,
            _ => state.listener.replace(listener.clone()),
        };
        // Dropping a waker may run any code, so no lock is held.
        drop(state);
        drop(before);
    }
}

/// Runs wakers. The panic hook reports a waker's panic, which has no other effect here.
pub(crate) fn wake_all(wakers: Vec<Waker>) {
    for waker in wakers {
        // A model has to see the panic.
        if cfg!(all(loom, test)) {
            waker.wake();
        } else {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waker.wake()));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::progress::oneshot;

    #[test]
    fn it_names_the_members_that_have_told_something() {
        let group = Arc::new(Group::new());
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..4).map(|_| oneshot::channel::<()>()).unzip();
        for (index, receiver) in receivers.iter().enumerate() {
            receiver.listen(&Listener::Member(Arc::clone(&group), index));
        }
        let parker = Arc::new(Parker::default());
        group.listen(&Listener::Thread(Arc::clone(&parker)));
        assert!(!group.is_ready());
        let mut wakers = Vec::new();
        let mut senders = senders.into_iter().enumerate();
        for wanted in [1, 3] {
            let (_, sender) = senders.find(|(index, _)| *index == wanted).unwrap();
            sender.send((), &mut wakers);
        }
        assert!(wakers.is_empty() && group.is_ready() && parker.park(Some(std::time::Instant::now())));
        let mut told = Vec::new();
        group.take(&mut told);
        // The others were closed, because the search has dropped them.
        assert_eq!(told, [0, 1, 2, 3]);
        assert!(!group.is_ready());
    }
}
