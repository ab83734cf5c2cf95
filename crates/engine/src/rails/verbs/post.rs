//! Converts work requests into those of verbs.

use farreach_memory::{Buffers, Slice};
use farreach_rail::{RailError, WorkRequest};
use farreach_verbs::mr::RemoteKey;
use farreach_verbs::wr::{RemoteRange, SendRequest};

/// Converts a work request. One that a card never accepts is returned with the reason.
#[inline]
pub(super) fn to_card(
    request: WorkRequest<'_>,
    buffers: Buffers,
) -> Result<SendRequest, (RailError, Buffers)> {
    let target = match request {
        WorkRequest::Write { target, .. }
        | WorkRequest::Read { target }
        | WorkRequest::FetchAdd { target, .. }
        | WorkRequest::CompareSwap { target, .. } => target,
        WorkRequest::Send => return Ok(SendRequest::send(buffers)),
        WorkRequest::WriteScattered { .. } | WorkRequest::ReadGathered { .. } => {
            // Not reached: the machine keeps to `Limits::targets`, which is 1.
            return Err((never("a verbs operation accesses only one remote segment"), buffers));
        }
    };
    // The peer has sent the key, and its frame has room for 64 bits.
    let Ok(key) = u32::try_from(target.key) else {
        return Err((never("the remote key has more than 32 bits"), buffers));
    };
    let remote = RemoteRange::new(target.address, target.len, RemoteKey(key));
    Ok(match request {
        WorkRequest::Write { immediate: Some(immediate), .. } => {
            SendRequest::write(buffers, remote).immediate(immediate)
        }
        WorkRequest::Read { .. } => SendRequest::read_into(buffers, remote),
        WorkRequest::FetchAdd { add, .. } => SendRequest::fetch_add(answer(buffers)?, remote, add),
        WorkRequest::CompareSwap { expected, desired, .. } => {
            SendRequest::compare_swap(answer(buffers)?, remote, expected, desired)
        }
        // Only a write without an immediate is left.
        _ => SendRequest::write(buffers, remote),
    })
}

/// Returns the slice for the old value of an atomic.
fn answer(into: Buffers) -> Result<Slice, (RailError, Buffers)> {
    into.into_slice().map_err(|other| (never("the buffer of an atomic operation is not one slice"), other))
}

/// Returns the error of a request that no card supports.
#[cold]
pub(super) fn never(cause: impl Into<String>) -> RailError {
    RailError::new("post a work request", cause, "check the limits in the properties of the rail")
}
