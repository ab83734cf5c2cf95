//! Operations between two ends in one process.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use farreach_memory::{Buffer, Buffers, Memory};
use farreach_shm::{Access, Event, GrantError, LinkError, OperationError, PostError, Request, Target};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::pair::{Completed, pair, run, slice, wait};

fn target(key: u64, offset: u64, len: u64) -> Target {
    Target { key, offset, len }
}

#[test]
fn scattered_pages_are_there_when_they_are_counted() {
    let (mut server, mut client) = pair();
    let memory = Memory::allocate(64 * 4096).unwrap().expose();
    let key = server.grant(&memory, Access::ReadWrite).unwrap();
    let mut source = Memory::allocate(8 * 4096).unwrap();
    for (index, byte) in source.iter_mut().enumerate() {
        *byte = (index / 4096 + 1) as u8;
    }
    // Two buffers that do not end where pages end.
    let rest = source.split_off(5000);
    let targets: Vec<_> = (0..8).map(|page| target(key, (page * 7 + 1) * 4096, 4096)).collect();
    let request = Request::Write { targets: &targets, immediate: Some(8) };
    client.post(3, request, Buffers::of_slices(vec![source, rest])).unwrap();
    let mut counted = None;
    wait("an immediate", || {
        client.poll(|_| {});
        server.poll(|event| {
            if let Event::Immediate(bits) = event {
                counted = Some(bits);
            }
        });
        counted
    });
    let bytes = memory.to_vec();
    for page in 0..64 {
        let expected = if page % 7 == 1 && page / 7 < 8 { page / 7 + 1 } else { 0 };
        assert!(
            bytes[page * 4096..][..4096].iter().all(|byte| usize::from(*byte) == expected),
            "page {page}"
        );
    }
    let read =
        run(&mut client, &mut server, Request::Read { targets: &targets[2..3] }, slice(&[0; 4096]).into());
    assert_eq!(read.buffers.into_slice().unwrap()[..], [3; 4096]);
}

/// One transfer takes many polls, and a message overtakes it.
#[test]
fn a_long_transfer_does_not_delay_messages() {
    let (mut server, mut client) = pair();
    let len = 16 << 20;
    let memory = Memory::allocate(len).unwrap().expose();
    let key = server.grant(&memory, Access::ReadWrite).unwrap();
    let mut source = Memory::allocate(len).unwrap();
    source.fill(9);
    let targets = [target(key, 0, len as u64)];
    client.post(1, Request::Write { targets: &targets, immediate: Some(1) }, source.into()).unwrap();
    client.post(2, Request::Send, slice(b"quick").into()).unwrap();
    let (mut order, mut polls) = (Vec::new(), 0);
    wait("both", || {
        polls += 1;
        client.poll(|event| {
            if let Event::Completed { tag, outcome, .. } = event {
                outcome.unwrap();
                order.push(tag);
            }
        });
        (order.len() == 2).then_some(())
    });
    assert!(order == [2, 1] && polls >= len / (256 << 10), "{order:?} after {polls} polls");
    assert!(memory.to_vec().iter().all(|byte| *byte == 9));
}

#[test]
fn short_requests_are_performed_at_once_and_counted() {
    let (mut server, mut client) = pair();
    let memory = Memory::allocate(4096).unwrap().expose();
    let key = server.grant(&memory, Access::ReadWrite).unwrap();
    let mut source = Buffer::from(slice(b"0123456789").share());
    let at = [target(key, 100, 4)];
    let write = Request::Write { targets: &at, immediate: Some(9) };
    assert!(!client.perform(write, &mut source, 3), "the key has not arrived");
    wait("the key", || {
        client.poll(|_| {});
        client.perform(write, &mut source, 3).then_some(())
    });
    assert_eq!(client.in_flight(), 0);
    assert_eq!(memory.to_vec()[98..106], [0, 0, b'3', b'4', b'5', b'6', 0, 0]);
    let mut counted = Vec::new();
    server.poll(|event| {
        if let Event::Immediate(bits) = event {
            counted.push(bits);
        }
    });
    assert_eq!(counted, [9], "once");

    let mut into = Buffer::from(slice(&[b'-'; 8]));
    assert!(client.perform(Request::Read { targets: &[target(key, 101, 3)] }, &mut into, 2));
    assert_eq!(into.into_slice().unwrap()[..], *b"--456---");
}

fn write(at: &Target) -> Request<'_> {
    Request::Write { targets: std::slice::from_ref(at), immediate: Some(1) }
}

#[test]
fn what_cannot_be_performed_is_not_counted() {
    let (mut server, mut client) = pair();
    let memory = Memory::allocate(1 << 20).unwrap().expose();
    let read_only = Memory::allocate(4096).unwrap().expose();
    let key = server.grant(&memory, Access::ReadWrite).unwrap();
    let read_key = server.grant(&read_only, Access::ReadOnly).unwrap();
    let mut source = Buffer::from(slice(&[7; 16]));
    let mut shared = Buffer::from(slice(&[7; 16]).share());
    wait("the keys", || {
        client.poll(|_| {});
        client.perform(Request::Read { targets: &[target(read_key, 0, 1)] }, &mut source, 0).then_some(())
    });
    source = Buffer::from(slice(&[7; 16]));
    let fine = target(key, 0, 16);
    let cannot = [
        ("offset", fine, 1),
        ("far offset", fine, usize::MAX),
        ("beyond the grant", target(key, (1 << 20) - 15, 16), 0),
        ("wrapped", target(key, u64::MAX, 16), 0),
        ("unknown key", target(key + 1, 0, 16), 0),
        ("read only", target(read_key, 0, 16), 0),
    ];
    for (what, at, offset) in cannot {
        assert!(!client.perform(write(&at), &mut source, offset), "{what}");
    }
    let two = [target(key, 0, 8), target(key, 8, 8)];
    let cannot = [
        Request::Write { targets: &two, immediate: Some(1) },
        Request::Write { targets: &[], immediate: Some(1) },
        Request::Send,
        Request::FetchAdd { target: two[0], add: 1 },
    ];
    for request in cannot {
        assert!(!client.perform(request, &mut source, 0), "{request:?}");
    }
    let read = Request::Read { targets: &[target(key, 0, 16)] };
    assert!(!client.perform(read, &mut shared, 0), "others read the buffer");
    let mut long = Buffer::from(slice(&vec![7; (256 << 10) + 1]));
    assert!(!client.perform(write(&target(key, 4096, (256 << 10) + 1)), &mut long, 0), "more than a step");
    assert_eq!(memory.to_vec()[..4096], [0; 4096]);

    // A long operation is queued before it.
    let mut bytes = Memory::allocate(1 << 20).unwrap();
    bytes.fill(3);
    let all = [target(key, 0, 1 << 20)];
    client.post(1, Request::Write { targets: &all, immediate: None }, bytes.into()).unwrap();
    assert!(!client.perform(write(&fine), &mut source, 0), "something is queued");
    wait("the long one", || {
        client.poll(|_| {});
        (client.in_flight() == 0).then_some(())
    });
    let mut performed = 0;
    while client.perform(write(&fine), &mut source, 0) {
        performed += 1;
    }
    let mut counted = 0;
    wait("all that were counted", || {
        server.poll(|event| counted += u32::from(matches!(event, Event::Immediate(1))));
        (counted == performed).then_some(())
    });
    server.poll(|event| assert!(!matches!(event, Event::Immediate(_)), "more than were performed"));
    assert!(performed >= 1000 && client.perform(write(&fine), &mut source, 0), "the ring has room again");

    server.revoke(key);
    assert!(!client.perform(write(&fine), &mut source, 0), "it is revoked");
}

#[test]
fn atomics_change_words_and_return_what_was_there() {
    let (mut server, mut client) = pair();
    let memory = Memory::allocate(4096).unwrap().expose();
    let key = server.grant(&memory, Access::ReadWrite).unwrap();
    memory.atomic_at(8).store(40, Ordering::Relaxed);
    let mut word = |request| {
        let Completed { buffers, outcome } = run(&mut client, &mut server, request, slice(&[0; 8]).into());
        outcome.map(|()| u64::from_ne_bytes(buffers.into_slice().unwrap()[..].try_into().unwrap()))
    };
    let at = target(key, 8, 8);
    assert_eq!(word(Request::FetchAdd { target: at, add: 2 }).unwrap(), 40);
    assert_eq!(word(Request::CompareSwap { target: at, expected: 0, desired: 1 }).unwrap(), 42);
    assert_eq!(word(Request::CompareSwap { target: at, expected: 42, desired: 7 }).unwrap(), 42);
    assert!(matches!(
        word(Request::FetchAdd { target: target(key, 4, 8), add: 1 }),
        Err(OperationError::NotAWord)
    ));
    assert!(matches!(
        word(Request::FetchAdd { target: target(key, 4096, 8), add: 1 }),
        Err(OperationError::OutOfBounds { .. })
    ));
    assert_eq!(memory.atomic_at(8).load(Ordering::Relaxed), 7);
}

#[test]
fn messages_of_all_lengths_arrive_in_order_also_if_nobody_takes_them_for_a_while() {
    let (mut server, mut client) = pair();
    let lens: Vec<_> = (0..200).map(|index| index * client.message_max() / 199).collect();
    let (mut posted, mut arrived) = (0, 0);
    wait("messages", || {
        while let Some(len) = lens.get(posted) {
            let message = vec![posted as u8; *len];
            match client.post(posted as u64, Request::Send, slice(&message).into()) {
                Ok(()) => posted += 1,
                Err((PostError::Full { .. }, _)) => break,
                Err((error, _)) => panic!("{error}"),
            }
        }
        client.poll(|_| {});
        if posted == lens.len() {
            server.poll(|event| {
                if let Event::Message(bytes) = event {
                    assert_eq!(bytes, vec![arrived as u8; lens[arrived]]);
                    arrived += 1;
                }
            });
        }
        (arrived == lens.len()).then_some(())
    });
    let (error, _) =
        client.post(1, Request::Send, slice(&vec![0; client.message_max() + 1]).into()).unwrap_err();
    assert!(matches!(error, PostError::MessageTooLong { .. }));
}

#[test]
fn bounds_rights_and_keys_are_checked() {
    let (mut server, mut client) = pair();
    let mut whole = Memory::allocate(3 * 4096).unwrap();
    let mut middle = whole.split_off(4096);
    let _last = middle.split_off(4096);
    let reader = Memory::allocate(4096).unwrap().expose();
    let memory = middle.expose();
    let key = server.grant(&memory, Access::ReadWrite).unwrap();
    let read_only = server.grant(&reader, Access::ReadOnly).unwrap();
    let mut write = |target: Target, len: usize| {
        let targets = [target];
        let request = Request::Write { targets: &targets, immediate: Some(1) };
        run(&mut client, &mut server, request, slice(&vec![5; len]).into()).outcome
    };
    write(target(key, 4095, 1), 1).unwrap();
    for (offset, len) in [(4096, 1), (4095, 2), (u64::MAX, 1), (0, 4097)] {
        let outcome = write(target(key, offset, len), len as usize);
        assert!(matches!(outcome, Err(OperationError::OutOfBounds { granted: 4096, .. })), "{outcome:?}");
    }
    assert!(matches!(write(target(read_only, 0, 1), 1), Err(OperationError::ReadOnly)));
    for wrong in [key + 5, u64::MAX, key + (1 << 16)] {
        let outcome = write(target(wrong, 0, 1), 1);
        assert!(matches!(outcome, Err(OperationError::UnknownKey { .. })), "{wrong:#x}: {outcome:?}");
    }
    let outcome = write(target(0, 0, 1), 1);
    assert!(matches!(outcome, Err(OperationError::Revoked)), "an earlier generation: {outcome:?}");
    let targets = [target(read_only, 0, 10)];
    run(&mut client, &mut server, Request::Read { targets: &targets }, slice(&[1; 10]).into())
        .outcome
        .unwrap();
    let mut refused = |request, buffers: Buffers| client.post(1, request, buffers).unwrap_err().0;
    let shared = slice(&[0; 10]).share();
    assert!(matches!(refused(Request::Read { targets: &targets }, shared.into()), PostError::NotWritable));
    let request = Request::Write { targets: &targets, immediate: None };
    assert!(matches!(refused(request, slice(&[0; 9]).into()), PostError::LengthsDiffer { .. }));
    let huge = [target(key, 0, u64::MAX), target(key, 0, 2)];
    let request = Request::Write { targets: &huge, immediate: None };
    assert!(matches!(refused(request, slice(&[0; 1]).into()), PostError::LengthsDiffer { .. }));
    let request = Request::Write { targets: &[], immediate: None };
    assert!(matches!(refused(request, Buffers::None), PostError::LengthsDiffer { .. }));
}

#[test]
fn a_revoked_grant_ends_and_its_key_leads_nowhere() {
    let (mut server, mut client) = pair();
    let memory = Memory::allocate(4096).unwrap().expose();
    let key = server.grant(&memory, Access::ReadWrite).unwrap();
    let targets = [target(key, 0, 4)];
    let request = Request::Write { targets: &targets, immediate: None };
    run(&mut client, &mut server, request, slice(b"once").into()).outcome.unwrap();
    server.revoke(key);
    // The peer has not been told yet, and looks at the generation.
    let outcome = run(&mut client, &mut server, request, slice(b"late").into()).outcome;
    assert!(matches!(outcome, Err(OperationError::Revoked)), "{outcome:?}");
    let mut ended = None;
    wait("the end of the grant", || {
        client.poll(|_| {});
        server.poll(|event| {
            if let Event::GrantEnded { key } = event {
                ended = Some(key);
            }
        });
        ended
    });
    assert!(ended == Some(key) && memory.keys() == 0 && server.grants().is_empty());
    let outcome = run(&mut client, &mut server, request, slice(b"late").into()).outcome;
    assert!(matches!(outcome, Err(OperationError::Revoked)), "{outcome:?}");
    // The place is used again, with another generation.
    let again = server.grant(&memory, Access::ReadWrite).unwrap();
    assert_eq!((again & 0xffff, again == key), (key & 0xffff, false));
    let outcome = run(&mut client, &mut server, request, slice(b"late").into()).outcome;
    assert!(matches!(outcome, Err(OperationError::Revoked)), "{outcome:?}");
    server.revoke(again);
    wait("the end of the grant", || {
        client.poll(|_| {});
        server.poll(|_| {});
        (memory.keys() == 0).then_some(())
    });
}

#[test]
fn a_closed_link_returns_its_operations_and_both_sides_end_their_grants() {
    let (mut server, mut client) = pair();
    let memory = Memory::allocate(8 << 20).unwrap().expose();
    let own = Memory::allocate(4096).unwrap().expose();
    let key = server.grant(&memory, Access::ReadWrite).unwrap();
    client.grant(&own, Access::ReadWrite).unwrap();
    let targets = [target(key, 0, 8 << 20)];
    let source = Memory::allocate(8 << 20).unwrap();
    client.post(1, Request::Write { targets: &targets, immediate: None }, source.into()).unwrap();
    client.close();
    let (mut failed, mut down) = (0, 0);
    wait("the ends", || {
        client.poll(|event| match event {
            Event::Completed { outcome: Err(OperationError::Link(LinkError::Closed)), .. } => failed += 1,
            Event::Down(LinkError::Closed) => down += 1,
            _ => {}
        });
        server.poll(|event| {
            if let Event::Down(error) = event {
                assert!(matches!(error, LinkError::PeerClosed), "{error}");
                down += 1;
            }
        });
        (memory.keys() + own.keys() == 0).then_some(())
    });
    assert_eq!((failed, down, client.in_flight()), (1, 2, 0));
    let (error, _) = client.post(1, Request::Send, slice(b"x").into()).unwrap_err();
    assert!(matches!(error, PostError::Link(LinkError::Closed)));
    let error = server.grant(&memory, Access::ReadOnly).unwrap_err();
    assert!(matches!(error, GrantError::Link(LinkError::PeerClosed)), "{error}");
    assert!(client.may_sleep() && server.may_sleep());
}

fn is_readable(fd: impl AsFd, milliseconds: i64) -> bool {
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    let timeout = Timespec { tv_sec: 0, tv_nsec: milliseconds * 1_000_000 };
    poll(&mut fds, Some(&timeout)).unwrap() > 0
}

#[test]
fn a_side_that_sleeps_is_woken_and_an_idle_one_sleeps_on() {
    let (mut server, mut client) = pair();
    for _ in 0..3 {
        while !server.may_sleep() {
            server.poll(|_| {});
        }
        assert!(!is_readable(&server, 20), "nothing has happened");
        client.post(1, Request::Send, slice(b"wake").into()).unwrap();
        assert!(is_readable(&server, 900));
        let mut arrived = 0;
        server.poll(|event| arrived += usize::from(matches!(event, Event::Message(_))));
        assert_eq!(arrived, 1);
    }
    // A grant wakes, too, and so does the end.
    let memory = Memory::allocate(4096).unwrap().expose();
    while !client.may_sleep() {
        client.poll(|_| {});
    }
    let key = server.grant(&memory, Access::ReadWrite).unwrap();
    assert!(is_readable(&client, 900));
    server.revoke(key);
    wait("the end of the grant", || {
        client.poll(|_| {});
        server.poll(|_| {});
        (memory.keys() == 0).then_some(())
    });
    while !client.may_sleep() {
        client.poll(|_| {});
    }
    drop(server);
    assert!(is_readable(&client, 900));
}

/// A producer without room sleeps until there is some.
#[test]
fn one_that_waits_for_room_is_woken() {
    let (mut server, mut client) = pair();
    let long = vec![1; client.message_max()];
    for tag in 0..6 {
        client.post(tag, Request::Send, slice(&long).into()).unwrap();
    }
    wait("a full ring", || {
        client.poll(|_| {});
        client.may_sleep().then_some(())
    });
    assert!(client.in_flight() > 0 && !is_readable(&client, 20));
    server.poll(|_| {});
    assert!(is_readable(&client, 900));
    client.poll(|_| {});
    assert_eq!(client.in_flight(), 0);
}

#[test]
fn links_leave_nothing_behind() {
    if std::env::var_os("FARREACH_ALONE").is_none() {
        let name = "operations::links_leave_nothing_behind";
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        let output = alone.args(["--exact", name]).env("FARREACH_ALONE", "1").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let before = crate::pair::resources();
    for _ in 0..20 {
        let (mut server, mut client) = pair();
        let memory = Memory::allocate(4096).unwrap().expose();
        let key = server.grant(&memory, Access::ReadWrite).unwrap();
        let targets = [target(key, 0, 4)];
        let request = Request::Write { targets: &targets, immediate: None };
        run(&mut client, &mut server, request, slice(b"once").into()).outcome.unwrap();
        drop(client);
        wait("the proof", || {
            server.poll(|_| {});
            (memory.keys() == 0).then_some(())
        });
    }
    // Another thread closes sockets.
    wait("the end of all descriptors", || (crate::pair::resources() == before).then_some(()));
    assert_eq!(farreach_memory::leaked_bytes(), 0);
}

#[test]
fn what_a_peer_has_sent_before_its_end_arrives() {
    for _ in 0..50 {
        let (mut server, mut client) = pair();
        client.post(1, Request::Send, slice(b"last").into()).map_err(|(error, _)| error).unwrap();
        drop(client);
        let (mut arrived, mut is_down) = (Vec::new(), false);
        wait("the end", || {
            server.poll(|event| match event {
                Event::Message(bytes) => {
                    assert!(!is_down, "before the end");
                    arrived.push(bytes.to_vec());
                }
                Event::Down(_) => is_down = true,
                _ => {}
            });
            is_down.then_some(())
        });
        assert_eq!(arrived, [b"last".to_vec()]);
    }
}
