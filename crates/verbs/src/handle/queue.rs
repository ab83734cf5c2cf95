//! Functions on queues, and on the channels of their events.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;

use farreach_verbs_sys as sys;

use super::{Answer, Handle, Owned};
use crate::ah::{Gid, Lid};

impl Handle<sys::ibv_comp_channel> {
    /// Returns the descriptor that is readable while an event is pending.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: `Handle`: the channel lives. The field does not change, and the descriptor is
        // closed with the channel.
        unsafe { BorrowedFd::borrow_raw((*self.as_ptr()).fd) }
    }
}

impl Handle<sys::ibv_cq> {
    /// Returns the number of completions that the queue holds.
    pub(crate) fn cqe(&self) -> c_int {
        // SAFETY: `Handle`: the queue lives. Resizing writes the field, which is one word, and is
        // read as one.
        unsafe { (&raw const (*self.as_ptr()).cqe).read_volatile() }
    }

    pub(crate) fn req_notify(&self, solicited_only: bool) -> c_int {
        // SAFETY: `Handle`: the queue lives, and its provider's table has this function.
        unsafe { sys::ibv_req_notify_cq(self.as_ptr(), solicited_only.into()) }
    }
}

impl<P> Owned<sys::ibv_cq, P> {
    pub(crate) fn resize(&self, cqe: c_int) -> Answer {
        // SAFETY: `Owned`: the queue lives. Its provider locks it against concurrent polling.
        unsafe { self.lib().ibv_resize_cq(self.as_ptr(), cqe) }
    }
}

impl<P> Owned<sys::ibv_srq, P> {
    pub(crate) fn number(&self, number: &mut u32) -> c_int {
        // SAFETY: `Owned`: the queue lives.
        unsafe { sys::ibv_get_srq_num(self.as_ptr(), number) }
    }

    pub(crate) fn query(&self, attributes: &mut sys::ibv_srq_attr) -> Answer {
        // SAFETY: `Owned`: the queue lives.
        unsafe { self.lib().ibv_query_srq(self.as_ptr(), attributes) }
    }

    pub(crate) fn modify(&self, attributes: &mut sys::ibv_srq_attr, mask: u32) -> Answer {
        // SAFETY: `Owned`: the queue lives. The mask determines the attributes that are read.
        unsafe { self.lib().ibv_modify_srq(self.as_ptr(), attributes, mask as c_int) }
    }
}

impl<P> Owned<sys::ibv_qp, P> {
    pub(crate) fn attach_mcast(&self, gid: Gid, lid: Lid) -> Answer {
        let gid = sys::ibv_gid { raw: gid.to_bytes() };
        // SAFETY: `Owned`: the queue pair lives.
        unsafe { self.lib().ibv_attach_mcast(self.as_ptr(), &raw const gid, lid.0) }
    }

    pub(crate) fn detach_mcast(&self, gid: Gid, lid: Lid) -> Answer {
        let gid = sys::ibv_gid { raw: gid.to_bytes() };
        // SAFETY: `Owned`: the queue pair lives.
        unsafe { self.lib().ibv_detach_mcast(self.as_ptr(), &raw const gid, lid.0) }
    }
}
