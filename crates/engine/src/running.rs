//! Keeps an engine running.

use std::ops::Deref;
use std::sync::Arc;

use crate::driver::Driver;
use crate::progress::LeaderFollowers;

/// An engine that runs as long as a handle of it exists: the user's engine, its peers, grants,
/// counters and pending operations. Dropping the last handle stops the worker and then drops the
/// rest.
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
