//! The soundness guards, each with its test. A new guard gets an entry here.

use super::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[
    // In flight: the device owns the buffers.
    Mutant {
        name: "a send drops its buffers when it is posted",
        file: "crates/verbs/src/qp/post.rs",
        guard: "room.push_with(|place| InFlight::write(place, tag, operation.kind(), &buffers, &extra));",
        instead:
            "room.push_with(|place| InFlight::write(place, tag, operation.kind(), &Buffers::None, &extra));
                drop(std::ptr::read(&raw const *buffers));",
        test: "table::safe_api::a_forgotten_completion_forgets_no_buffer_before_the_device_is_done",
    },
    Mutant {
        name: "a receive drops its buffers when it is posted",
        file: "crates/verbs/src/qp/recv.rs",
        guard: "let RecvRequest { buffers, tag } = request;",
        instead: "let RecvRequest { buffers, tag } = request; drop(buffers); let buffers = Buffers::None;",
        test: "table::safe_api::a_request_in_flight_keeps_its_buffer_when_every_handle_is_gone",
    },
    Mutant {
        name: "a datagram does not keep its address handle",
        file: "crates/verbs/src/qp/queue.rs",
        guard: "Some(datagram) => Kept::AddressHandle { _ah: unsafe { ptr::read(&raw const datagram.ah) } },",
        instead: "Some(datagram) => { drop(unsafe { ptr::read(&raw const datagram.ah) }); Kept::Nothing }",
        test: "table::safe_api::a_datagram_in_flight_keeps_its_address_handle",
    },
    // Posts that fail.
    Mutant {
        name: "a send in doubt is handed back",
        file: "crates/verbs/src/qp/post.rs",
        guard: "if !std::ptr::eq(bad, &raw const wr) {",
        instead: "if !bad.is_null() && !std::ptr::eq(bad, &raw const wr) {",
        test: "table::safe_api::a_post_in_doubt_keeps_its_buffer_until_the_queue_pair_is_destroyed",
    },
    Mutant {
        name: "a receive in doubt is handed back",
        file: "crates/verbs/src/qp/recv.rs",
        guard: "let is_refused = std::ptr::eq(bad, &raw const wr);",
        instead: "let is_refused = bad.is_null() || std::ptr::eq(bad, &raw const wr);",
        test: "table::safe_api::a_post_in_doubt_keeps_its_buffer_until_the_queue_pair_is_destroyed",
    },
    Mutant {
        name: "a list in doubt is handed back",
        file: "crates/verbs/src/qp/list.rs",
        guard: "index < count { index } else { count }",
        instead: "index < count { index } else { 0 }",
        test: "table::safe_api::a_list_in_doubt_is_in_flight_whole",
    },
    // Completions.
    Mutant {
        name: "a failed poll is taken for a good one",
        file: "crates/verbs/src/cq/poller.rs",
        guard: "*filled = unsafe { self.cq.poll_raw(batch) }?;",
        instead: "*filled = unsafe { self.cq.poll_raw(batch) }.unwrap_or(1);",
        test: "table::safe_api::a_failed_poll_releases_nothing",
    },
    Mutant {
        name: "a completion retires what is not its own",
        file: "crates/verbs/src/qp/ring.rs",
        guard: "if last.wrapping_sub(number) >= in_flight {",
        instead: "if in_flight == 0 {",
        test: "table::safe_api::a_completion_that_nobody_waits_for_frees_nothing",
    },
    Mutant {
        name: "a completion stands for the oldest request only",
        file: "crates/verbs/src/cq/poller.rs",
        guard: "let is_own = number == id.number;",
        instead: "let is_own = true;",
        test: "table::safe_api::unsignalled_requests_come_back_in_order_with_the_next_signalled_one",
    },
    Mutant {
        name: "a shared queue gives back what is not in flight",
        file: "crates/verbs/src/qp/queue.rs",
        guard: "if !std::mem::replace(in_flight, false) {",
        instead: "if !std::mem::replace(in_flight, false) && false {",
        test: "table::safe_api::a_shared_queue_gives_each_buffer_back_once_and_keeps_the_others",
    },
    Mutant {
        name: "a place is used again while its completion is in the hand",
        file: "crates/verbs/src/qp/ring.rs",
        guard: "self.ring.place(self.head.wrapping_sub(self.ring.depth)).is_empty()",
        instead: "self.ring.len() < self.ring.depth",
        test: "table::safe_api::the_place_of_a_completion_in_the_hand_is_not_used_again",
    },
    Mutant {
        name: "a shared queue uses a place again while its completion is in the hand",
        file: "crates/verbs/src/qp/queue.rs",
        guard: "stock.free.pop_if(|number| self.places[*number as usize].is_empty())",
        instead: "stock.free.pop()",
        test: "qp::queue::tests::a_shared_queue_takes_requests_back_in_any_order",
    },
    Mutant {
        name: "an earlier copy of the queues is not kept",
        file: "crates/verbs/src/cq/registry.rs",
        guard: "self.earlier.push(std::mem::replace(&mut self.sources, vec![None; size].into()));",
        instead: "self.sources = vec![None; size].into();",
        test: "cq::registry::tests::a_queue_that_is_gone_stays_until_earlier_copies_are_forgotten",
    },
    Mutant {
        name: "earlier copies of the queues are forgotten while a batch is handed out",
        file: "crates/verbs/src/cq/poller.rs",
        guard: "self.table.follow(self.registry);",
        instead: "self.table.follow(self.registry); self.table.forget_earlier();",
        test: "table::safe_api::a_completion_in_the_hand_outlives_its_queue_pair",
    },
    Mutant {
        name: "earlier copies of the queues are never forgotten",
        file: "crates/verbs/src/cq/registry.rs",
        guard: "self.earlier.clear();",
        instead: "",
        test: "cq::registry::tests::a_queue_that_is_gone_stays_until_earlier_copies_are_forgotten",
    },
    Mutant {
        name: "more may be in flight than the completion queue holds",
        file: "crates/verbs/src/cq/registry.rs",
        guard: "if needed > u64::from(depth) {",
        instead: "if false {",
        test: "table::safe_api::no_more_can_be_in_flight_than_the_completion_queue_holds",
    },
    // The end of a queue pair.
    Mutant {
        name: "a queue pair that is not destroyed frees its buffers",
        file: "crates/verbs/src/qp/mod.rs",
        guard: "self.flight.keep();",
        instead: "",
        test: "table::safe_api::a_queue_pair_that_is_not_destroyed_keeps_its_buffers_for_good",
    },
    Mutant {
        name: "a queue pair that is dropped and not destroyed gives its buffers up",
        file: "crates/verbs/src/qp/mod.rs",
        guard: "if !self.is_released && self.release().is_ok() {",
        instead: "if !self.is_released && { let _ = self.release(); true } {",
        test: "table::safe_api::a_queue_pair_that_is_not_destroyed_keeps_its_buffers_for_good",
    },
    Mutant {
        name: "a queue pair that is not destroyed gives its room away",
        file: "crates/verbs/src/qp/queue.rs",
        guard: "Arc::clone(&self.recv), take(&mut self.attached)",
        instead: "Arc::clone(&self.recv)",
        test: "table::safe_api::a_queue_pair_that_is_not_destroyed_keeps_its_room_in_the_completion_queue",
    },
    // Threads: defects that tests cannot show on a processor that keeps loads in order.
    Mutant {
        name: "who sees that a request was taken need not see that it was posted",
        file: "crates/verbs/src/qp/ring.rs",
        guard: "let number = self.tail.load(Ordering::Acquire);",
        instead: "let number = self.tail.load(Ordering::Relaxed);",
        test: "qp::model::one_polls_while_another_posts_and_destroys",
    },
    Mutant {
        name: "who sees that a request is in flight need not see it",
        file: "crates/verbs/src/qp/ring.rs",
        guard: "let in_flight = self.head.load(Ordering::Acquire)",
        instead: "let in_flight = self.head.load(Ordering::Relaxed)",
        test: "qp::model::one_retires_what_another_posts",
    },
    Mutant {
        name: "a request is in flight before it is written",
        file: "crates/verbs/src/qp/ring.rs",
        guard: "self.ring.head.store(head, Ordering::Release);",
        instead: "self.ring.head.store(head, Ordering::Relaxed);",
        test: "qp::model::one_retires_what_another_posts",
    },
    Mutant {
        name: "a place is empty before its request has left",
        file: "crates/verbs/src/qp/place.rs",
        guard: "let part = place.value.with_mut(|value| read(value.cast()));
        place.is_filled.store(false, Ordering::Release);",
        instead: "let part = place.value.with_mut(|value| read(value.cast()));
        place.is_filled.store(false, Ordering::Relaxed);",
        test: "qp::model::one_posts_while_another_retires",
    },
    Mutant {
        name: "who sees that a place is empty need not see that its request has left",
        file: "crates/verbs/src/qp/place.rs",
        guard: "!self.is_filled.load(Ordering::Acquire)",
        instead: "!self.is_filled.load(Ordering::Relaxed)",
        test: "qp::model::one_posts_while_another_retires",
    },
    // Objects.
    Mutant {
        name: "an object that is not released lets go what it stands on",
        file: "crates/verbs/src/handle/mod.rs",
        guard: "if released.is_ok() { State::Destroyed } else { State::Kept }",
        instead: "State::Destroyed",
        test: "table::what_is_not_released_keeps_all_it_stands_on",
    },
    // Regions and windows.
    Mutant {
        name: "pages are freed though their region is not deregistered",
        file: "crates/verbs/src/region.rs",
        guard: "self.0.dereg().is_ok()",
        instead: "self.0.dereg().is_ok() || true",
        test: "table::region::memory_that_is_not_deregistered_stays_mapped_and_is_counted",
    },
    Mutant {
        name: "a key counts as ended though its region is not deregistered",
        file: "crates/verbs/src/region.rs",
        guard: "        mr.dereg()?;
        // SAFETY: the region",
        instead: "        let _ = mr.dereg();
        // SAFETY: the region",
        test: "table::region::what_a_peer_may_reach_stays_mapped_until_its_key_is_dead",
    },
    Mutant {
        name: "a window does not keep its region",
        file: "crates/verbs/src/qp/bind.rs",
        guard: "state.bound = Some(Bound { region: region.clone(), remote, owner });",
        instead: "let _ = (remote, owner); state.bound = None;",
        test: "table::region::a_window_keeps_its_region_until_it_is_bound_elsewhere_or_revoked",
    },
    Mutant {
        name: "a window that is bound anew lets its region go at once",
        file: "crates/verbs/src/mw.rs",
        guard: "let before = state.bound.as_ref().map(|bound| bound.region.clone());",
        instead: "let before = None;",
        test: "table::region::a_window_keeps_its_region_until_it_is_bound_elsewhere_or_revoked",
    },
    Mutant {
        name: "a window whose new binding fails lets the region go that it leads to",
        file: "crates/verbs/src/mw.rs",
        guard: "state.in_doubt.extend(self.before.clone());",
        instead: "",
        test: "table::region::a_binding_that_fails_leaves_the_window_where_it_may_have_been",
    },
    Mutant {
        name: "a window is bound by two queue pairs at once",
        file: "crates/verbs/src/mw.rs",
        guard: "Some(_) => return None,",
        instead: "Some((_, count)) => count,",
        test: "table::region::a_window_is_bound_by_one_queue_at_a_time",
    },
    Mutant {
        name: "a flag that an operation does not take reaches the device",
        file: "crates/verbs/src/qp/check.rs",
        guard: "        check_flags(operation, flags)?;
",
        instead: "",
        test: "table::safe_api::flags_that_an_operation_does_not_take_are_refused",
    },
    Mutant {
        name: "a window does not keep the region of a binding in doubt",
        file: "crates/verbs/src/qp/bind.rs",
        guard: "state.in_doubt.push(region.clone());",
        instead: "",
        test: "table::region::a_binding_in_doubt_keeps_its_window_and_its_region",
    },
    Mutant {
        name: "a window that is not deallocated lets its region go",
        file: "crates/verbs/src/mw.rs",
        guard: "std::mem::forget(bound);",
        instead: "drop(bound);",
        test: "table::region::a_window_that_is_not_deallocated_keeps_its_region_for_good",
    },
    // Waiting.
    Mutant {
        name: "no second look after the arming",
        file: "crates/verbs/src/cq/wait.rs",
        guard: "if self.fetch()? {
                break;",
        instead: "if false {
                break;",
        test: "table::wait::what_completes_between_the_last_look_and_the_arming_is_found_without_an_event",
    },
    Mutant {
        name: "any wake-up ends a wait",
        file: "crates/verbs/src/cq/wait.rs",
        guard: "            awake_since = Instant::now();
        }",
        instead: "            break;
        }",
        test: "table::wait::a_wake_up_of_an_earlier_arming_ends_no_wait",
    },
    Mutant {
        name: "a queue is destroyed before its events are acknowledged",
        file: "crates/verbs/src/cq/channel.rs",
        guard: "account.is_closed = true;
        // SAFETY: the caller guarantees that the queue lives.
        unsafe { account.acknowledge(lib, cq) };",
        instead: "account.is_closed = true;",
        test: "table::wait::events_are_acknowledged_in_batches_and_before_their_queue_is_destroyed",
    },
    // Operations of libfabric: the same guarantees, with other proofs.
    Mutant {
        name: "an operation is in flight before it is written",
        file: "crates/fabric/src/ep/slots.rs",
        guard: "store(&place.mark, mark, Ordering::Release);",
        instead: "store(&place.mark, mark, Ordering::Relaxed);",
        test: "ep::model::one_takes_what_another_posts",
    },
    Mutant {
        name: "who sees that an operation is in flight need not see it",
        file: "crates/fabric/src/ep/slots.rs",
        guard: "if place.mark.swap(NOTHING, Ordering::Acquire) == NOTHING {",
        instead: "if place.mark.swap(NOTHING, Ordering::Relaxed) == NOTHING {",
        test: "ep::model::one_takes_what_another_posts",
    },
    Mutant {
        name: "a place that is put in line forgets who came behind it",
        file: "crates/fabric/src/ep/slots.rs",
        guard: "let before = self.back.last.swap(offset, Ordering::AcqRel);",
        instead: "let before = self.back.last.swap(offset, Ordering::Relaxed);",
        test: "ep::model::two_who_take_share_what_is_left",
    },
    Mutant {
        name: "a place is in line before its operation has left",
        file: "crates/fabric/src/ep/slots.rs",
        guard: "before.next.store(offset, Ordering::Release);",
        instead: "before.next.store(offset, Ordering::Relaxed);",
        test: "ep::model::one_posts_while_another_takes",
    },
    Mutant {
        name: "who takes a place out of the line need not see that it is empty",
        file: "crates/fabric/src/ep/slots.rs",
        guard: "let next = place.next.load(Ordering::Acquire);",
        instead: "let next = place.next.load(Ordering::Relaxed);",
        test: "ep::model::one_posts_while_another_takes",
    },
    Mutant {
        name: "who was refused takes back another's operation",
        file: "crates/fabric/src/ep/slots.rs",
        guard: "place.mark.compare_exchange(mark, NOTHING, Ordering::Acquire, Ordering::Relaxed).ok()?;",
        instead: "let _ = mark; (place.mark.swap(NOTHING, Ordering::Acquire) != NOTHING).then_some(())?;",
        test: "ep::model::who_was_refused_takes_back_only_his_own",
    },
    Mutant {
        name: "an address between two contexts finds one",
        file: "crates/fabric/src/ep/slots.rs",
        guard: "if offset.rotate_right(STRIDE.trailing_zeros()) >= self.places.len() {",
        instead: "if offset / STRIDE >= self.places.len() {",
        test: "ep::slots::tests::only_the_address_of_a_context_finds_one",
    },
    Mutant {
        name: "a slot is used again while its completion is in the hand",
        file: "crates/fabric/src/ep/slots.rs",
        guard: "        Some(Taken { slots, place })",
        instead: "        slots.put_last(place); Some(Taken { slots, place })",
        test: "ep::slots::tests::a_place_is_not_used_again_while_its_operation_is_looked_at",
    },
    Mutant {
        name: "the addresses of a closed endpoint are another's at once",
        file: "crates/fabric/src/cq/registry.rs",
        guard: "            tables.dying.push(Arc::clone(slots));
",
        instead: "",
        test: "cq::registry::tests::a_context_is_found_in_its_table_until_the_queue_was_empty",
    },
    Mutant {
        name: "a table is gone while its completion is in the hand",
        file: "crates/fabric/src/cq/registry.rs",
        guard: "self.earlier.append(&mut self.tables);",
        instead: "self.tables.clear();",
        test: "cq::registry::tests::a_table_that_is_gone_stays_until_earlier_copies_are_forgotten",
    },
    Mutant {
        name: "the address of a closed endpoint leads to where its memory was",
        file: "crates/fabric/src/ep/kept.rs",
        guard: "name(address).is_none_or(|name| self.closed.contains(name))",
        instead: "self.closed.contains(address.bytes())",
        test: "ep::kept::tests::no_other_text_leads_to_an_endpoint_that_was_closed",
    },
    // Waits and silence.
    Mutant {
        name: "memory comes back although a device has registered the pages before the exchange",
        file: "crates/memory/src/exchange.rs",
        guard: "let renewed = self.memory.renew_registrations();",
        instead: "let renewed: Result<(), String> = Ok(());",
        test: "exchange::tests::memory_comes_back_when_devices_have_registered_the_new_pages",
    },
    Mutant {
        name: "a transfer does not have its peer pinged",
        file: "crates/proto/src/machine/transfer.rs",
        guard: "        self.expect(key);",
        instead: "",
        test: "machine::tests::liveness::every_kind_of_wait_ends_with_a_silent_peer",
    },
    Mutant {
        name: "an answered ping is the last one",
        file: "crates/proto/src/machine/frame.rs",
        guard: "        if peer.liveness.hear(now) {",
        instead: "        if peer.liveness.hear(now) && false {",
        test: "machine::tests::liveness::a_peer_that_nothing_waits_for_is_pinged_rarely",
    },
    // Leader and followers.
    Mutant {
        name: "what was queued is forgotten when the leader steps down",
        file: "crates/engine/src/progress/followers.rs",
        guard: "return self.take(LeaderKind::Brief).map_or(Handover::Nothing, Handover::Lead);",
        instead: "return Handover::Nothing;",
        test: "progress::model::a_command_is_applied_though_nobody_waits",
    },
    Mutant {
        name: "a sleeping leader gets no wakeup",
        file: "crates/engine/src/progress/followers.rs",
        guard: "SubmitAction::Queued { must_wake: self.must_wake() }",
        instead: "SubmitAction::Queued { must_wake: false }",
        test: "progress::model::a_command_reaches_a_leader_that_falls_asleep",
    },
    Mutant {
        name: "a leader looks for commands first, and says then that it sleeps",
        file: "crates/engine/src/progress/lead.rs",
        guard: "        drop(followers);
        leader.machine.sleep(until);",
        instead: "        followers.wake_up();
        drop(followers);
        let _ = self.followers().fall_asleep();
        leader.machine.sleep(until);",
        test: "progress::model::a_command_reaches_a_leader_that_falls_asleep",
    },
    Mutant {
        name: "a wakeup is lost on one that is about to sleep",
        file: "crates/engine/src/control/wakeup.rs",
        guard: "self.0.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire).is_ok();",
        instead: "self.0.load(Ordering::Acquire) == AWAKE;
        if fell { self.0.store(ASLEEP, Ordering::Release); }",
        test: "control::model::a_sleeper_sees_what_was_left_before_a_wakeup",
    },
    Mutant {
        name: "a leader that steps down wakes nobody",
        file: "crates/engine/src/progress/followers.rs",
        guard: "return Handover::Wake(Arc::clone(first));",
        instead: "let _ = first;",
        test: "progress::model::leadership_is_passed_on",
    },
    Mutant {
        name: "a waiter that gives up lets nobody lead",
        file: "crates/engine/src/progress/followers.rs",
        guard: "        self.remove(&mut place);
        self.next()",
        instead: "        self.remove(&mut place);
        Handover::Nothing",
        test: "progress::model::a_waiter_that_gives_up_lets_another_lead",
    },
    Mutant {
        name: "who parks does not look once more",
        file: "crates/engine/src/progress/mod.rs",
        guard: "            if !awaited.is_ready() {
                parker.park",
        instead: "            {
                parker.park",
        test: "progress::model::an_answer_reaches_who_is_parked",
    },
    Mutant {
        name: "the worker sleeps though it must step down",
        file: "crates/engine/src/progress/followers.rs",
        guard: "self.commands.is_empty() && !self.must_worker_step_down()",
        instead: "self.commands.is_empty()",
        test: "progress::model::the_worker_ends_when_told",
    },
    Mutant {
        name: "a panic of the leader is told to nobody",
        file: "crates/engine/src/progress/lead.rs",
        guard: "woken.iter().for_each(|parker| parker.unpark());",
        instead: "drop(woken);",
        test: "progress::model::a_panic_ends_a_wait_that_nothing_else_ends",
    },
    // The control channel.
    Mutant {
        name: "nothing bounds what waits for a peer that does not read",
        file: "crates/engine/src/control/mod.rs",
        guard: "if connection.unwritten() > QUEUED_MAX {",
        instead: "if connection.unwritten() == usize::MAX {",
        test: "control::tests::ends::a_peer_that_does_not_read_is_given_up",
    },
    Mutant {
        name: "who is refused is reset, and does not learn our version",
        file: "crates/engine/src/control/mod.rs",
        guard: "} else if reason.is_refusal() {",
        instead: "} else if false {",
        test: "control::tests::refusals::an_older_caller_is_told_apart_and_learns_our_version",
    },
    // Memory.
    Mutant {
        name: "pages are freed though a card may reach them",
        file: "crates/memory/src/memory.rs",
        guard: "if self.registrations.release_all() {",
        instead: "if self.registrations.release_all() || true {",
        test: "memory::tests::pages_are_freed_when_the_last_slice_is_gone_and_the_cards_forgot_them",
    },
    Mutant {
        name: "two slices overlap",
        file: "crates/memory/src/range.rs",
        guard: "        self.len = at;
",
        instead: "",
        test: "slice::tests::splitting_moves_the_bytes_and_joining_brings_them_back",
    },
    Mutant {
        name: "slices of two allocations are joined",
        file: "crates/memory/src/range.rs",
        guard: "!self.memory.is_same(&next.memory) || ",
        instead: "",
        test: "slice::tests::neighbours_of_another_allocation_do_not_join",
    },
    Mutant {
        name: "memory becomes a slice though a key to it is left",
        file: "crates/memory/src/exposed.rs",
        guard: "if self.keys() > 0 {",
        instead: "if false {",
        test: "key_guard::tests::memory_comes_back_when_the_last_key_is_ended",
    },
    Mutant {
        name: "a key that was not ended frees its pages",
        file: "crates/memory/src/key_guard.rs",
        guard: "std::mem::forget(memory);",
        instead: "drop(memory);",
        test: "key_guard::tests::guards_that_are_dropped_leak_the_memory_and_count_it_once",
    },
    Mutant {
        name: "a key that writes is made to shared memory",
        file: "crates/memory/src/exposed.rs",
        guard: "if self.is_read_only() && access == KeyAccess::Write {",
        instead: "if false {",
        test: "exposed::tests::shared_memory_is_exposed_for_reading_only",
    },
    Mutant {
        name: "shared memory becomes a slice though a peer may read it",
        file: "crates/memory/src/exposed.rs",
        guard: "let keys = Arc::new(Keys::of_shared(shared.clone()));",
        instead: "let keys = Arc::<Keys>::default();",
        test: "exposed::tests::shared_memory_stays_shared_while_a_peer_may_read_it",
    },
    Mutant {
        name: "a window that writes is bound to shared memory",
        file: "crates/verbs/src/qp/bind.rs",
        guard: "if access.intersects(CHANGES) && !mr.access().contains(AccessFlags::LOCAL_WRITE) {",
        instead: "if false {",
        test: "table::region::nothing_changes_shared_memory",
    },
    Mutant {
        name: "an address that wraps reaches the target",
        file: "crates/fabric/src/op/remote.rs",
        guard: "len: len.min(ADDRESS_END - address)",
        instead: "len",
        test: "op::remote::tests::nothing_lies_where_a_sum_of_addresses_could_wrap",
    },
    Mutant {
        name: "exposed memory is reached beyond its end",
        file: "crates/memory/src/exposed.rs",
        guard: "end.is_some_and(|end| end <= self.len()),",
        instead: "end.is_some(),",
        test: "exposed::tests::nothing_beyond_the_end_is_reached",
    },
    // Memory that another process maps.
    Mutant {
        name: "an exchange leaves the old pages in their place",
        file: "crates/memory/src/exchange.rs",
        guard: "fresh.replace(target, &old, &self.maps)?;",
        instead: "let _ = (fresh, target);",
        test: "exchange::tests::bytes_stay_and_late_bytes_do_not_appear",
    },
    Mutant {
        name: "an exchange ends keys before its last page",
        file: "crates/memory/src/exchange.rs",
        guard: "if !self.is_registered {
            return Err(self);",
        instead: "if false {
            return Err(self);",
        test: "exchange::tests::an_exchange_that_is_dropped_leaks_the_memory",
    },
    // A forked child has the descriptors of its parent, and not the pages.
    Mutant {
        name: "an exchange goes on in a forked child",
        file: "crates/memory/src/exchange.rs",
        guard: "if mapped.is_of_parent() { Err(ExchangeError::Forked) } else { Ok(mapped) }",
        instead: "Ok(mapped)",
        test: "exchange::tests::a_forked_child_changes_nothing_of_its_parent",
    },
    Mutant {
        name: "a forked child changes a file of its parent",
        file: "crates/memory/src/mem_file.rs",
        guard: "if self.epoch == process_epoch() {",
        instead: "if true {",
        test: "exchange::tests::a_forked_child_changes_nothing_of_its_parent",
    },
    Mutant {
        name: "a forked child ends registrations of its parent",
        file: "crates/memory/src/registration.rs",
        guard: "if kept.epoch != epoch {",
        instead: "if false && kept.epoch != epoch {",
        test: "exchange::tests::a_forked_child_changes_nothing_of_its_parent",
    },
    Mutant {
        name: "the size of shared memory is not sealed",
        file: "crates/memory/src/mem_file.rs",
        guard: "fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;",
        instead: "",
        test: "mem_file::tests::the_size_is_sealed_and_seals_are_final_when_a_descriptor_is_passed",
    },
    Mutant {
        name: "a peer's memory is mapped although its size is not sealed",
        file: "crates/shm/src/map.rs",
        guard: "if !seals.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL) {",
        instead: "if false {",
        test: "map::tests::what_is_no_sealed_memory_is_refused",
    },
    Mutant {
        name: "a late copy counts as complete",
        file: "crates/shm/src/operation.rs",
        guard: "self.check_generations(&targets[first..=last])?;",
        instead: "let _ = (first, last);",
        test: "operation::tests::a_copy_that_ends_after_a_revocation_is_revoked",
    },
    Mutant {
        name: "a copy exceeds the grant",
        file: "crates/shm/src/remote.rs",
        guard: "if offset.checked_add(len).is_none_or(|end| end > self.len) {",
        instead: "if offset.checked_add(len).is_none_or(|end| end > self.len + 4096) {",
        test: "operation::tests::nothing_beyond_the_grant_is_accessed",
    },
    // Transfers that are performed within the call.
    Mutant {
        name: "a performed read writes to a buffer that others read",
        file: "crates/shm/src/link/perform.rs",
        guard: "Request::Read { targets: [target] } if buffer.is_writable() =>",
        instead: "Request::Read { targets: [target] } =>",
        test: "link::perform::tests::only_the_bytes_of_a_buffer_are_moved_and_only_if_nobody_else_reads_them",
    },
    Mutant {
        name: "a performed request ends beyond its buffer",
        file: "crates/shm/src/link/perform.rs",
        guard: "let is_within = buffer.len().checked_sub(offset).is_some_and(|left| target.len <= left as u64);",
        instead: "let is_within = true;",
        test: "link::perform::tests::only_the_bytes_of_a_buffer_are_moved_and_only_if_nobody_else_reads_them",
    },
    Mutant {
        name: "a performed request overtakes those that are queued",
        file: "crates/shm/src/link/perform.rs",
        guard: "if !is_within || !is_short || !self.operations.is_empty() || self.check().is_err() {",
        instead: "if !is_within || !is_short || self.check().is_err() {",
        test: "link::perform::tests::nothing_overtakes_what_is_queued",
    },
    Mutant {
        name: "what was performed over a lost link is not reconciled",
        file: "crates/proto/src/outbox.rs",
        guard: "        self.links.finish(link, bytes);
        if let Some(immediate) = immediate {",
        instead: "        self.links.finish(link, bytes);
        if let Some(immediate) = immediate.filter(|_| false) {",
        test: "machine::tests::short::what_the_peer_did_not_get_is_added_after_its_link_is_lost",
    },
    Mutant {
        name: "a performed transfer overtakes messages",
        file: "crates/proto/src/machine/short.rs",
        guard: "if self.has_control() || !self.turns.are_over(new.priority) {",
        instead: "if self.has_control() {",
        test: "machine::tests::short::nothing_overtakes_what_is_queued",
    },
    // Confirmations of messages.
    Mutant {
        name: "a confirmation is lost with the link that carried it",
        file: "crates/proto/src/machine/message.rs",
        guard: "        peer.incoming.confirm_again();\n",
        instead: "",
        test: "machine::tests::confirmations::a_confirmation_is_made_again_after_the_loss_of_a_link_that_may_have_carried_it",
    },
    Mutant {
        name: "a confirmation waits for an answer for as long as it takes",
        file: "crates/proto/src/machine/message.rs",
        guard: "if self.peer(key).is_some_and(|peer| peer.incoming.was_not_answered(at)) {",
        instead: "if self.peer(key).is_some_and(|peer| peer.incoming.was_not_answered(at + 1)) {",
        test: "machine::tests::confirmations::without_an_answer_a_frame_carries_it_in_time",
    },
    Mutant {
        name: "a goodbye comes without the last confirmation",
        file: "crates/proto/src/machine/peer_timers.rs",
        guard: "                self.confirm(key);\n",
        instead: "",
        test: "machine::tests::confirmations::a_goodbye_follows_the_confirmation",
    },
    // Pages that are longer than an operation.
    Mutant {
        name: "the end of a page is counted before its beginning has arrived",
        file: "crates/proto/src/outbox.rs",
        guard: "if transfer.begun_on.is_some() && transfer.must_wait(&limits) {",
        instead: "if false && transfer.must_wait(&limits) {",
        test: "outbox::tests::the_end_of_a_counted_page_waits_for_its_beginning_where_nothing_keeps_the_order",
    },
    // Deadlines.
    Mutant {
        name: "a late transfer ends while a card has a part of its memory",
        file: "crates/proto/src/outbox.rs",
        guard: "if transfer.in_flight == 0 && !transfer.has_posts() && transfer.owed == 0 {",
        instead: "if (transfer.in_flight == 0 || transfer.is_aborted) && !transfer.has_posts() && transfer.owed == 0 {",
        test: "machine::tests::deadlines::one_that_is_partly_posted_ends_when_nothing_of_it_is_in_flight",
    },
    Mutant {
        name: "bytes that were sent twice count twice as delivered",
        file: "crates/proto/src/outbox.rs",
        guard: "self.delivered.saturating_sub(self.repeated)",
        instead: "self.delivered",
        test: "outbox::tests::a_page_whose_link_is_lost_between_its_parts_begins_again",
    },
    // Memory that begins as a vector.
    Mutant {
        name: "a vector comes back while a registration of it has not ended",
        file: "crates/memory/src/memory.rs",
        guard: "let is_released = inner.registrations.release_all();",
        instead: "let is_released = inner.registrations.release_all() || true;",
        test: "memory::tests::a_vector_that_a_device_may_still_access_is_leaked_and_comes_back_as_a_copy",
    },
    Mutant {
        name: "a part of a vector comes back as the whole",
        file: "crates/memory/src/range.rs",
        guard: "if self.len != self.memory.len() {",
        instead: "if false {",
        test: "from_vec::tests::parts_come_back_as_a_vector_when_they_are_joined_again",
    },
    Mutant {
        name: "a vector is freed twice",
        file: "crates/memory/src/allocation.rs",
        guard: "self.origin = Origin::Taken;",
        instead: "",
        test: "from_vec::tests::a_vector_comes_back_as_it_was_with_what_was_written",
    },
    // Writes that share a request for delivery.
    Mutant {
        name: "a write is completed when its bytes have left",
        file: "crates/engine/src/rails/fabric/groups.rs",
        guard: "(State::InFlight, Ok(())) if !asks => {",
        instead: "(State::InFlight, Ok(())) if !asks && false => {",
        test: "rails::fabric::groups::tests::a_write_that_has_left_is_held_until_the_end_of_its_group_is_delivered",
    },
    Mutant {
        name: "an answer proves the groups before its own",
        file: "crates/engine/src/rails/fabric/groups.rs",
        guard: ".map_or(0, |last| last + 1);",
        instead: ".map_or(0, |_| 0);",
        test: "rails::fabric::groups::tests::a_group_is_proven_by_its_own_end_only",
    },
    Mutant {
        name: "an answer proves a group with a failed write",
        file: "crates/engine/src/rails/fabric/groups.rs",
        guard: "is_delivered && !self.posted.range(start..end).any(|it| matches!(it.state, State::Failed));",
        instead: "is_delivered;",
        test: "rails::fabric::groups::tests::the_error_of_a_write_is_told_first_and_proves_nothing_of_its_group",
    },
    Mutant {
        name: "a group whose end has failed is proven",
        file: "crates/engine/src/rails/fabric/groups.rs",
        guard: "is_delivered && !self.posted.range(start..end)",
        instead: "!self.posted.range(start..end)",
        test: "rails::fabric::groups::tests::a_group_whose_end_fails_has_failed",
    },
    Mutant {
        name: "the beginning of a group is proven without its end",
        file: "crates/engine/src/rails/fabric/groups.rs",
        guard: "self.end_group(self.posted.len(), false, tell);",
        instead: "self.end_group(self.posted.len(), true, tell);",
        test: "rails::fabric::groups::tests::the_beginning_of_a_group_without_an_end_has_failed",
    },
    Mutant {
        name: "held writes are lost with their link",
        file: "crates/engine/src/rails/fabric/groups.rs",
        guard: "State::Sent(buffers) => Some((it.tag, buffers)),",
        instead: "State::Sent(_) => None,",
        test: "rails::fabric::groups::tests::the_end_of_a_link_gives_everything_back_once",
    },
    Mutant {
        name: "a write overtakes those that wait for their group",
        file: "crates/engine/src/rails/fabric/groups.rs",
        guard: "self.unreported >= AHEAD || !self.waiting.is_empty()",
        instead: "self.unreported >= AHEAD",
        test: "rails::fabric::groups::tests::a_write_waits_only_while_enough_are_ahead_of_it",
    },
    Mutant {
        name: "writes wait for their group while nothing happens",
        file: "crates/engine/src/rails/fabric/groups.rs",
        guard: "                || self.idle_polls >= IDLE_POLLS\n",
        instead: "",
        test: "rails::fabric::groups::tests::a_group_is_due_when_polls_find_nothing",
    },
    Mutant {
        name: "a provider that nothing is known of proves groups",
        file: "crates/fabric/src/profile.rs",
        guard: "    delivery_covers_earlier: false,\n    target_must_know_initiator: true,",
        instead: "    delivery_covers_earlier: true,\n    target_must_know_initiator: true,",
        test: "profile::tests::what_is_not_known_is_treated_with_care",
    },
    Mutant {
        name: "an end for one peer is not proven and is said to be",
        file: "crates/proto/src/machine/own_grants.rs",
        guard: "let is_late = now >= ending.until.deadline && !ending.until.is_proven;",
        instead: "let is_late = now >= ending.until.deadline;",
        test: "machine::tests::reported_keys::published_memory_is_not_said_to_be_revoked_before_that_is_proven",
    },
    Mutant {
        name: "a peer is said to have lost what is being made for it",
        file: "crates/proto/src/machine/publications.rs",
        guard: "let holders = self.all.get(&id)?.grants.keys().copied();",
        instead: "let is_made = |it: &PeerGrant| !matches!(it, PeerGrant::Making { .. });
        let all = self.all.get(&id)?.grants.iter();
        let holders = all.filter(|(_, it)| is_made(it)).map(|(peer, _)| *peer);",
        test: "machine::tests::publish::a_grant_that_is_being_made_is_revoked_before_that_is_answered",
    },
    Mutant {
        name: "whoever lost a publication opens it over another connection",
        file: "crates/proto/src/machine/admission.rs",
        guard: "if self.peers.contains(&peer) || has_one(names, &self.expelled) {",
        instead: "if self.peers.contains(&peer) {",
        test: "machine::tests::publish::a_withdrawal_holds_for_all_connections_with_a_name",
    },
    // Exchanges of pages beside an owner that goes on.
    Mutant {
        name: "what the owner writes while pages are exchanged is lost",
        file: "crates/memory/src/key_guard.rs",
        guard: "if before.is_multiple_of(2) && self.changes.load(Ordering::Relaxed) == before {",
        instead: "if before.is_multiple_of(2) {",
        test: "key_guard::tests::what_is_written_while_pages_change_is_written_again",
    },
    Mutant {
        name: "a key is made while pages are exchanged",
        file: "crates/memory/src/key_guard.rs",
        guard: "(live & EXCHANGING == 0).then_some(live + 1)",
        instead: "Some(live + 1)",
        test: "exchange::tests::memory_can_be_granted_again_when_it_has_been_exchanged",
    },
    Mutant {
        name: "pages to which there are other keys are exchanged",
        file: "crates/memory/src/exchange.rs",
        guard: "if !keys.begin_exchange(guards.len()) {",
        instead: "if !keys.begin_exchange(keys.count()) {",
        test: "exchange::tests::other_keys_refuse_it",
    },
    Mutant {
        name: "pages of shared memory are exchanged",
        file: "crates/memory/src/exchange.rs",
        guard: "if keys.is_shared() {",
        instead: "if false {",
        test: "exchange::tests::shared_memory_is_not_exchanged",
    },
    Mutant {
        name: "pages are exchanged while their owner may change them",
        file: "crates/memory/src/exchange.rs",
        guard: "if keys.is_slice() || (owner_has_handle && keys.has_atomics()) {",
        instead: "if false {",
        test: "exchange::tests::what_the_owner_may_change_is_not_exchanged",
    },
    Mutant {
        name: "a link ends a grant of another link",
        file: "crates/shm/src/grants.rs",
        guard: "own.guard.is_none() && link == self.link",
        instead: "own.guard.is_none()",
        test: "grants::tests::a_grant_goes_back_to_its_own_link",
    },
    Mutant {
        name: "pages are exchanged under an atomic of the owner",
        file: "crates/memory/src/exposed.rs",
        guard: "self.keys.note_atomic();",
        instead: "",
        test: "exposed::tests::an_atomic_of_the_owner_is_noted",
    },
    // Lists of regions, and prepared transfers.
    Mutant {
        name: "a device writes to exposed memory that references exist to",
        file: "crates/memory/src/exposed_part.rs",
        guard: "!self.memory.is_read_only()",
        instead: "true",
        test: "exposed_part::tests::nothing_writes_to_memory_that_is_shared",
    },
    Mutant {
        name: "a part of exposed memory ends beyond it",
        file: "crates/memory/src/exposed_part.rs",
        guard: "let part = bounds::within(&range, self.len)?;",
        instead: "let part = bounds::within(&range, self.memory.len())?;",
        test: "exposed_part::tests::parts_of_parts_keep_their_place_and_their_memory",
    },
    Mutant {
        name: "a segment ends beyond the peer's memory",
        file: "crates/engine/src/list.rs",
        guard: "() if len > remote.len => ",
        instead: "() if len == u64::MAX => ",
        test: "list::tests::a_range_that_ends_beyond_the_memory_of_the_peer_is_refused",
    },
    Mutant {
        name: "segments overlap at the destination",
        file: "crates/proto/src/segments.rs",
        guard: "Some((first, second)) => Err(PlanError::SegmentsOverlap { first, second }),",
        instead: "Some(_) => Ok(Self(list)),",
        test: "segments::tests::only_destinations_must_not_overlap",
    },
    Mutant {
        name: "an operation has bytes of two regions",
        file: "crates/proto/src/plan.rs",
        guard: "} else if operation.region != page.region {",
        instead: "} else if operation.region > u32::MAX - 1 {",
        test: "segments::tests::an_operation_stays_within_one_region",
    },
    Mutant {
        name: "a prepared transfer returns its memory while a start runs",
        file: "crates/engine/src/starts.rs",
        guard: "self.running.load(Ordering::SeqCst) == 0",
        instead: "true",
        test: "starts::tests::all_are_over_when_each_has_ended",
    },
];
