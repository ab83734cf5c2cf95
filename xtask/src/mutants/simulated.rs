//! Guards of the engine that whole histories test: without each of them, a history among the first
//! few hundred seeds fails, or an order of a small scenario. Guards that need more have their own test.

use super::Mutant;

/// The test for mutants that any history may find.
const SEEDS: &str = "histories::tests::some_seeds";

/// The test for mutants that a host that lies may find.
const LIES: &str = "histories::tests::lying_seeds";

pub(super) const MUTANTS: &[Mutant] = &[
    // Links that fail.
    Mutant {
        name: "a link that has failed is lost before everything of it is back",
        file: "crates/proto/src/machine/peer/link.rs",
        guard: "Phase::Draining { .. } if self.in_flight == 0 => Due::Drained,",
        instead: "Phase::Draining { .. } => Due::Drained,",
        test: SEEDS,
    },
    Mutant {
        name: "pages that are resent carry an immediate again",
        file: "crates/proto/src/outbox.rs",
        guard: "self.post(id, link, first, None, owed, pages)",
        instead: "{
            let immediate = transfer.counter.and_then(|counter| Immediate::new(counter, first.pages));
            self.post(id, link, first, immediate, owed, pages)
        }",
        test: SEEDS,
    },
    Mutant {
        name: "what was counted over a lost link is owed again",
        file: "crates/proto/src/outbox.rs",
        guard: "let missing = owed.reported.saturating_sub(settled) + owed.unreported;",
        instead: "let _ = settled; let missing = owed.reported + owed.unreported;",
        test: SEEDS,
    },
    Mutant {
        name: "pages are reconciled before they are resent",
        file: "crates/proto/src/outbox.rs",
        guard: "let settled = owed.settled.filter(|_| owed.resends == 0)?;",
        instead: "let settled = owed.settled?;",
        test: SEEDS,
    },
    Mutant {
        name: "pages that nobody counts are done while bytes of a lost link may undo what follows them",
        file: "crates/proto/src/outbox.rs",
        guard: "        Self::add_owed(&mut self.owed, new_owed, id, transfer);
        if has_bytes {",
        instead: "        if transfer.counter.is_some() {
            Self::add_owed(&mut self.owed, new_owed, id, transfer);
        }
        if has_bytes {",
        test: SEEDS,
    },
    Mutant {
        name: "a settle is answered before this side has closed its end",
        file: "crates/proto/src/machine/reset.rs",
        guard: "if self.is_about_to_close(key, link) {",
        instead: "if self.is_about_to_close(key, link) && false {",
        test: "machine::tests::a_peer_hears_how_much_has_arrived_when_nothing_more_can_arrive",
    },
    // Memory.
    Mutant {
        name: "nothing stops a peer that does not answer",
        file: "crates/proto/src/machine/own_grants.rs",
        guard: "match by_stop.is_none() && (!by_report || is_late) {",
        instead: "match is_late || (by_stop.is_none() && !by_report) {",
        test: "tests::unstopped::memory_of_a_peer_that_does_not_answer_comes_back_and_is_proven_later",
    },
    Mutant {
        name: "the word of a peer is taken for the proof that a rail reports later",
        file: "crates/proto/src/machine/own_grants.rs",
        guard: "match by_stop.is_none() && (!by_report || is_late) {",
        instead: "match by_stop.is_none() {",
        test: "machine::tests::reported_keys::memory_of_a_peer_that_confirms_is_given_back_with_the_report",
    },
    Mutant {
        name: "a peer's silence is taken for its word",
        file: "crates/proto/src/machine/own_grants.rs",
        guard: "let has_word = ending.is_acknowledged || reach == (Reach::Lost { is_quiet: true });",
        instead: "let has_word = ending.is_acknowledged || is_lost || is_late;",
        test: "tests::unstopped::memory_of_a_peer_that_does_not_answer_comes_back_and_is_proven_later",
    },
    Mutant {
        name: "a peer says that another one has stopped",
        file: "crates/proto/src/machine/own_grants.rs",
        guard: ".filter(|grant| grant.peer == key)",
        instead: ".filter(|grant| grant.peer == key || true)",
        test: "tests::unstopped::a_peer_cannot_say_that_another_has_stopped",
    },
    Mutant {
        name: "a rail goes over a provider that enforces no keys",
        file: "crates/engine/src/rails/fabric/mod.rs",
        guard: "match (profile.keys_enforced, profile.close_stops_peers) {",
        instead: "match (true, profile.close_stops_peers || !profile.keys_enforced) {",
        test: "rails::fabric::tests::a_rail_refuses_dead_keys_and_stops_peers_when_it_ends",
    },
    Mutant {
        name: "a peer is told that nothing is under way while something is",
        file: "crates/proto/src/machine/peer/granted.rs",
        guard: "self.is_revoked && self.users == 0",
        instead: "self.is_revoked",
        test: "machine::peer::granted::tests::the_peer_hears_once_that_nothing_uses_it_any_more",
    },
    Mutant {
        name: "a peer is told that nothing is under way while bytes of a lost link may land",
        file: "crates/proto/src/machine/grant.rs",
        guard: "        if !peer.may_land() {",
        instead: "        {",
        test: "machine::tests::deadlines::a_revoked_grant_is_confirmed_when_the_peer_has_stopped_the_link_that_was_lost",
    },
    Mutant {
        name: "a peer is told that nothing is under way while an atomic of a lost link may have its effect",
        file: "crates/proto/src/machine/work.rs",
        guard: "self.peers[key].links[index].keep_unknown_atomic();",
        instead: "",
        test: "machine::tests::refused_keys::an_atomic_over_a_lost_link_keeps_its_grant_from_being_confirmed",
    },
    Mutant {
        name: "the word of a peer is the proof of a withdrawal",
        file: "crates/proto/src/machine/own_grants.rs",
        guard: "true if !ending.until.is_proven => None,",
        instead: "true if !ending.until.is_proven || true => None,",
        test: "machine::tests::publish::the_word_of_a_peer_is_no_proof_that_a_withdrawal_is_complete",
    },
    Mutant {
        name: "a peer pays for the reset that its owner asks for",
        file: "crates/proto/src/machine/own_grants.rs",
        guard: "true => Some(Resets::Asked),",
        instead: "true => Some(Resets::Caused),",
        test: "machine::tests::publish::a_peer_that_says_so_does_not_pay_for_the_reset",
    },
    Mutant {
        name: "a key that was not ended proves a withdrawal",
        file: "crates/proto/src/machine/grant.rs",
        guard: "let mut is_provable = !grant.has_failed_key();",
        instead: "let mut is_provable = true;",
        test: "machine::tests::publish::a_key_that_cannot_be_ended_proves_nothing_then_and_later",
    },
    Mutant {
        name: "a key that was not ended is forgotten",
        file: "crates/proto/src/machine/publish.rs",
        guard: "let is_provable = !self.publications.is_unstopped(publication, &concerns);",
        instead: "let is_provable = true;",
        test: "machine::tests::publish::a_key_that_cannot_be_ended_proves_nothing_then_and_later",
    },
    Mutant {
        name: "an aborted transfer waits for what another sends again",
        file: "crates/proto/src/outbox.rs",
        guard: "                // Not all of its pages are counted.\n                transfer.is_incomplete = true;",
        instead: "                transfer.owed += 1;",
        test: "outbox::tests::an_aborted_transfer_does_not_wait_for_what_another_sends_again",
    },
    Mutant {
        name: "a close waits for ever for a link between dead rails",
        file: "crates/proto/src/machine/peer_timers.rs",
        guard: "(is_over || peer.is_stranded(now, silence))",
        instead: "is_over",
        test: "machine::tests::refused_keys::what_waits_for_a_link_does_not_keep_a_peer_from_being_closed_for_ever",
    },
    Mutant {
        name: "a key of the link before is used",
        file: "crates/proto/src/machine/peer/granted.rs",
        guard: "        (id == link.id()).then_some(key)",
        instead: "        let _ = id;
        Some(key)",
        test: SEEDS,
    },
    Mutant {
        name: "a key ends while it is being bound",
        file: "crates/proto/src/machine/own_grants.rs",
        guard: "            Keys::Alive if self.binding > 0 && !is_lost && !is_due => Next::Wait,
",
        instead: "",
        test: "machine::own_grants::tests::keys_that_are_being_bound_end_when_they_are_bound",
    },
    Mutant {
        name: "keys are not bound to a link that comes later",
        file: "crates/proto/src/machine/links.rs",
        guard: "        self.bind_keys_to(key, index);
",
        instead: "",
        test: SEEDS,
    },
    Mutant {
        name: "a peer is told that nothing is under way though a dead card has it",
        file: "crates/proto/src/machine/transfer.rs",
        guard: "            if !is_kept {
                regions",
        instead: "            let _ = is_kept;
            {
                regions",
        test: "tests::unstopped::a_peer_never_hears_that_nothing_is_under_way_while_a_dead_card_has_it",
    },
    Mutant {
        name: "a link is forgotten when another follows it",
        file: "crates/proto/src/machine/peer/links.rs",
        guard: "            self.past.push(PastLink { id, rail, generation, may_land_late: false });
",
        instead: "            let _ = PastLink { id, rail, generation, may_land_late: false };
",
        test: "tests::unstopped::a_peer_whose_link_was_followed_by_another_may_still_have_bytes_under_way",
    },
    Mutant {
        name: "a peer is kept though nothing can stop what it has under way",
        file: "crates/proto/src/machine/lose.rs",
        guard: "            self.lose_if_unstoppable(key, rail);
",
        instead: "",
        test: "tests::unstopped::memory_that_a_dead_rail_of_ours_may_still_change_is_never_a_slice",
    },
    Mutant {
        name: "a transfer gives its memory back while a card has a part of it",
        file: "crates/proto/src/machine/lose.rs",
        guard: "transfer.end(Err(fault), is_back, now)",
        instead: "transfer.end(Err(fault), is_back || true, now)",
        test: SEEDS,
    },
    // Requests to rails.
    Mutant {
        name: "an end of a link that nobody wants stays open",
        file: "crates/proto/src/machine/links.rs",
        guard: "Ok((link, _)) if !is_wanted => self.control.push_back(Control::CloseLink { rail, link }),",
        instead: "Ok(_) if !is_wanted => {}",
        test: "machine::tests::an_end_that_is_made_when_its_link_is_not_wanted_any_more_is_closed",
    },
    Mutant {
        name: "memory is given back again while it is being given back",
        file: "crates/proto/src/machine/own_grants.rs",
        guard: "let is_ahead = |ending: &&Ending| ending.way == Way::Ahead;",
        instead: "let is_ahead = |ending: &&Ending| ending.way != Way::WithUser;",
        test: "machine::tests::memory_is_given_back_once_to_whoever_asked_first",
    },
    // Room.
    Mutant {
        name: "a link gets more than it has room for",
        file: "crates/proto/src/machine/rail.rs",
        guard: "link.in_flight() < self.properties.window",
        instead: "link.in_flight() < u32::MAX",
        test: SEEDS,
    },
    Mutant {
        name: "a peer gets more messages than it has room for",
        file: "crates/proto/src/machine/peer/outgoing.rs",
        guard: "            self.room -= 1;
",
        instead: "",
        test: SEEDS,
    },
    // Exactly once.
    Mutant {
        name: "a message that comes twice is delivered twice",
        file: "crates/proto/src/machine/peer/incoming.rs",
        guard: "else { return Ok(0) };",
        instead: "else {
            deliver(bytes.to_vec());
            return Ok(0);
        };",
        test: SEEDS,
    },
    Mutant {
        name: "an atomic whose fate is unknown is said to be done",
        file: "crates/proto/src/machine/work.rs",
        guard: "value.filter(|_| is_ok)",
        instead: "value.filter(|_| is_ok || true)",
        test: SEEDS,
    },
    Mutant {
        name: "a new link does not learn what counters are called there",
        file: "crates/proto/src/machine/links.rs",
        guard: "        self.name_counters(key, index);
",
        instead: "",
        test: SEEDS,
    },
    Mutant {
        name: "what counters are called on links is forgotten",
        file: "crates/proto/src/machine/peer/remote_counters.rs",
        guard: "            known.push((link, name));
",
        instead: "            let _ = name;
",
        test: SEEDS,
    },
    // A peer that lies.
    Mutant {
        name: "an immediate raises a counter of another peer",
        file: "crates/proto/src/machine/counter.rs",
        guard: "if !self.counters.is_of(immediate.counter, key) {",
        instead: "if false {",
        test: LIES,
    },
    Mutant {
        name: "a peer adds pages to a counter of another one",
        file: "crates/proto/src/machine/counter.rs",
        guard: "        if !self.counters.is_of(counter, key) {
            return;
        }
",
        instead: "        let _ = self.counters.is_of(counter, key);
",
        test: LIES,
    },
    Mutant {
        name: "a peer aborts what another one counts",
        file: "crates/proto/src/machine/counter.rs",
        guard: "        if self.counters.is_of(counter, key) {
            self.report(Event::CounterEnded",
        instead: "        if self.counters.owners.contains_key(&counter) || key == PeerKey(0) {
            self.report(Event::CounterEnded",
        test: LIES,
    },
    Mutant {
        name: "a peer settles a link for a counter of another one",
        file: "crates/proto/src/machine/reset.rs",
        guard: "let is_open = self.counters.is_of(counter, key);",
        instead: "let is_open = true;",
        test: "machine::tests::hostile::a_peer_cannot_settle_a_link_for_a_counter_of_another_one",
    },
    Mutant {
        name: "a message is of the peer whose mark it has, whichever link it came over",
        file: "crates/proto/src/machine/message.rs",
        guard: "if end.rail != rail || link.is_some_and(|link| link != end.link) {",
        instead: "if end.rail != rail && link.is_none() {",
        test: LIES,
    },
    Mutant {
        name: "a liar says that another peer has stopped",
        file: "crates/proto/src/machine/grant.rs",
        guard: "if self.grants.of_peer(id, key).is_some_and(OwnGrant::acknowledge) {",
        instead: "if key.0 < u32::MAX && self.grants.get_mut(id).is_some_and(OwnGrant::acknowledge) {",
        test: "tests::unstopped::a_peer_cannot_say_that_another_has_stopped",
    },
    Mutant {
        name: "a peer announces more grants than it may",
        file: "crates/proto/src/machine/grant.rs",
        guard: "if peer.granted.len() >= budgets.grants as usize {",
        instead: "if peer.granted.len() == usize::MAX {",
        test: LIES,
    },
    Mutant {
        name: "a peer announces more counters than it may",
        file: "crates/proto/src/machine/counter.rs",
        guard: "peer.counters.len() >= budgets.counters as usize {",
        instead: "peer.counters.len() == usize::MAX {",
        test: LIES,
    },
    Mutant {
        name: "a peer sends more messages than there is room for",
        file: "crates/proto/src/machine/peer/incoming.rs",
        guard: "if ahead >= u64::from(room).saturating_sub(self.untaken) {",
        instead: "if ahead >= u64::from(room) {",
        test: LIES,
    },
    Mutant {
        name: "a message over the control connection has any length",
        file: "crates/proto/src/machine/message.rs",
        guard: "if bytes.len() > of_rails.max().unwrap_or(0).max(self.tuning.message_max) {",
        instead: "if of_rails.max().is_none() {",
        test: LIES,
    },
    Mutant {
        name: "a peer that does not account for a lost link keeps transfers from ending",
        file: "crates/proto/src/machine/peer_timers.rs",
        guard: "is_some_and(|since| now >= since.saturating_add(answer_within)) {",
        instead: "is_some_and(|since| now == since.saturating_add(answer_within).max(crate::time::Time::NEVER)) {",
        test: "machine::tests::hostile::a_peer_that_does_not_account_for_a_lost_link_is_lost_and_its_transfers_end",
    },
    // Silence.
    Mutant {
        name: "a peer that says nothing is not lost",
        file: "crates/proto/src/machine/peer/liveness.rs",
        guard: "now >= at.saturating_add(answer_within(tuning))",
        instead: "now >= at.saturating_add(100 * answer_within(tuning))",
        test: SEEDS,
    },
    Mutant {
        name: "the links of a peer that does not confirm a revoke go on",
        file: "crates/proto/src/machine/grant.rs",
        guard: "if rail.scope() == of_grant && ends_alone && !link.is_failing() {",
        instead: "if rail.scope() == of_grant && ends_alone && !link.is_failing() && false {",
        test: SEEDS,
    },
    // Publications.
    Mutant {
        name: "a peer opens again what was withdrawn from it",
        file: "crates/proto/src/machine/admission.rs",
        guard: "if self.peers.contains(&peer) || has_one(names, &self.expelled) {",
        instead: "if has_one(names, &self.expelled) {",
        test: "machine::tests::publish::a_peer_from_which_it_was_withdrawn_gets_it_no_more",
    },
    Mutant {
        name: "a publication comes back before its last grant has ended",
        file: "crates/proto/src/machine/publications.rs",
        guard: "if it.withdrawal.is_none() || !it.grants.is_empty() {",
        instead: "if it.withdrawal.is_none() {",
        test: "machine::publications::tests::it_is_withdrawn_when_its_last_grant_has_ended",
    },
    // Rails of two scopes.
    Mutant {
        name: "a revoke within the host resets cards",
        file: "crates/proto/src/machine/grant.rs",
        guard: "rail.scope() == of_grant && is_unstopped && rail.generation() == **before",
        instead: "(rail.scope() == of_grant || true) && is_unstopped && rail.generation() == **before",
        test: "machine::tests::scopes::a_revoke_within_the_host_resets_no_card",
    },
    Mutant {
        name: "pages go over rails over which their memory was not granted",
        file: "crates/proto/src/outbox.rs",
        guard: ".pick(bytes, |link| self.settings[link].scope == scope && self.is_open(link, priority, share))",
        instead: ".pick(bytes, |link| self.is_open(link, priority, share))",
        test: SEEDS,
    },
    Mutant {
        name: "links over the network are not connected when they are needed",
        file: "crates/proto/src/machine/peer/links.rs",
        guard: "held_back.iter().for_each(|index| self.present[*index].end_wait(now));",
        instead: "held_back.iter().for_each(|index| _ = (index, now));",
        test: SEEDS,
    },
    // Races between a few events, of which all orders are tried.
    Mutant {
        name: "a withdrawal does not see a grant that is being made",
        file: "crates/proto/src/machine/publications.rs",
        guard: "let holders = self.all.get(&id)?.grants.keys().copied();",
        instead: "let is_made = |(_, it): &(&PeerKey, &PeerGrant)| !matches!(it, PeerGrant::Making { .. });
        let holders = self.all.get(&id)?.grants.iter().filter(is_made).map(|(peer, _)| *peer);",
        test: "explore::publications",
    },
    Mutant {
        name: "a grant that was withdrawn while it was made is given all the same",
        file: "crates/proto/src/machine/publications.rs",
        guard: "PeerGrant::Making { until } => until.or((!is_there).then_some(Until::NEVER)),",
        instead: "PeerGrant::Making { until: _ } => (!is_there).then_some(Until::NEVER),",
        test: "explore::publications",
    },
    Mutant {
        name: "memory is granted while its pages are exchanged",
        file: "crates/rail/src/carrier.rs",
        guard: "if self.memory.is_exchanging(publication) => {",
        instead: "if self.memory.is_exchanging(publication) && false => {",
        test: "explore::exchanges",
    },
    Mutant {
        name: "others pause for an exchange that is impossible",
        file: "crates/sim/src/prove.rs",
        guard: "        self.exchanges.end_pause(key);
        if memory.keys() != guards {",
        instead: "        if memory.keys() != guards {",
        test: "explore::exchanges",
    },
    Mutant {
        name: "a write that cannot be mapped costs its link",
        file: "crates/proto/src/machine/work.rs",
        guard: "Err(error) if is_ordered => Err(RequestError::Link(error.into_error())),",
        instead: "Err(error) if is_ordered || true => Err(RequestError::Link(error.into_error())),",
        test: "explore::grants",
    },
    Mutant {
        name: "a peer adds any number of pages for a lost link",
        file: "crates/proto/src/counter.rs",
        guard: "let reached = counter.reached.checked_add(pages).filter(|_| pages <= ADD_MAX);",
        instead: "let reached = counter.reached.checked_add(pages);",
        test: "explore::counters",
    },
    Mutant {
        name: "a settle is answered before the rail is begun anew",
        file: "crates/proto/src/machine/reset.rs",
        guard: "if self.may_still_land(key, link) {",
        instead: "if self.may_still_land(key, link) && false {",
        test: "explore::counters",
    },
    Mutant {
        name: "a card lets any peer use any key",
        file: "crates/sim/src/expose.rs",
        guard: "if is_separating && key.peer != owner {",
        instead: "if is_separating && key.peer != owner && false {",
        test: "tests::keys::a_key_is_good_only_over_links_to_its_peer",
    },
];
