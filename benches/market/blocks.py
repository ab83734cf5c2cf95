"""The part of a block store that neither NIXL nor Mooncake has: blocks, who has joined, and who is lost.

`store_with_nixl.py` and `store_with_mooncake.py` add the transfers. All of it together does the work of
`crates/examples/examples/block_store.rs`, with the same roles, options and lines of output:
`PROGRAM serve 127.0.0.1:0 workers=8 blocks=10000 len=65536`, and eight times `PROGRAM work ADDRESS rounds=10000`.

A store and each of its workers have a TCP connection, over which the store tells its share and where the memory is. That the
connection ends is how the store learns that a worker is lost. `digests=no` measures the transfers alone: nothing is verified.
"""

import json
import mmap
import os
import random
import selectors
import socket
import struct
import sys
import zlib

import numpy

# Version and digest.
HEADER = struct.Struct("=QQ")
# A writer that lives is done before so many reads.
READS_MAX = 100
# A transfer that takes longer hangs.
LIMIT_S = 30


class Lost(Exception):
    """The other side is gone. The program ends with exit code 4."""


class Options:
    def __init__(self, words):
        given = dict(word.split("=", 1) for word in words)
        self.workers, self.blocks = int(given.get("workers", 8)), int(given.get("blocks", 10_000))
        self.len, self.rounds = int(given.get("len", 65_536)), int(given.get("rounds", 10_000))
        self.rail, self.digests = given.get("rail", "tcp"), given.get("digests") != "no"


def run(store, worker):
    """Runs one role. `store` and `worker` make the two sides of a library from options."""
    code = 1
    try:
        role, address, *words = sys.argv[1:]
        options = Options(words)
        host, port = address.rsplit(":", 1)
        serve(options, (host, int(port)), store) if role == "serve" else work(options, (host, int(port)), worker)
        code = 0
    except Lost as error:
        print(f"error: {error}", file=sys.stderr)
        code = 4
    except Exception as error:
        print(f"error: {error!r}", file=sys.stderr)
    sys.stdout.flush()
    # Libraries can crash when they are unloaded.
    os._exit(code)


def memory(size):
    """Returns memory that is present, as bytes."""
    array = numpy.frombuffer(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), dtype=numpy.uint8)
    array[:] = 0
    return array


def content(number, version):
    """Returns the byte that fills a version of a block. A reader can check it."""
    return zlib.crc32(struct.pack("=QQ", number, version)) % 256


def digest(number, version, block):
    return zlib.crc32(block[HEADER.size :], zlib.crc32(struct.pack("=QQ", number, version)))


def seal(number, version, block, digests=True):
    """Makes a version of a block."""
    if digests:
        block[HEADER.size :] = content(number, version)
    HEADER.pack_into(block, 0, version, digest(number, version, block) if digests else 0)


def version_of(number, block, least, digests=True):
    """Returns the version of a block, which is `least` or a later one; None if the block is torn."""
    version, expected = HEADER.unpack_from(block)
    if digests and expected != digest(number, version, block):
        return None
    wrong = digests and (block[HEADER.size :] != content(number, version)).any()
    assert version >= least and not wrong, f"block {number} matches its digest and is wrong"
    return version


def serve(options, address, make):
    array = memory(options.blocks * options.len)
    blocks = array.reshape(options.blocks, options.len)
    for number, block in enumerate(blocks):
        seal(number, 0, block, options.digests)
    store = make(options, array)
    listener = socket.create_server(address)
    print(f"listening at {':'.join(map(str, listener.getsockname()))}", flush=True)
    ready = selectors.DefaultSelector()
    ready.register(listener, selectors.EVENT_READ)
    free, busy, joined, written = list(reversed(range(options.workers))), {}, 0, 0
    while free or busy:
        store.progress()
        for key, _ in ready.select(store.PAUSE_S):
            if key.fileobj is listener:
                worker = listener.accept()[0]
                if not free:
                    # Its worker ends.
                    worker.close()
                    continue
                joined += 1
                busy[worker] = (free.pop(), b"")
                ready.register(worker, selectors.EVENT_READ)
                welcome = {"worker": joined, "share": busy[worker][0], "shares": options.workers, **store.welcome()}
                send(worker, {**welcome, "blocks": options.blocks, "len": options.len, "digests": options.digests})
                continue
            worker, (share, report) = key.fileobj, busy[key.fileobj]
            try:
                more = worker.recv(4096)
            except OSError:
                more = b""
            if more:
                busy[worker] = (share, report + more)
                continue
            ready.unregister(worker)
            worker.close()
            del busy[worker]
            if report:
                report = json.loads(report)
                written += report["writes"]
                print(f"worker {report['worker']} is done: {report['writes']} writes, {report['torn']} torn", flush=True)
            else:
                # Nothing proves that no write of the lost worker lands later, among those of the next one.
                print(f"share {share} is free: the worker is lost", flush=True)
                free.append(share)
    good = sum(version_of(number, block, 0, options.digests) is not None for number, block in enumerate(blocks))
    print(f"{good} blocks are good, {options.blocks - good} torn; {store.written(written)} writes", flush=True)


def send(sock, message):
    try:
        sock.sendall(json.dumps(message).encode() + b"\n")
    except OSError:
        # The end of the connection tells the same.
        pass


def work(options, address, make):
    try:
        store = socket.create_connection(address, LIMIT_S)
        line = store.makefile().readline()
    except OSError as error:
        raise Lost(f"connect to {address}: {error}") from error
    if not line:
        raise Lost("the store has no share that is free")
    told = json.loads(line)
    size, blocks, digests = told["len"], told["blocks"], told["digests"]
    array = memory(2 * size)
    own, other = array[:size], array[size:]
    worker = make(options, told, array)
    drawn, versions, torn = random.Random(told["worker"]), [0] * blocks, 0
    for turn in range(options.rounds):
        mine = turn % (blocks // told["shares"]) * told["shares"] + told["share"]
        seal(mine, told["worker"] << 32 | turn, own, digests)
        write = worker.start_write(mine)
        number, found, reads = drawn.randrange(blocks), None, 0
        while found is None and reads < READS_MAX:
            worker.read(number)
            found, reads = version_of(number, other, versions[number], digests), reads + 1
        versions[number] = versions[number] if found is None else found
        torn += found is None
        worker.wait(write)
        if (turn + 1) % 100 == 0:
            print(f"worker {told['worker']}: {turn + 1} rounds, {torn} torn", flush=True)
    send(store, {"worker": told["worker"], "writes": options.rounds, "torn": torn})
