//! What keeps an engine going.

use std::ops::Deref;
use std::sync::Arc;

use crate::driver::Driver;
use crate::progress::LeaderFollowers;

/// An engine that is driven as long as somebody has a handle on it: the user's engine, his peers, grants and counters, and whatever he waits
/// for. With the last of them its worker ends, and then all the rest.
pub(crate) struct Running(Arc<LeaderFollowers<Driver>>);

impl Running {
    pub(crate) fn new(progress: Arc<LeaderFollowers<Driver>>) -> Arc<Self> {
        Arc::new(Self(progress))
    }
}

impl Deref for Running {
    type Target = LeaderFollowers<Driver>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.stop();
    }
}
