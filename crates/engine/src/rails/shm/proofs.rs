//! Exchanges of pages: the proof for peers that do not confirm that they have stopped.
//!
//! One exchange runs at a time, a step with each poll, so that others are served between. The machine
//! asks again for those that wait.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use farreach_rail::{KeyId, LinkKey, RailError};
use farreach_shm::{Access, Exchange, ExchangeError};

use super::end::End;
use super::key::GrantKey;

const OPERATION: &str = "prove that a peer has stopped, by an exchange of pages";

/// The exchange that runs, if there is one.
#[derive(Debug, Default)]
pub(super) struct Proofs {
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    key: KeyId,
    exchange: Exchange,
    /// The error of the last step. The next request continues.
    error: Option<ExchangeError>,
}

impl Proofs {
    pub(super) fn is_proving(&self, id: KeyId) -> bool {
        self.running.as_ref().is_some_and(|running| running.key == id)
    }

    /// Returns `true` if the next poll has something to do.
    pub(super) fn has_step(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.error.is_none())
    }

    /// Begins an exchange for an ended key, or continues it.
    pub(super) fn begin(
        &mut self,
        id: KeyId,
        key: &mut GrantKey,
        ends: &mut BTreeMap<LinkKey, End>,
    ) -> Result<(), RailError> {
        match &mut self.running {
            Some(running) if running.key == id => {
                return match running.error.take() {
                    Some(error) => Err(refused(&error)),
                    None => Ok(()),
                };
            }
            // One after the other. The machine asks again.
            Some(_) => return Ok(()),
            None => {}
        }
        if !key.is_ended {
            return Err(RailError::new(OPERATION, "the key has not ended", "end the key first"));
        }
        if key.access == Access::ReadOnly {
            end_reading(key, ends);
            return Ok(());
        }
        let Some(memory) = key.memory.upgrade() else { return Ok(()) };
        // A grant that was taken from its link cannot be confirmed any more, so it is taken only if
        // an exchange is possible. The end of a process is reported by its link.
        if memory.keys() != key.bound.len() + key.taken.len() {
            return Err(refused(&ExchangeError::OtherKeys));
        }
        let all_have_ended = key.taken.is_empty()
            && key.bound.iter().all(|(of, _)| {
                let link = ends.get_mut(of).and_then(End::link);
                link.is_none_or(|link| link.process().has_ended())
            });
        if all_have_ended {
            return Ok(());
        }
        drop(memory);
        let taken = &mut key.taken;
        key.bound.retain(|(of, value)| {
            let Some(end) = ends.get_mut(of) else { return true };
            match end.link().and_then(|link| link.take_revoked(*value)) {
                Some(grant) => {
                    end.grants.remove(value);
                    taken.push(grant);
                    false
                }
                // It has ended meanwhile, which the next poll of the link reports.
                None => true,
            }
        });
        if key.taken.is_empty() {
            return Ok(());
        }
        match Exchange::begin(std::mem::take(&mut key.taken)) {
            Ok(exchange) => {
                self.running = Some(Running { key: id, exchange, error: None });
                Ok(())
            }
            Err((error, grants)) => {
                key.taken = grants;
                Err(refused(&error))
            }
        }
    }

    /// Exchanges the next pages. Returns the key whose exchange is finished.
    pub(super) fn step(&mut self, keys: &HashMap<KeyId, GrantKey>) -> Option<KeyId> {
        let Running { key: id, exchange, error } = self.running.as_mut()?;
        let memory = keys.get(id).and_then(|key| key.memory.upgrade());
        // Held until the end of the step: a user who gets the grant back meanwhile waits for it.
        let _pages = memory.as_ref().map(|memory| memory.lock_pages());
        // A user who has the grant may write to the memory, and the write could be lost. The carrier
        // has a handle, and so has this function.
        let has_user = memory.as_ref().is_some_and(|memory| Arc::strong_count(memory) > 2);
        if error.is_some() || has_user {
            return None;
        }
        *error = exchange.step().err();
        if error.is_some() || exchange.left() > 0 {
            return None;
        }
        let Running { key, exchange, .. } = self.running.take()?;
        exchange.finish().ok()?;
        Some(key)
    }

    /// Stops the exchange of a key. Its memory is leaked, because a part of it is still within reach
    /// of the peer, and nothing will prove that it is not.
    pub(super) fn stop(&mut self, id: KeyId) {
        self.running.take_if(|running| running.key == id);
    }
}

/// Ends a key by which its peer could only read. That needs no exchange: the peer's library reports that
/// the key was revoked, whatever it still reads.
fn end_reading(key: &mut GrantKey, ends: &mut BTreeMap<LinkKey, End>) {
    key.bound.retain(|(of, value)| {
        let Some(end) = ends.get_mut(of) else { return true };
        let Some(grant) = end.link().and_then(|link| link.take_revoked(*value)) else { return true };
        end.grants.remove(value);
        // It is a grant for reading, so it ends.
        drop(grant.end_reading());
        false
    });
}

fn refused(error: &ExchangeError) -> RailError {
    RailError::new(OPERATION, error.to_string(), error.fix())
}
