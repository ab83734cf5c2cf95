//! Peers that end, stop, continue and fork.

use std::time::Instant;

use farreach_memory::{Exposed, Memory};
use farreach_shm::{
    Access, Connecting, Event, Exchange, Link, LinkError, MeetError, OperationError, PostError, Request,
    Target,
};
use rustix::process::Signal;

use crate::pair::{
    OURS, PATIENCE, Peer, THEIRS, accept, connect_as_peer, listener, message, send, slice, wait,
};

/// The bytes that a writer writes at once: one step.
const BLOCK: usize = 256 << 10;

/// Writes blocks with rising numbers until one fails. Sends the number of the last that succeeded,
/// of the one that failed, and whether it was revoked.
#[test]
#[ignore = "a role in another test"]
fn role_of_a_writer() {
    let mut link = connect_as_peer();
    let key = u64::from_le_bytes(message(&mut link).try_into().unwrap());
    let targets = [Target { key, offset: 0, len: BLOCK as u64 }];
    let mut source = Memory::allocate(BLOCK).unwrap();
    let (mut succeeded, mut number) = (0_u8, 0_u8);
    loop {
        number = number.wrapping_add(1);
        source.fill(number);
        let request = Request::Write { targets: &targets, immediate: None };
        link.post(9, request, source.into()).map_err(|(error, _)| error).unwrap();
        let (mut completed, until) = (None, Instant::now() + PATIENCE);
        // Without a pause: the test stops this process in the middle of a copy.
        while completed.is_none() {
            link.poll(|event| {
                if let Event::Completed { buffers, outcome, .. } = event {
                    completed = Some((buffers, outcome));
                }
            });
            assert!(Instant::now() < until, "no completion");
        }
        let (buffers, outcome) = completed.unwrap();
        source = buffers.into_slice().unwrap();
        match outcome {
            Ok(()) => succeeded = number,
            Err(error) => {
                let is_revoked = matches!(error, OperationError::Revoked);
                send(&mut link, &[succeeded, number, u8::from(is_revoked)]);
                message(&mut link);
                return;
            }
        }
    }
}

fn start_writer(memory: &Exposed) -> (Peer, Link, u64) {
    let mut listener = listener();
    let peer = Peer::start("processes::role_of_a_writer", &listener);
    let mut link = accept(&mut listener);
    let key = link.grant(memory, Access::ReadWrite).unwrap();
    send(&mut link, &key.to_le_bytes());
    wait("first bytes", || {
        let mut first = [0];
        memory.read_at(0, &mut first);
        (first != [0]).then_some(())
    });
    (peer, link, key)
}

/// A writer is stopped in the middle of a copy. The pages are exchanged, and the memory is used
/// again. When the writer continues, none of its bytes appear, and its write ends as revoked.
#[test]
fn bytes_of_a_writer_that_was_stopped_do_not_appear() {
    let mut in_the_middle = 0;
    let until = Instant::now() + PATIENCE;
    // On a busy machine the writer may wait for a core between two copies each time.
    for round in 0.. {
        if round >= 8 && (in_the_middle > 0 || Instant::now() > until) {
            break;
        }
        let memory = Memory::allocate(BLOCK).unwrap().expose();
        let (peer, mut link, key) = start_writer(&memory);
        std::thread::sleep(std::time::Duration::from_micros(200 * (round % 8)));
        peer.signal(Signal::STOP);
        link.revoke(key);
        for _ in 0..50 {
            link.poll(|_| {});
        }
        assert_eq!(memory.keys(), 1, "a stopped process says nothing");
        let grant = link.take_revoked(key).unwrap();
        let mut exchange = Exchange::begin(vec![grant]).map_err(|(error, _)| error).unwrap();
        while exchange.left() > 0 {
            exchange.step(true).unwrap();
        }
        exchange.finish().unwrap();
        let mut slice = memory.try_into_slice().expect("the exchange is a proof");
        let (least, most) = (*slice.iter().min().unwrap(), *slice.iter().max().unwrap());
        slice.fill(0xaa);
        peer.signal(Signal::CONT);
        let told = message(&mut link);
        let [succeeded, failed, is_revoked] = told[..] else { panic!("{told:?}") };
        assert!(slice.iter().all(|byte| *byte == 0xaa), "late bytes");
        assert_eq!(is_revoked, 1, "it failed for another reason");
        assert_eq!(succeeded.wrapping_add(1), failed);
        if least != most {
            in_the_middle += 1;
            // One block was being written over the other, in the order that the processor likes.
            let numbers = [succeeded.min(failed), succeeded.max(failed)];
            assert_eq!([least, most], numbers, "a copy that was cut counts as complete");
        }
        send(&mut link, b"end");
        assert!(peer.end().0);
    }
    assert!(in_the_middle > 0, "no round stopped the writer in the middle of a copy");
}

#[test]
fn the_end_of_a_process_ends_its_grants() {
    for _ in 0..4 {
        let memory = Memory::allocate(BLOCK).unwrap().expose();
        let (peer, mut link, key) = start_writer(&memory);
        peer.signal(Signal::KILL);
        let (mut down, mut ended) = (None, None);
        wait("the proof", || {
            link.poll(|event| match event {
                Event::Down(error) => down = Some(error),
                Event::GrantEnded { key } => ended = Some(key),
                _ => {}
            });
            ended
        });
        let expected = matches!(down, Some(LinkError::PeerEnded | LinkError::PeerClosed));
        assert!(expected && ended == Some(key), "{down:?}");
        let mut slice = memory.try_into_slice().unwrap();
        slice.fill(3);
        assert!(!peer.end().0);
        assert!(slice.iter().all(|byte| *byte == 3));
    }
}

/// The owner of memory is killed while this side writes to it.
#[test]
fn the_end_of_an_owner_ends_operations() {
    let mut listener = listener();
    let peer = Peer::start("processes::role_of_an_owner", &listener);
    let mut link = accept(&mut listener);
    let key = u64::from_le_bytes(message(&mut link).try_into().unwrap());
    let targets = [Target { key, offset: 0, len: 64 << 20 }];
    let source = Memory::allocate(64 << 20).unwrap().share();
    let (mut written, mut outcome) = (0, None);
    wait("an error", || {
        let request = Request::Write { targets: &targets, immediate: Some(1) };
        if link.in_flight() == 0 && link.post(1, request, source.clone().into()).is_err() {
            return Some(());
        }
        link.poll(|event| match event {
            Event::Completed { outcome: Ok(()), .. } => written += 1,
            Event::Completed { outcome: Err(error), .. } => outcome = Some(error),
            _ => {}
        });
        if written == 2 {
            written += 1;
            peer.signal(Signal::KILL);
        }
        outcome.is_some().then_some(())
    });
    assert!(matches!(outcome, None | Some(OperationError::Link(_))), "{outcome:?}");
    peer.end();
}

#[test]
#[ignore = "a role in another test"]
fn role_of_an_owner() {
    let mut link = connect_as_peer();
    let memory = Memory::allocate(64 << 20).unwrap().expose();
    let key = link.grant(&memory, Access::ReadWrite).unwrap();
    send(&mut link, &key.to_le_bytes());
    let until = Instant::now() + std::time::Duration::from_secs(60);
    while Instant::now() < until {
        link.poll(|_| {});
    }
}

/// A child that was forked gets errors, and changes nothing for its parent.
#[test]
fn a_forked_child_gets_errors() {
    let mut listener = listener();
    let peer = Peer::start("processes::role_of_one_that_forks", &listener);
    let mut link = accept(&mut listener);
    while message(&mut link) != b"still here" {}
    let (is_success, output) = peer.end();
    assert!(is_success, "{output}");
}

#[test]
#[ignore = "a role in another test"]
fn role_of_one_that_forks() {
    let mut link = connect_as_peer();
    let memory = Memory::allocate(4096).unwrap().expose();
    link.grant(&memory, Access::ReadWrite).unwrap();
    link.post(1, Request::Send, slice(b"before").into()).unwrap();
    // SAFETY: the child calls functions that are safe after a fork of a program whose other thread
    // only waits, and ends by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut down = 0;
        link.poll(|event| down += u32::from(matches!(event, Event::Down(LinkError::Forked))));
        let post = link.post(2, Request::Send, farreach_memory::Buffers::None);
        let is_refused = matches!(post, Err((PostError::Link(LinkError::Forked), _)));
        let is_asleep = link.may_sleep();
        drop(link);
        drop(memory);
        // SAFETY: it ends the process.
        unsafe { libc::_exit(i32::from(!(down == 1 && is_refused && !is_asleep))) };
    }
    let mut status = -1;
    // SAFETY: the kernel writes the status to the local.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child's exit status");
    send(&mut link, b"still here");
    std::thread::sleep(std::time::Duration::from_millis(100));
}

/// A meeting that began before the fork. The segment is mapped in the parent only.
#[test]
fn a_link_that_a_forked_child_gets_is_of_no_use() {
    let peer = Peer::start("processes::role_of_one_that_forks_while_it_connects", &listener());
    let (is_success, output) = peer.end();
    assert!(is_success, "{output}");
}

#[test]
#[ignore = "a role in another test"]
fn role_of_one_that_forks_while_it_connects() {
    let mut listener = listener();
    let mut connecting = Connecting::new(listener.name(), THEIRS, OURS).unwrap();
    assert!(connecting.poll().unwrap().is_none());
    // SAFETY: the child calls functions that are safe after a fork of a program whose other thread
    // only waits, and ends by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // It would take connections of its parent.
        let is_deaf = matches!(listener.poll(Instant::now()), Err(MeetError::Forked));
        let mut link = wait("a link", || connecting.poll().unwrap());
        let post = link.post(2, Request::Send, farreach_memory::Buffers::None);
        let is_refused = matches!(post, Err((PostError::Link(LinkError::Forked), _)));
        let mut down = 0;
        link.poll(|event| down += u32::from(matches!(event, Event::Down(LinkError::Forked))));
        drop(link);
        // SAFETY: it ends the process.
        unsafe { libc::_exit(i32::from(!(is_refused && down == 1 && is_deaf))) };
    }
    let _link = accept(&mut listener);
    let mut status = -1;
    // SAFETY: the kernel writes the status to the local.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child's exit status");
}

/// A peer that becomes another program has no mapping any more, but its process has not ended.
#[test]
fn a_peer_that_executes_another_program_ends_the_link_and_proves_nothing() {
    let memory = Memory::allocate(4096).unwrap().expose();
    let mut listener = listener();
    let peer = Peer::start("processes::role_of_one_that_executes", &listener);
    let mut link = accept(&mut listener);
    let key = link.grant(&memory, Access::ReadWrite).unwrap();
    send(&mut link, &key.to_le_bytes());
    let mut down = None;
    wait("the end of the link", || {
        link.poll(|event| {
            if let Event::Down(error) = event {
                down = Some(error);
            }
        });
        down.as_ref().map(|_| ())
    });
    assert!(matches!(down, Some(LinkError::PeerClosed)), "{down:?}");
    for _ in 0..100 {
        link.poll(|_| {});
    }
    assert!(link.may_sleep(), "it waits for the end of the process");
    assert!(!link.process().has_ended() && memory.keys() == 1);
    let mut exchange = Exchange::begin(vec![link.take_revoked(key).unwrap()]).unwrap();
    exchange.step(true).unwrap();
    exchange.finish().unwrap();
    assert!(memory.try_into_slice().is_ok());
    peer.signal(Signal::KILL);
    peer.end();
}

#[test]
#[ignore = "a role in another test"]
fn role_of_one_that_executes() {
    let mut link = connect_as_peer();
    message(&mut link);
    let error = std::os::unix::process::CommandExt::exec(std::process::Command::new("sleep").arg("1000"));
    panic!("{error}");
}

/// Eight processes contend for one word.
#[test]
fn sums_of_many_processes_are_right() {
    const ADDS: u64 = 2000;
    let memory = Memory::allocate(4096).unwrap().expose();
    let mut listener = listener();
    let mut peers = Vec::new();
    for number in 0..8 {
        if number > 0 {
            let again = farreach_shm::Expected { id: number, theirs: THEIRS, ours: OURS };
            listener.expect(again);
        }
        let peer = Peer::start("processes::role_of_one_that_adds", &listener);
        let mut link = accept(&mut listener);
        let key = link.grant(&memory, Access::ReadWrite).unwrap();
        peers.push((peer, link, key));
    }
    for (_, link, key) in &mut peers {
        send(link, &key.to_le_bytes());
    }
    for (peer, mut link, _) in peers {
        assert_eq!(message(&mut link), b"added");
        drop(link);
        peer.end();
    }
    let sum = |at| memory.atomic_at(at).load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!((sum(0), sum(8)), (8 * ADDS, 8 * ADDS));
}

#[test]
#[ignore = "a role in another test"]
fn role_of_one_that_adds() {
    let mut link = connect_as_peer();
    let key = u64::from_le_bytes(message(&mut link).try_into().unwrap());
    let mut word = |request| {
        link.post(1, request, slice(&[0; 8]).into()).map_err(|(error, _)| error).unwrap();
        let mut before = None;
        wait("a word", || {
            link.poll(|event| {
                if let Event::Completed { buffers, outcome, .. } = event {
                    outcome.unwrap();
                    before = Some(u64::from_ne_bytes(buffers.into_slice().unwrap()[..].try_into().unwrap()));
                }
            });
            before
        })
    };
    let (first, second) = (Target { key, offset: 0, len: 8 }, Target { key, offset: 8, len: 8 });
    let mut expected = 0;
    for _ in 0..2000 {
        word(Request::FetchAdd { target: first, add: 1 });
        loop {
            let before = word(Request::CompareSwap { target: second, expected, desired: expected + 1 });
            let is_swapped = before == expected;
            expected = if is_swapped { before + 1 } else { before };
            if is_swapped {
                break;
            }
        }
    }
    send(&mut link, b"added");
    // The grants of the other side end with this process.
}

/// The last messages of a process that ends are taken, also if nobody polled until then.
#[test]
fn the_last_messages_of_a_process_arrive() {
    let mut listener = listener();
    let peer = Peer::start("processes::role_of_one_that_says_goodbye", &listener);
    let mut link = accept(&mut listener);
    assert!(peer.end().0);
    let (mut arrived, mut is_down) = (Vec::new(), false);
    wait("the end", || {
        link.poll(|event| match event {
            Event::Message(bytes) => arrived.push(bytes[0]),
            Event::Down(_) => is_down = true,
            _ => assert!(!is_down),
        });
        is_down.then_some(())
    });
    assert_eq!(arrived, (0..100).collect::<Vec<u8>>());
}

#[test]
#[ignore = "a role in another test"]
fn role_of_one_that_says_goodbye() {
    let mut link = connect_as_peer();
    for number in 0..100 {
        send(&mut link, &[number]);
    }
}
