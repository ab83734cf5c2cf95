//! The open devices that ids share.
//!
//! Invariant: each device is open at most once per `Contexts`, so one protection domain serves all
//! its connections.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use farreach_verbs_sys as sys;

use super::error::Error;
use crate::context::Context;
use crate::device::DeviceList;

/// The devices that were opened for the ids of one channel, or for the requests of one listener.
/// Each is opened once, so that one protection domain serves all connections over a device.
///
/// librdmacm has contexts of its own, which it closes at any time. They are never returned.
#[derive(Default)]
pub(super) struct Contexts(Mutex<Vec<Context>>);

impl Contexts {
    /// Opens the device, or returns the open one. `subject` is the id that needs it, for the error.
    ///
    /// Both libraries use the same pointer for a device: libibverbs lists each device of a process
    /// once.
    pub(super) fn open(
        &self,
        device: *mut sys::ibv_device,
        subject: impl fmt::Display,
    ) -> Result<Context, Error> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(context) = open.iter().find(|context| context.device().as_ptr() == device) {
            return Ok(context.clone());
        }
        let devices = DeviceList::get()?;
        let Some(device) = devices.iter().find(|listed| listed.as_ptr() == device) else {
            return Err(Error::DeviceRemoved { subject: subject.to_string() });
        };
        let context = device.open()?;
        open.push(context.clone());
        Ok(context)
    }

    /// Removes a device that was unplugged.
    pub(super) fn forget(&self, device: *mut sys::ibv_device) {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|context| context.device().as_ptr() != device);
    }
}
