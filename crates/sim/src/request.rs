//! A request together with its buffers, as tests hand them from one function to the next.

use farreach_memory::Buffers;
use farreach_rail::{LinkKey, Rail, Refusal, WorkRequest};

/// What is to be done, and with which buffers.
pub type Request<'a> = (WorkRequest<'a>, Buffers);

/// A request that was not taken, with its buffers back.
#[derive(Debug)]
pub struct Refused<'a> {
    /// Why it was not.
    pub reason: Refusal,
    /// The request.
    pub request: Request<'a>,
}

/// Posts a request; hands all of it back where it is refused.
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
