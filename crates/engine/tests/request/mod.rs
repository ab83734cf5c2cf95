//! A request together with its buffers, as tests hand them from one function to the next.

use farreach::Buffers;
use farreach::rail::{LinkKey, Rail, Refusal, WorkRequest};

pub(crate) type Request<'a> = (WorkRequest<'a>, Buffers);

/// A request that was not taken, with its buffers back.
#[derive(Debug)]
pub(crate) struct Refused<'a> {
    pub(crate) reason: Refusal,
    pub(crate) request: Request<'a>,
}

#[expect(clippy::result_large_err, reason = "tests ask for what was refused, and speed is no matter")]
pub(crate) fn post<'a>(
    rail: &mut dyn Rail,
    link: LinkKey,
    tag: u64,
    (request, buffers): Request<'a>,
) -> Result<(), Refused<'a>> {
    rail.post(link, tag, request, buffers)
        .map_err(|(reason, buffers)| Refused { reason, request: (request, buffers) })
}
