//! Guards of the engine that whole histories watch: without each, a history of the first few hundred seeds goes wrong. What takes more
//! of them to be found has a test of its own.

use super::Mutant;

/// Any history may find it.
const SEEDS: &str = "simulation::some_seeds";

pub(super) const MUTANTS: &[Mutant] = &[
    // Links that fail.
    Mutant {
        name: "a link that has failed is lost before everything of it is back",
        file: "crates/engine/src/machine/link.rs",
        guard: "Phase::Draining { .. } if link.in_flight == 0 => self.drained(key, index),",
        instead: "Phase::Draining { .. } => self.drained(key, index),",
        test: SEEDS,
    },
    Mutant {
        name: "pages that are sent again tick again",
        file: "crates/core/src/outbox.rs",
        guard: "self.post(id, rail, first, None, debt, stake)",
        instead: "{
            let tick = transfer.counter.and_then(|counter| Tick::new(counter, first.pages));
            self.post(id, rail, first, tick, debt, stake)
        }",
        test: SEEDS,
    },
    Mutant {
        name: "what a lost rail has counted is paid for again",
        file: "crates/core/src/outbox.rs",
        guard: "let owed = debt.claimed.saturating_sub(settled) + debt.untold;",
        instead: "let _ = settled; let owed = debt.claimed + debt.untold;",
        test: SEEDS,
    },
    Mutant {
        name: "pages are paid for before they are sent again",
        file: "crates/core/src/outbox.rs",
        guard: "let settled = debt.settled.filter(|_| debt.again == 0)?;",
        instead: "let settled = debt.settled?;",
        test: SEEDS,
    },
    Mutant {
        name: "pages that nobody counts are done while bytes of a lost rail may undo what follows them",
        file: "crates/core/src/outbox.rs",
        guard: "        Self::owe(&mut self.debts, new_debt, id, transfer);
        if has_bytes {",
        instead: "        if transfer.counter.is_some() {
            Self::owe(&mut self.debts, new_debt, id, transfer);
        }
        if has_bytes {",
        test: SEEDS,
    },
    Mutant {
        name: "a settle is answered before the rail is begun anew",
        file: "crates/engine/src/machine/reset.rs",
        guard: "if self.may_still_land(key, link) {",
        instead: "if self.may_still_land(key, link) && false {",
        test: SEEDS,
    },
    // Memory.
    Mutant {
        name: "nothing stops a peer that does not answer",
        file: "crates/engine/src/machine/grant.rs",
        guard: "!is_proven && !has_word && self.ask_proof(id);",
        instead: "!is_proven && !has_word && !is_late && self.ask_proof(id);",
        test: "machine::tests::strays::memory_of_a_peer_that_does_not_answer_comes_back_and_is_proven_later",
    },
    Mutant {
        name: "a peer's silence is taken for its word",
        file: "crates/engine/src/machine/grant.rs",
        guard: "let has_word = is_acknowledged || (is_lost && is_quiet);",
        instead: "let has_word = is_acknowledged || is_lost || is_late;",
        test: "machine::tests::strays::memory_of_a_peer_that_does_not_answer_comes_back_and_is_proven_later",
    },
    Mutant {
        name: "a peer says that another one has stopped",
        file: "crates/engine/src/machine/grant.rs",
        guard: ".filter(|grant| grant.peer == key)",
        instead: ".filter(|grant| grant.peer == key || true)",
        test: "machine::tests::strays::a_peer_cannot_say_that_another_has_stopped",
    },
    Mutant {
        name: "a rail goes over a provider that enforces no keys",
        file: "crates/engine/src/provider/fabric/mod.rs",
        guard: "match (profile.keys_enforced, profile.close_stops_peers) {",
        instead: "match (true, profile.close_stops_peers || !profile.keys_enforced) {",
        test: "provider::fabric::tests::a_rail_refuses_dead_keys_and_stops_peers_when_it_ends",
    },
    Mutant {
        name: "a peer is told that nothing is under way while something is",
        file: "crates/engine/src/machine/grant.rs",
        guard: "granted.is_revoked && granted.users == 0)",
        instead: "granted.is_revoked)",
        test: SEEDS,
    },
    Mutant {
        name: "a peer is told that nothing is under way though a dead card has it",
        file: "crates/engine/src/machine/transfer.rs",
        guard: "            if !is_kept {
                self.release(key, grant);
            }",
        instead: "            let _ = is_kept;
            self.release(key, grant);",
        test: "machine::tests::strays::a_peer_never_hears_that_nothing_is_under_way_while_a_dead_card_has_it",
    },
    Mutant {
        name: "a link is forgotten when another follows it",
        file: "crates/engine/src/machine/link.rs",
        guard: "            peer.past.push(PastLink { id, rail, generation, may_land_late: false });
",
        instead: "            let _ = PastLink { id, rail, generation, may_land_late: false };
",
        test: "machine::tests::strays::a_peer_whose_link_was_followed_by_another_may_still_have_bytes_under_way",
    },
    Mutant {
        name: "a peer is kept though nothing can stop what it has under way",
        file: "crates/engine/src/machine/lose.rs",
        guard: "            self.lose_if_unstoppable(key, rail);
",
        instead: "",
        test: "machine::tests::strays::memory_that_a_dead_rail_of_ours_may_still_change_is_never_a_slice",
    },
    Mutant {
        name: "a transfer gives its memory back while a card has a part of it",
        file: "crates/engine/src/machine/lose.rs",
        guard: "state.answer(Err(TransferFault::PeerLost(reason.clone())), is_back, now);",
        instead: "state.answer(Err(TransferFault::PeerLost(reason.clone())), true, now);",
        test: SEEDS,
    },
    // Room.
    Mutant {
        name: "a link gets more than it has room for",
        file: "crates/engine/src/machine/rail.rs",
        guard: "link.in_flight < self.properties.window",
        instead: "link.in_flight < u32::MAX",
        test: SEEDS,
    },
    Mutant {
        name: "a peer gets more messages than it has room for",
        file: "crates/engine/src/machine/message.rs",
        guard: "while sending.room > 0 && !sending.waiting.is_empty() {",
        instead: "while !sending.waiting.is_empty() {
            sending.room = sending.room.max(1);",
        test: SEEDS,
    },
    // Once each.
    Mutant {
        name: "a message that comes twice is delivered twice",
        file: "crates/engine/src/machine/message.rs",
        guard: "        if sequence < receiving.next {
            return;",
        instead: "        if sequence < receiving.next {
            peer.cell.put_message(bytes.to_vec());
            return;",
        test: SEEDS,
    },
    Mutant {
        name: "a word whose fate is unknown is said to be done",
        file: "crates/engine/src/machine/word.rs",
        guard: "state.promise.keep(match value.filter(|_| is_ok) {",
        instead: "let _ = is_ok;
        state.promise.keep(match value {",
        test: SEEDS,
    },
    Mutant {
        name: "a new link does not learn what counters are called there",
        file: "crates/engine/src/machine/link.rs",
        guard: "        self.name_counters(key, index);
",
        instead: "",
        test: SEEDS,
    },
    Mutant {
        name: "what counters are called on links is forgotten",
        file: "crates/engine/src/machine/counter.rs",
        guard: "        known.extend(names);
",
        instead: "        let _ = names;
",
        test: SEEDS,
    },
];
