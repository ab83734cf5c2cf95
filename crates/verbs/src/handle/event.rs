//! Events of a device.

use farreach_verbs_sys as sys;
use farreach_verbs_sys::SymbolMissing;

use super::Owned;
use crate::device::Device;
use crate::event::{AsyncEvent, EventType};

impl Owned<sys::ibv_context, Device> {
    /// Takes an event, copies it and acknowledges it. Returns `None` with `errno` set if there is
    /// none or the call failed.
    pub(crate) fn take_async_event(&self) -> Result<Option<AsyncEvent>, SymbolMissing> {
        let mut event = sys::ibv_async_event::default();
        // SAFETY: `Owned`: the context is open. The event is copied by `read` after it was taken,
        // then acknowledged once, and not used afterwards.
        unsafe {
            if self.lib().ibv_get_async_event(self.as_ptr(), &raw mut event)? != 0 {
                return Ok(None);
            }
            let found = read(&event);
            self.lib().ibv_ack_async_event(&raw mut event)?;
            Ok(Some(found))
        }
    }
}

/// Copies an event.
///
/// # Safety
///
/// The event was taken and not acknowledged. Destroying the object that it points to waits for
/// that, so the object lives.
unsafe fn read(event: &sys::ibv_async_event) -> AsyncEvent {
    let kind = EventType::from_raw(event.event_type);
    // SAFETY: the type determines the union field that the library has filled. The caller
    // guarantees that the object it points to lives, and the number of the object is constant.
    unsafe {
        match event.event_type {
            sys::IBV_EVENT_PORT_ACTIVE
            | sys::IBV_EVENT_PORT_ERR
            | sys::IBV_EVENT_LID_CHANGE
            | sys::IBV_EVENT_PKEY_CHANGE
            | sys::IBV_EVENT_SM_CHANGE
            | sys::IBV_EVENT_CLIENT_REREGISTER
            | sys::IBV_EVENT_GID_CHANGE => {
                // Port numbers fit one byte.
                AsyncEvent::Port { port: event.element.port_num as u8, kind }
            }
            sys::IBV_EVENT_QP_FATAL
            | sys::IBV_EVENT_QP_REQ_ERR
            | sys::IBV_EVENT_QP_ACCESS_ERR
            | sys::IBV_EVENT_COMM_EST
            | sys::IBV_EVENT_SQ_DRAINED
            | sys::IBV_EVENT_PATH_MIG
            | sys::IBV_EVENT_PATH_MIG_ERR
            | sys::IBV_EVENT_QP_LAST_WQE_REACHED => {
                AsyncEvent::QueuePair { qp_num: (*event.element.qp).qp_num, kind }
            }
            sys::IBV_EVENT_CQ_ERR => AsyncEvent::CompletionQueue { handle: (*event.element.cq).handle, kind },
            sys::IBV_EVENT_SRQ_ERR | sys::IBV_EVENT_SRQ_LIMIT_REACHED => {
                AsyncEvent::SharedReceiveQueue { handle: (*event.element.srq).handle, kind }
            }
            _ => AsyncEvent::Device { kind },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_names_its_object() {
        // SAFETY: the test owns the objects that its events point to. For an unknown type, no
        // pointer is read.
        let read = |event: &_| unsafe { read(event) };
        let mut qp = sys::ibv_qp { qp_num: 17, ..Default::default() };
        let mut srq = sys::ibv_srq { handle: 3, ..Default::default() };
        let mut event = sys::ibv_async_event { event_type: sys::IBV_EVENT_QP_FATAL, ..Default::default() };
        event.element.qp = &raw mut qp;
        assert_eq!(read(&event), AsyncEvent::QueuePair { qp_num: 17, kind: EventType::QpFatal });

        event.event_type = sys::IBV_EVENT_SRQ_LIMIT_REACHED;
        event.element.srq = &raw mut srq;
        assert_eq!(read(&event).to_string(), "shared receive queue 3: limit reached");

        event.event_type = 99;
        assert_eq!(read(&event), AsyncEvent::Device { kind: EventType::Unknown(99) });
    }
}
