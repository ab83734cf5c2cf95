//! The C function that a thread is in, so that another thread can tell which call does not return.
//!
//! A thread that wants to be observed [attaches](InCall::attach) an [`InCall`]. From then on each
//! function of a [`library!`](crate::library) notes its name there before the call, and removes it
//! afterwards. That costs a few instructions. Threads without one pay for the check only.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

thread_local! {
    /// Has no destructor, so an access is one load.
    static ATTACHED: Cell<Option<&'static Slot>> = const { Cell::new(None) };
}

/// Slots that no [`InCall`] has. A slot is never freed, so a thread may keep a reference to it.
static FREE: Mutex<Vec<&'static Slot>> = Mutex::new(Vec::new());

/// The name of a function, behind a pointer that fits into an atomic. Null outside of calls.
#[derive(Debug, Default)]
struct Slot(AtomicPtr<&'static str>);

/// The place where threads note the C function that they are in. One thread is attached at a time.
///
/// ```
/// use farreach_dylib::{InCall, in_call};
///
/// let observed = InCall::new();
/// let attached = observed.attach();
/// in_call(&"fi_cq_read", || assert_eq!(observed.name(), Some("fi_cq_read")));
/// assert_eq!(observed.name(), None);
/// # drop(attached);
/// ```
#[derive(Debug)]
pub struct InCall(&'static Slot);

impl InCall {
    /// Creates one. The slot behind it is reused when it is dropped.
    pub fn new() -> Self {
        let free = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Self(free.unwrap_or_else(|| Box::leak(Box::default())))
    }

    /// Lets this thread note its calls here, until the result is dropped.
    pub fn attach(&self) -> Attached {
        Attached { before: ATTACHED.replace(Some(self.0)) }
    }

    /// Returns the function that the attached thread is in.
    pub fn name(&self) -> Option<&'static str> {
        let name = self.0.0.load(Ordering::Relaxed);
        // SAFETY: only `in_call` stores a pointer that is not null, and it has it from a reference
        // to a constant.
        unsafe { name.as_ref() }.copied()
    }
}

impl Default for InCall {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for InCall {
    fn drop(&mut self) {
        self.0.0.store(ptr::null_mut(), Ordering::Relaxed);
        FREE.lock().unwrap_or_else(PoisonError::into_inner).push(self.0);
    }
}

/// A thread that notes its calls in an [`InCall`]. Dropping it on the same thread restores what the
/// thread had before.
#[derive(Debug)]
#[must_use = "the thread is attached as long as this exists"]
pub struct Attached {
    before: Option<&'static Slot>,
}

impl Drop for Attached {
    fn drop(&mut self) {
        ATTACHED.set(self.before);
    }
}

/// Calls a C function and notes its name meanwhile, if this thread is attached.
#[inline(always)]
pub fn in_call<R>(name: &'static &'static str, call: impl FnOnce() -> R) -> R {
    let Some(slot) = ATTACHED.get() else { return call() };
    slot.0.store(ptr::from_ref(name).cast_mut(), Ordering::Relaxed);
    let result = call();
    slot.0.store(ptr::null_mut(), Ordering::Relaxed);
    result
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn another_thread_reads_the_name_while_the_call_lasts() {
        let observed = InCall::new();
        let ((inside, is_inside), (leave, may_leave)) = (channel(), channel());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _attached = observed.attach();
                in_call(&"ibv_poll_cq", move || {
                    inside.send(()).unwrap();
                    may_leave.recv().unwrap();
                });
            });
            is_inside.recv().unwrap();
            assert_eq!(observed.name(), Some("ibv_poll_cq"));
            leave.send(()).unwrap();
        });
        assert_eq!(observed.name(), None);
    }

    #[test]
    fn a_thread_that_is_not_attached_notes_nothing() {
        let observed = InCall::new();
        drop(observed.attach());
        in_call(&"fi_close", || assert_eq!(observed.name(), None));
    }

    #[test]
    fn a_nested_attachment_is_undone() {
        let (outer, inner) = (InCall::new(), InCall::new());
        let _attached = outer.attach();
        drop(inner.attach());
        in_call(&"fi_close", || assert_eq!((outer.name(), inner.name()), (Some("fi_close"), None)));
    }
}
