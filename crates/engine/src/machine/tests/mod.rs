//! Two machines over simulated cards, and what the histories of the simulation have found to be wrong: each by itself.

mod closing;
mod pair;
mod unstopped;
mod work;

use farreach_proto::wire::Hello;

use super::Tuning;
use pair::Pair;

const MS: u64 = 1_000_000;

/// Short times, and little room.
fn tuning() -> Tuning {
    Tuning {
        heartbeat: 2 * MS,
        silence: 1000 * MS,
        stall: 20 * MS,
        drain: 2 * MS,
        cool_down: MS,
        messages: 4,
        message_max: 48,
    }
}

/// What a machine says of itself where nobody asks for more than which one it is.
pub(crate) fn plain_hello(incarnation: u64) -> Hello {
    Hello { incarnation, name: String::new(), heartbeat_ms: 1, rails: Vec::new(), messages: 0 }
}
