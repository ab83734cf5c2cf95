//! A work request together with its buffers, as tests pass them around.

use farreach_memory::Buffers;
use farreach_rail::{LinkKey, Rail, Refusal, WorkRequest};

/// A work request and its buffers.
pub type Request<'a> = (WorkRequest<'a>, Buffers);

/// A work request that was refused, with its buffers.
#[derive(Debug)]
pub struct Refused<'a> {
    /// The reason.
    pub reason: Refusal,
    /// The work request.
    pub request: Request<'a>,
}

/// Posts a work request. Returns all of it if it is refused.
#[expect(clippy::result_large_err, reason = "tests ask for what was refused, and speed is no matter")]
pub fn post<'a>(
    rail: &mut dyn Rail,
    link: LinkKey,
    tag: u64,
    (request, buffers): Request<'a>,
) -> Result<(), Refused<'a>> {
    rail.post(link, tag, request, buffers)
        .map_err(|(reason, buffers)| Refused { reason, request: (request, buffers) })
}
