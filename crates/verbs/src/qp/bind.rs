//! Binds windows by the safe API.

use std::ffi::c_int;
use std::ptr::null_mut;

use farreach_verbs_sys as sys;

use super::check::check_flags;
use super::list::refusal;
use super::queue::{InFlight, Kept, WorkRequestId};
use super::ring::Poster;
use super::start::send_wr;
use super::{QueuePair, QueuePairType};
use crate::cq::WorkKind;
use crate::mr::AccessFlags;
use crate::mw::{BindingUnderWay, Bound, State, WindowType};
use crate::region::CHANGES;
use crate::wr::{Binding, Buffers, PostError, Refusal, RemoteRange, SendRequest};

impl QueuePair {
    #[expect(clippy::result_large_err, reason = "as for post_send")]
    #[cold]
    pub(super) fn post_bind(&self, request: SendRequest) -> Result<(), PostError<SendRequest>> {
        let mut poster = self.flight.send().ring.poster();
        match self.bind(&mut poster, &request) {
            Ok(()) => Ok(()),
            Err(reason) => Err(PostError { reason, request }),
        }
    }

    /// Binds a window: type 2 by a work request, type 1 by a function of its own. Both complete
    /// like a send.
    pub(super) fn bind(
        &self,
        poster: &mut Poster<'_, InFlight>,
        request: &SendRequest,
    ) -> Result<(), Refusal> {
        let Some(binding) = &request.extra.binding else {
            return Err(Refusal::Unsupported("a binding without a window"));
        };
        check_flags(request.operation, request.flags)?;
        let Binding { window, region, offset, len, access } = binding;
        let mr = region.mr();
        if [window.pd().id(), mr.pd().id()] != [self.domain; 2] {
            return Err(Refusal::OtherDomain);
        }
        let whole = region.remote();
        let Some(part) = whole.get(*offset as u64, *len as u64).filter(|part| part.len() > 0) else {
            return Err(Refusal::OutOfBounds { len: *len, remote_len: whole.len() });
        };
        if self.kind == QueuePairType::Ud {
            return Err(Refusal::Unsupported("windows"));
        }
        // A device requires it, too. Without it the memory is read-only, and references to it exist.
        if access.intersects(CHANGES) && !mr.access().contains(AccessFlags::LOCAL_WRITE) {
            return Err(Refusal::Unsupported("a window that writes to read-only memory"));
        }
        self.check_ready(request.operation, request.flags)?;
        let Some(room) = poster.room() else { return Err(self.full()) };
        let remote_rights = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
        let bind_info = sys::ibv_mw_bind_info {
            mr: mr.as_raw(),
            addr: part.address(),
            length: part.len(),
            mw_access_flags: (*access & remote_rights).bits(),
        };
        let id = self.next_id(&room);
        if window.kind() == WindowType::Two {
            self.windows.note(window);
        }
        let mut state = window.lock();
        let Some(under_way) = BindingUnderWay::begin(window, &mut state, id.queue) else {
            return Err(Refusal::WindowBusy);
        };
        let (kind, kept) = (WorkKind::BindWindow, Kept::Window(under_way));
        room.push(InFlight { tag: request.tag, kind, buffers: Buffers::None, kept });
        // SAFETY: the window holds every region that it is or may be bound to, until it is revoked,
        // and no reference to the bytes of that region exists: they are `Exposed`. If they are
        // read-only, the check above has refused a window that could change them.
        let started = unsafe { self.start_bind(request, id, window.kind(), &mut state, bind_info) };
        if let Err((is_refused, operation, errno)) = started {
            if !is_refused {
                state.in_doubt.push(region.clone());
            }
            // Dropping the work request in flight locks the state.
            drop(state);
            if is_refused {
                // SAFETY: the library names the work request as the one that it refused (`bad`), or
                // was not called, so no completion of it will come.
                drop(unsafe { poster.take_back() });
            }
            return Err(refusal(is_refused, self.failed(operation, errno)));
        }
        let remote = RemoteRange::new(part.address(), part.len(), state.key);
        let owner = (window.kind() == WindowType::Two).then_some(id.queue);
        state.bound = Some(Bound { region: region.clone(), remote, owner });
        Ok(())
    }

    /// Posts the binding. An error contains whether the device is known not to have the work
    /// request, the name of the function, and its errno.
    ///
    /// # Safety
    ///
    /// The region that `bind_info` names lives, and peers may access it, until the window is bound
    /// elsewhere or revoked.
    unsafe fn start_bind(
        &self,
        request: &SendRequest,
        id: WorkRequestId,
        window: WindowType,
        state: &mut State,
        bind_info: sys::ibv_mw_bind_info,
    ) -> Result<(), (bool, &'static str, c_int)> {
        let Some(mw) = &mut state.mw else { return Err((true, "binding a revoked window", libc::EINVAL)) };
        if window == WindowType::One {
            let send_flags = request.flags.bits();
            let mut bind = sys::ibv_mw_bind { wr_id: id.to_raw(), send_flags, bind_info };
            // SAFETY: no other queue pair binds the window, because the work request holds a
            // `BindingUnderWay`. The caller guarantees that the region lives.
            return match unsafe { state.bind_type_1(self, &raw mut bind) } {
                0 => Ok(()),
                errno => Err((false, "ibv_bind_mw", errno)),
            };
        }
        let mut wr = send_wr(id, request.operation, request.flags, &request.extra, null_mut(), 0);
        let key = state.key.inc();
        wr.__bindgen_anon_2.bind_mw =
            sys::ibv_send_wr__bindgen_ty_4__bindgen_ty_1 { mw: mw.as_ptr(), rkey: key.0, bind_info };
        let mut bad = null_mut();
        // SAFETY: the queue pair lives as long as `self`. The window lives until it is revoked,
        // which its lock prevents: `state` is borrowed exclusively. The caller guarantees that the
        // region lives.
        let errno = unsafe { sys::ibv_post_send(self.as_raw(), &raw mut wr, &mut bad) };
        if errno != 0 {
            return Err((std::ptr::eq(bad, &raw const wr), "ibv_post_send", errno));
        }
        // The next binding names the window by this key.
        mw.set_rkey(key.0);
        state.key = key;
        Ok(())
    }
}
