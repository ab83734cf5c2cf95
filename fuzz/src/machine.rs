//! A live machine with several peers, of which some lie.
//!
//! The input is a history: requests of the application, results of the rails, time that passes, and
//! frames of peers. Every peer answers what the machine sends, as an honest one would, until the
//! history mutes it. Besides that, any peer may send any frame, with numbers that it has heard
//! anywhere.
//!
//! Promises that are checked:
//!
//! - A frame, a message or an immediate of a peer has an effect on that peer alone: on its links,
//!   grants, counters, requests and connection.
//! - A peer has no more grants and counters than its budgets, and the machine holds a bounded amount
//!   of memory for it, however many frames it sends.
//! - Every request is answered exactly once, and when all peers are gone and the rails have returned
//!   everything, nothing is left.

mod lie;
mod world;

use arbitrary::{Arbitrary, Unstructured};

use self::lie::Lie;
use self::world::World;
use crate::allocations;

#[derive(Debug, Arbitrary)]
struct Setting {
    /// Properties of the two rails.
    rails: [u8; 2],
    /// Which peers this side has connected to.
    initiators: u8,
}

/// A step of a history. Peers, requests, links and work are chosen by numbers of any size.
#[derive(Debug, Arbitrary)]
enum Step {
    /// A peer sends a frame.
    Frame(u8, Lie),
    /// It sends the frame many times, with numbers that count.
    Flood(u8, Lie, u16),
    Mute(u8),
    OpenCounter(u8),
    CloseCounter(u8),
    Grant(u8),
    Revoke {
        grant: u8,
        within_ms: u8,
        is_dropped: bool,
    },
    Send {
        peer: u8,
        len: u8,
    },
    Taken {
        peer: u8,
        count: u8,
    },
    Flush(u8),
    Transfer {
        peer: u8,
        grant: u8,
        counter: Option<u8>,
        pages: u8,
        is_read: bool,
    },
    Atomic {
        peer: u8,
        grant: u8,
        offset: u8,
    },
    Abort(u8),
    Leave(u8),
    LeaveAll,
    Connect {
        is_initiator: bool,
    },
    Disconnect(u8),
    /// Time passes, and the driver takes a step.
    Pass {
        ms: u8,
    },
    /// A work request ends.
    Complete {
        which: u8,
        is_ok: bool,
    },
    CompleteAll,
    /// The next post is refused.
    RefusePost(u8),
    /// The next work of this kind fails.
    FailControl(u8),
    LinkDown(u8),
    /// An immediate arrives over a link of a peer.
    Immediate {
        link: u8,
        bits: lie::Number,
    },
    Message {
        link: u8,
        mark: lie::Number,
        sequence: lie::Number,
        len: u8,
    },
}

/// Steps and frames beyond these numbers show nothing new.
const STEPS_MAX: usize = 300;
const FRAMES_MAX: usize = 30_000;

/// The memory that a machine may hold after all that: its tables, for six peers.
const HELD_MAX: isize = 384 << 10;

pub(crate) fn run(input: &[u8]) {
    let mut input = Unstructured::new(input);
    let Ok(setting) = Setting::arbitrary(&mut input) else { return };
    let before = allocations::now();
    let mut world = World::new(setting.rails, setting.initiators);
    for _ in 0..STEPS_MAX {
        if input.is_empty() || world.frames > FRAMES_MAX {
            break;
        }
        let Ok(step) = Step::arbitrary(&mut input) else { break };
        take(&mut world, step);
    }
    world.check_budgets();
    // What the peers remember is not the machine's.
    world.heard = Default::default();
    let held = allocations::now() - before;
    assert!(held <= HELD_MAX, "the machine holds {held} bytes");
    world.end();
}

fn take(world: &mut World, step: Step) {
    match step {
        Step::Frame(peer, lie) => world.lie(peer, &lie, 0),
        Step::Flood(peer, lie, times) => {
            for number in 0..u64::from(times % 4096) {
                world.lie(peer, &lie, number);
            }
        }
        Step::Mute(peer) => world.mute(peer),
        Step::OpenCounter(peer) => world.open_counter(peer),
        Step::CloseCounter(counter) => world.close_counter(counter),
        Step::Grant(peer) => world.grant(peer),
        Step::Revoke { grant, within_ms, is_dropped } => world.revoke(grant, within_ms, is_dropped),
        Step::Send { peer, len } => world.send(peer, len),
        Step::Taken { peer, count } => world.taken(peer, count),
        Step::Flush(peer) => world.flush(peer),
        Step::Transfer { peer, grant, counter, pages, is_read } => {
            world.transfer(peer, grant, counter, pages, is_read);
        }
        Step::Atomic { peer, grant, offset } => world.atomic(peer, grant, offset),
        Step::Abort(op) => world.abort(op),
        Step::Leave(peer) => world.leave(peer),
        Step::LeaveAll => world.leave_all(),
        Step::Connect { is_initiator } => world.connect(is_initiator),
        Step::Disconnect(peer) => world.disconnect(peer),
        Step::Pass { ms } => world.pass(ms.into()),
        Step::Complete { which, is_ok } => world.complete(which, is_ok),
        Step::CompleteAll => world.complete_all(),
        Step::RefusePost(how) => world.refuse_post(how),
        Step::FailControl(kind) => world.fail_control(kind),
        Step::LinkDown(link) => world.link_down(link),
        Step::Immediate { link, bits } => world.immediate(link, &bits),
        Step::Message { link, mark, sequence, len } => world.message(link, &mark, &sequence, len),
    }
}
