//! Peers that do not keep to the protocol. This program speaks it by hand.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use farreach_memory::Memory;
use farreach_shm::{Access, Event, Link, LinkError, Listener, MESSAGE_MAX, OperationError, Request, Target};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::fs::{fallocate, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, sendmsg,
    socket_with,
};

use crate::pair::{Peer, THEIRS, accept, listener, slice, wait};

/// The length of a segment: a page, two rings, two tables.
const SEGMENT: u64 = 4096 + 2 * 65536 + 2 * 65536 * 8;
const RING: u64 = 4096;
const GENERATIONS: u64 = 4096 + 2 * 65536;
const CONTROL: u64 = 5 * 128;

fn packet(kind: u64, words: &[u64]) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[..8].copy_from_slice(b"farshm02");
    for (index, word) in [kind].iter().chain(words).enumerate() {
        bytes[8 + index * 8..][..8].copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn memfd(len: u64, seals: SealFlags) -> OwnedFd {
    let fd = memfd_create("attack", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&fd, len).unwrap();
    fcntl_add_seals(&fd, seals).unwrap();
    fd
}

fn sealed(len: u64) -> OwnedFd {
    memfd(len, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
}

/// A peer by hand.
struct Raw {
    socket: OwnedFd,
    segment: File,
    packets: u64,
}

impl Raw {
    fn connect(listener: &Listener) -> OwnedFd {
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let name = listener.name().strip_prefix('@').unwrap();
        connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).unwrap();
        socket
    }

    fn hello() -> [u8; 64] {
        let mut hello = packet(1, &[]);
        hello[16..48].copy_from_slice(&THEIRS);
        hello
    }

    /// Connects as the protocol demands.
    fn meet() -> (Self, Link) {
        let mut listener = listener();
        let socket = Self::connect(&listener);
        let segment = sealed(SEGMENT);
        transmit(&socket, &Self::hello(), &[segment.as_fd()]);
        let link = accept(&mut listener);
        (Self { socket, segment: segment.into(), packets: 0 }, link)
    }

    fn send(&mut self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
        self.packets += 1;
        self.write(CONTROL, self.packets);
        transmit(&self.socket, bytes, descriptors);
    }

    fn write(&self, at: u64, word: u64) {
        self.segment.write_all_at(&word.to_le_bytes(), at).unwrap();
    }

    fn grant(&mut self, key: u64, words: [u64; 4], descriptors: &[BorrowedFd<'_>]) {
        self.write(GENERATIONS + (key & 0xffff) * 8, key >> 16);
        let [file_len, offset, len, access] = words;
        self.send(&packet(3, &[key, file_len, offset, len, access]), descriptors);
    }

    /// Receives a packet, with its descriptors.
    fn receive(&self) -> (Vec<u8>, Vec<OwnedFd>) {
        let mut bytes = [0; 64];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received =
            recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::empty())
                .unwrap();
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        (bytes[..received.bytes].to_vec(), descriptors)
    }
}

fn transmit(socket: &OwnedFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(descriptors.is_empty() || control.push(SendAncillaryMessage::ScmRights(descriptors)));
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).unwrap();
}

/// Polls until the link has ended.
fn end_of(link: &mut Link) -> LinkError {
    let mut down = None;
    wait("the end of the link", || {
        link.poll(|event| {
            if let Event::Down(error) = event {
                down = Some(error);
            }
        });
        down.take()
    })
}

fn outcome(link: &mut Link, request: Request<'_>, len: usize) -> Result<(), OperationError> {
    link.post(4, request, slice(&vec![1; len]).into()).map_err(|(error, _)| error).unwrap();
    let mut found = None;
    wait("a completion", || {
        link.poll(|event| {
            if let Event::Completed { outcome, .. } = event {
                found = Some(outcome);
            }
        });
        found.take()
    })
}

fn write_to(link: &mut Link, key: u64, offset: u64, len: usize) -> Result<(), OperationError> {
    let targets = [Target { key, offset, len: len as u64 }];
    outcome(link, Request::Write { targets: &targets, immediate: None }, len)
}

#[test]
fn wrong_descriptors_make_no_link() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(SEGMENT).unwrap();
    let (reader, _writer) = std::io::pipe().unwrap();
    let segment = sealed(SEGMENT);
    let (short, unsealed) = (sealed(SEGMENT - 1), memfd(SEGMENT, SealFlags::SHRINK));
    let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let wrong: [&[BorrowedFd<'_>]; 8] = [
        &[],
        &[reader.as_fd()],
        &[file.as_fd()],
        &[event.as_fd()],
        &[short.as_fd()],
        &[unsealed.as_fd()],
        &[segment.as_fd(), segment.as_fd()],
        &[segment.as_fd(), event.as_fd()],
    ];
    let mut listener = listener();
    for (index, descriptors) in wrong.iter().enumerate() {
        let socket = Raw::connect(&listener);
        transmit(&socket, &Raw::hello(), descriptors);
        assert!(listener.poll(Instant::now()).unwrap().is_none(), "case {index}");
        assert_eq!(listener.refused(), index as u64 + 1);
    }
    // More than are expected: none is kept.
    let before = crate::pair::resources().1;
    let many = [segment.as_fd(); 8];
    for _ in 0..50 {
        let socket = Raw::connect(&listener);
        transmit(&socket, &Raw::hello(), &many);
        let before = listener.refused();
        wait("a refusal", || {
            assert!(listener.poll(Instant::now()).unwrap().is_none());
            (listener.refused() > before).then_some(())
        });
    }
    wait("the end of all descriptors", || (crate::pair::resources().1 < before + 40).then_some(()));
}

#[test]
fn wrong_packets_make_no_link() {
    let mut listener = listener();
    let segment = sealed(SEGMENT);
    let mut other_release = Raw::hello();
    other_release[7] += 1;
    let long = [7; 100];
    let packets: [&[u8]; 6] = [&[1], &Raw::hello()[..63], &long, &[0; 64], &packet(2, &[]), &other_release];
    for (index, bytes) in packets.iter().enumerate() {
        let socket = Raw::connect(&listener);
        transmit(&socket, bytes, &[segment.as_fd()]);
        assert!(listener.poll(Instant::now()).unwrap().is_none());
        assert_eq!(listener.refused(), index as u64 + 1);
    }
}

#[test]
fn nonsense_in_rings_ends_the_link() {
    // The header of the first slot: a wrong lap, kind, length; a continuation; an end that is missing.
    let header = |lap: u64, kind: u64, len: u64| (lap << 32) | (kind << 24) | len;
    let headers = [
        header(2, 0, 0),
        u64::MAX,
        header(1, 0, 0),
        header(1, 9, 0),
        header(1, 1, 5),
        header(1, 0xff, 0),
        header(1, 2, 0xff_ffff),
        header(1, 2, 57),
    ];
    for header in headers {
        let (raw, mut link) = Raw::meet();
        raw.write(RING, header);
        let error = end_of(&mut link);
        assert!(matches!(error, LinkError::Nonsense(_)), "{header:#x}: {error}");
        assert!(error.fix().contains("release"));
    }
}

/// Fills the whole segment with random bytes, again and again, while the link is used.
#[test]
fn random_segments_crash_nothing() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..40 {
        let (mut raw, mut link) = Raw::meet();
        let memory = sealed(8192);
        raw.grant(1 << 16, [8192, 0, 8192, 1], &[memory.as_fd()]);
        let own = Memory::allocate(4096).unwrap().expose();
        let key = link.grant(&own, Access::ReadWrite).unwrap();
        for _ in 0..20 {
            for _ in 0..if round % 2 == 0 { 4 } else { 400 } {
                // Every word, with values that look right more often than others.
                let word = if random() % 3 == 0 {
                    random()
                } else {
                    ((random() % 3) << 32) | (random() % (3 << 24))
                };
                raw.write((random() % (RING + 65536 + 4096)) & !7, word);
            }
            let targets = [Target { key: 1 << 16, offset: random() % 9000, len: 100 }];
            let request = Request::Write { targets: &targets, immediate: Some(1) };
            let _ = link.post(1, request, slice(&[1; 100]).into());
            let _ = link.post(1, Request::Send, slice(&[1; 3000]).into());
            link.poll(|event| {
                if let Event::Message(bytes) = event {
                    assert!(bytes.len() < 65536)
                }
            });
            link.may_sleep();
        }
        link.close();
        drop(raw);
        // Its process is this one, so the exchange is the proof.
        if let Some(grant) = link.take_revoked(key) {
            let mut exchange = farreach_shm::Exchange::begin(vec![grant]).unwrap();
            exchange.step(true).unwrap();
            exchange.finish().unwrap();
        }
        assert_eq!(own.keys(), 0);
    }
}

/// Another thread changes what this side is just reading: headers, lengths, continuations and indices.
#[test]
fn words_that_change_during_a_read_crash_nothing() {
    let header = |lap: u64, kind: u64, len: u64| (lap << 32) | (kind << 24) | len;
    let mut ends = 0;
    for round in 0..30 {
        let (raw, mut link) = Raw::meet();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut turn = round;
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    turn += 1;
                    // Entries that begin and end as they should, or not, and their continuations.
                    raw.write(RING + 64, header(1, [0xff, 0xff, 9][turn % 3], 0));
                    raw.write(RING, header(1, 2, [57, 100, 0xff_ffff, 3][turn % 4]));
                    raw.write(RING + 128, header([1, 0][turn % 2], 2, [0, 60][turn / 2 % 2]));
                    // The index of the acceptor's ring.
                    raw.write(3 * 128 + 128, [0, 1, 2, u64::MAX][turn / 3 % 4]);
                }
            });
            for _ in 0..300 {
                let _ = link.post(1, Request::Send, slice(&[1; 3000]).into());
                link.poll(|event| {
                    if let Event::Message(bytes) = event {
                        assert!(bytes.len() <= MESSAGE_MAX);
                    }
                });
                link.may_sleep();
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        ends += u32::from(matches!(link.down(), Some(LinkError::Nonsense(_))));
    }
    assert!(ends > 0, "nothing was wrong");
}

#[test]
fn wrong_descriptors_make_a_key_useless_and_nothing_else() {
    let seals = SealFlags::SHRINK | SealFlags::GROW;
    let (short, unsealed, good) = (sealed(4096), memfd(8192, seals), sealed(8192));
    let (mut raw, mut link) = Raw::meet();
    let wrong: [(&[BorrowedFd<'_>], [u64; 4]); 7] = [
        (&[], [8192, 0, 8192, 1]),
        (&[short.as_fd()], [8192, 0, 8192, 1]),
        (&[unsealed.as_fd()], [8192, 0, 8192, 1]),
        (&[good.as_fd()], [8192, 4096, 4097, 1]),
        (&[good.as_fd()], [8192, u64::MAX, 2, 1]),
        (&[good.as_fd()], [u64::MAX, 0, u64::MAX, 1]),
        (&[good.as_fd()], [8192, 0, 0, 1]),
    ];
    for (slot, (descriptors, words)) in wrong.iter().enumerate() {
        let key = (1 << 16) | slot as u64;
        raw.grant(key, *words, descriptors);
        let outcome = write_to(&mut link, key, 0, 1);
        assert!(matches!(outcome, Err(OperationError::NotMapped(_))), "case {slot}: {outcome:?}");
    }
    raw.grant((1 << 16) | 50, [8192, 4096, 4096, 1], &[good.as_fd()]);
    write_to(&mut link, (1 << 16) | 50, 4095, 1).unwrap();
    let mut bytes = [0; 2];
    File::from(good).read_exact_at(&mut bytes, 8190).unwrap();
    assert_eq!(bytes, [0, 1]);
    assert!(link.down().is_none());
    // One key in the place of another.
    raw.grant((2 << 16) | 50, [8192, 0, 8192, 1], &[short.as_fd()]);
    assert!(matches!(end_of(&mut link), LinkError::Nonsense(_)));
}

#[test]
fn wrong_packets_end_the_link() {
    let packets: [&[u8]; 5] =
        [&[0; 64], &[1, 2, 3], &packet(1, &[]), &packet(9, &[1]), &packet(3, &[1, 1, 1, 1, 7])];
    for bytes in packets {
        let (mut raw, mut link) = Raw::meet();
        raw.send(bytes, &[]);
        assert!(matches!(end_of(&mut link), LinkError::Nonsense(_)));
    }
    // Ends of keys that do not exist are of no interest.
    let (mut raw, mut link) = Raw::meet();
    let memory = Memory::allocate(4096).unwrap().expose();
    let key = link.grant(&memory, Access::ReadWrite).unwrap();
    for wrong in [0, key, u64::MAX] {
        raw.send(&packet(5, &[wrong]), &[]);
        raw.send(&packet(4, &[wrong]), &[]);
    }
    for _ in 0..2000 {
        link.poll(|_| {});
    }
    assert!(link.down().is_none());
    assert_eq!(memory.keys(), 1, "it was not revoked, so its end proves nothing");
    link.revoke(key);
    raw.send(&packet(5, &[key]), &[]);
    wait("the end of the grant", || {
        link.poll(|_| {});
        (memory.keys() == 0).then_some(())
    });
}

/// The owner punches holes while the other side writes and reads.
#[test]
fn holes_are_zeroes_and_truncation_is_refused() {
    let (mut raw, mut link) = Raw::meet();
    let memory = sealed(1 << 20);
    raw.grant(1 << 16, [1 << 20, 0, 1 << 20, 1], &[memory.as_fd()]);
    write_to(&mut link, 1 << 16, 0, 1 << 20).unwrap();
    assert!(ftruncate(&memory, 0).is_err() && ftruncate(&memory, 2 << 20).is_err());
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                fallocate(&memory, mode, 0, 1 << 20).unwrap();
            }
        });
        for _ in 0..50 {
            write_to(&mut link, 1 << 16, 0, 1 << 20).unwrap();
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    fallocate(&memory, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 1 << 20).unwrap();
    let targets = [Target { key: 1 << 16, offset: 0, len: 1 << 20 }];
    outcome(&mut link, Request::Read { targets: &targets }, 1 << 20).unwrap();
}

/// A peer punches holes into memory that was granted to it. Its owner reads zeroes.
#[test]
fn a_peer_that_punches_granted_memory_crashes_nobody() {
    let (raw, mut link) = Raw::meet();
    let mut slice = Memory::allocate(1 << 20).unwrap();
    slice.fill(7);
    let memory = slice.expose();
    let key = link.grant(&memory, Access::ReadWrite).unwrap();
    let (_welcome, _) = raw.receive();
    let (bytes, descriptors) = raw.receive();
    assert_eq!((bytes.len(), descriptors.len()), (64, 1));
    let fd = &descriptors[0];
    assert!(ftruncate(fd, 0).is_err() && ftruncate(fd, 2 << 20).is_err());
    assert!(fcntl_add_seals(fd, SealFlags::WRITE).is_err(), "the owner could not write any more");
    fallocate(fd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 1 << 20).unwrap();
    assert!(memory.to_vec().iter().all(|byte| *byte == 0));
    link.revoke(key);
    let mut exchange = farreach_shm::Exchange::begin(vec![link.take_revoked(key).unwrap()]).unwrap();
    exchange.step(true).unwrap();
    exchange.finish().unwrap();
    let late = File::from(descriptors.into_iter().next().unwrap());
    late.write_all_at(&[9; 4096], 0).unwrap();
    assert!(memory.try_into_slice().unwrap().iter().all(|byte| *byte == 0), "a late byte");
}

/// A peer announces packets and sends none. Operations with a key that may still come wait, and the
/// link can be closed.
#[test]
fn packets_that_never_come_hold_no_one() {
    let (raw, mut link) = Raw::meet();
    raw.write(CONTROL, 1000);
    let targets = [Target { key: 1 << 16, offset: 0, len: 1 }];
    link.post(1, Request::Write { targets: &targets, immediate: None }, slice(&[1]).into()).unwrap();
    for _ in 0..100 {
        link.poll(|_| {});
    }
    assert!(link.in_flight() == 1 && link.may_sleep(), "it does not spin");
    link.close();
    let mut returned = 0;
    link.poll(|event| returned += u32::from(matches!(event, Event::Completed { outcome: Err(_), .. })));
    assert_eq!(returned, 1);
}

/// A peer passes descriptors that no packet has. To close them may take as long as the peer likes.
#[test]
fn descriptors_that_are_no_memory_end_the_link() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(8192).unwrap();
    let (reader, _writer) = std::io::pipe().unwrap();
    let good = sealed(8192);
    let wrong: [&[BorrowedFd<'_>]; 4] =
        [&[reader.as_fd()], &[file.as_fd()], &[good.as_fd(), good.as_fd()], &[good.as_fd(), reader.as_fd()]];
    for descriptors in wrong {
        let (mut raw, mut link) = Raw::meet();
        raw.grant(1 << 16, [8192, 0, 8192, 1], descriptors);
        assert!(matches!(end_of(&mut link), LinkError::Nonsense(_)));
    }
}

/// Whoever closes the last descriptor of a socket waits for its data. It may be one of a packet that this side
/// receives, or one that it does not.
#[test]
fn a_descriptor_whose_close_waits_does_not_hold_who_polls() {
    // In a process of its own, whose descriptors wait to be closed then.
    let (is_success, output) = Peer::start("attacks::role_of_a_victim", &listener()).end();
    assert!(is_success, "{output}");
}

#[test]
#[ignore = "a role in another test"]
fn role_of_a_victim() {
    for _ in 0..2 {
        let begin = Instant::now();
        let (mut raw, mut link) = Raw::meet();
        for _ in 0..2 {
            let lingering = lingering();
            raw.grant(1 << 16, [8192, 0, 8192, 1], &[lingering.as_fd()]);
        }
        assert!(matches!(end_of(&mut link), LinkError::Nonsense(_)));
        drop(link);
        assert!(begin.elapsed() < LINGERS / 2);
    }
    // Before anything was proven.
    let begin = Instant::now();
    let mut listener = listener();
    for _ in 0..2 {
        let socket = Raw::connect(&listener);
        let lingering = [lingering(), lingering(), lingering()];
        transmit(&socket, &Raw::hello(), &lingering.each_ref().map(AsFd::as_fd));
        transmit(&socket, &Raw::hello(), &lingering.each_ref().map(AsFd::as_fd));
        drop(lingering);
        assert!(listener.poll(Instant::now()).unwrap().is_none());
    }
    let socket = Raw::connect(&listener);
    transmit(&socket, &Raw::hello(), &[lingering().as_fd()]);
    drop(listener);
    assert!(begin.elapsed() < LINGERS / 2);
}

/// The time for which the close of [`lingering`] waits.
const LINGERS: Duration = Duration::from_secs(60);

/// Returns a socket with data that nobody takes.
fn lingering() -> OwnedFd {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    socket.set_nonblocking(true).unwrap();
    while (&socket).write(&[0; 65536]).is_ok() {}
    rustix::net::sockopt::set_socket_linger(&socket, Some(LINGERS)).unwrap();
    // Otherwise the kernel resets the connection, and nobody waits. It ends with this process.
    std::mem::forget(listener.accept().unwrap());
    socket.into()
}

/// What a peer grants and has not allocated is allocated only where this side writes.
#[test]
fn granted_memory_is_not_allocated_by_who_gets_the_key() {
    const LEN: u64 = 256 << 20;
    let (mut raw, mut link) = Raw::meet();
    let memory = sealed(LEN);
    raw.grant(1 << 16, [LEN, 0, LEN, 1], &[memory.as_fd()]);
    write_to(&mut link, 1 << 16, 4096, 1).unwrap();
    assert_eq!(rustix::fs::fstat(&memory).unwrap().st_blocks, 8, "one page");
}

/// A peer that receives nothing, and a link that is woken again and again.
#[test]
fn a_peer_that_receives_nothing_is_woken_without_a_wait() {
    let (raw, mut link) = Raw::meet();
    for round in 0..2000 {
        // It sleeps: the word of the connector. The ring has room for a part of the messages.
        raw.write(128, 1);
        let posted = link.post(round, Request::Send, slice(b"wake up").into());
        assert!(posted.is_ok() || round > 256);
        link.poll(|_| {});
    }
    assert!(link.down().is_none());
    drop(raw);
    assert!(matches!(end_of(&mut link), LinkError::PeerClosed));
}

/// A peer wakes this side without a pause. Packets that only wake are no nonsense, and the link can be used.
#[test]
fn wake_ups_without_a_pause_are_taken() {
    let (mut raw, mut link) = Raw::meet();
    for _ in 0..2000 {
        let wake = packet(6, &[]);
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        while rustix::net::send(&raw.socket, &wake, flags).is_ok() {}
        link.may_sleep();
        link.poll(|_| {});
    }
    let memory = sealed(4096);
    // The socket is full, so it waits.
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| raw.grant(1 << 16, [4096, 0, 4096, 1], &[memory.as_fd()]));
        wait("room for the packet", || {
            link.may_sleep();
            link.poll(|_| {});
            sender.is_finished().then_some(())
        });
    });
    write_to(&mut link, 1 << 16, 0, 8).unwrap();
    assert!(link.down().is_none());
}
