//! Endpoints over shared memory that peers of the same process may still look at.
//!
//! Between two endpoints of one process the library follows plain pointers into the other one's queues. When it takes a request from its
//! queue whose sender was closed meanwhile, it answers into memory that is gone, and the process dies. (The memory of another process
//! stays mapped.) So an endpoint that had a link within its process is not closed with its rail: it rests until no other rail over shared
//! memory is left.

use std::sync::{Mutex, MutexGuard, PoisonError};

use farreach_fabric::Endpoint;

static RESTS: Mutex<Rests> = Mutex::new(Rests { rails: 0, endpoints: Vec::new() });

struct Rests {
    /// How many rails over shared memory there are.
    rails: usize,
    endpoints: Vec<Endpoint>,
}

fn rests() -> MutexGuard<'static, Rests> {
    RESTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a rail over shared memory has while it is there.
#[derive(Debug)]
pub(super) struct Presence(());

impl Presence {
    pub(super) fn new() -> Self {
        rests().rails += 1;
        Self(())
    }

    /// Lets the endpoint of a rail that ends rest.
    pub(super) fn rest(&self, endpoint: Endpoint) {
        rests().endpoints.push(endpoint);
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let mut rests = rests();
        rests.rails -= 1;
        let endpoints = if rests.rails == 0 { std::mem::take(&mut rests.endpoints) } else { Vec::new() };
        drop(rests);
        drop(endpoints);
    }
}
