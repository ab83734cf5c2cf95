"""The work that the programs of this folder share: scattered pages, as in `benches/bare`.

The initiator starts the target, and both talk over a socket that has nothing to do with the measured transport. Pages go from drawn
places at the initiator to drawn places at the target, which verifies every byte after the time was taken.
"""

import argparse
import ctypes
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import time

import numpy

# Longer than any run takes: both sides poll.
LIMIT_S = 120
# Transfers in flight, as in the engine's program: the next one begins while the last pages of one are in flight.
AT_ONCE = 4
# From <linux/prctl.h>.
PR_SET_PDEATHSIG = 1


class Failure(Exception):
    """The work was not done."""


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("test", choices=["write"])
    parser.add_argument("--provider", choices=["tcp", "shm"], required=True)
    parser.add_argument("--page", type=int, default=4096)
    parser.add_argument("--region", type=int, default=16 << 20)
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--target", type=int, metavar="FD", help=argparse.SUPPRESS)
    signal.alarm(LIMIT_S)
    return parser.parse_args()


def draw(count, seed):
    """Returns the numbers below `count` in an order that is the same on both sides."""
    numbers = list(range(count))
    for place in range(count - 1, 0, -1):
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        other = (seed >> 33) % (place + 1)
        numbers[place], numbers[other] = numbers[other], numbers[place]
    return numbers


def places(options):
    """Returns the offsets of the pages at the initiator and at the target."""
    count = options.region // options.page
    return [[number * options.page for number in draw(count, seed)] for seed in (1, 2)]


def memory(options):
    """Returns anonymous memory that is present, in huge pages where the kernel has them, as bytes."""
    mapping = mmap.mmap(-1, options.region, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    mapping.madvise(mmap.MADV_HUGEPAGE)
    array = numpy.frombuffer(mapping, dtype=numpy.uint8)
    array[:] = 0
    return array


def content(options):
    """Returns the words of all pages at the initiator, one page a row."""
    page = numpy.arange(options.region // options.page, dtype=numpy.uint64)[:, None]
    word = numpy.arange(options.page // 8, dtype=numpy.uint64)[None, :]
    return (page << numpy.uint64(32) | word) + numpy.uint64(1)


def fill(options, array):
    array.view(numpy.uint64)[:] = content(options).reshape(-1)


def verify(options, array):
    """Fails if a byte is not the one that was sent."""
    count = options.region // options.page
    arrived, sent = array.view(numpy.uint64).reshape(count, -1), content(options)
    if not numpy.array_equal(arrived[draw(count, 2)], sent[draw(count, 1)]):
        raise Failure("the pages at the target are not those that were sent")


class Other:
    """The other side: a line of JSON in either direction."""

    def __init__(self, sock):
        self.lines = sock.makefile("rw")

    def tell(self, value):
        print(json.dumps(value), file=self.lines, flush=True)

    def hear(self):
        line = self.lines.readline()
        if not line:
            raise Failure("the other side is gone")
        return json.loads(line)


def run(initiate, target):
    """Runs the target in a process of its own, and the initiator here. `initiate` returns the nanoseconds.

    Either process ends at once, with everything verified or with an error: libraries can crash when they are unloaded, and their
    threads complain about memory that is gone.
    """
    chosen = options()
    try:
        if chosen.target is None:
            lead(chosen, initiate)
        else:
            # It polls without an end otherwise.
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            target(chosen, Other(socket.socket(fileno=chosen.target)))
    except BaseException as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def lead(chosen, initiate):
    ours, theirs = socket.socketpair()
    words = [sys.executable, *sys.argv, "--target", str(theirs.fileno())]
    process = subprocess.Popen(words, pass_fds=[theirs.fileno()], stdout=sys.stderr)
    theirs.close()
    ns = initiate(chosen, Other(ours))
    if process.wait() != 0:
        raise Failure(f"the target failed with {process.returncode}")
    result = {key: getattr(chosen, key) for key in ("test", "provider", "page", "window", "rounds")}
    size = chosen.rounds * chosen.region
    print(json.dumps({**result, "bytes": size, "ns": ns, "gb_per_s": size / ns}), flush=True)


def measured(count, post, is_done):
    """Posts `count` transfers by their number, a few at a time, and returns when all are done."""
    in_flight = []
    for number in range(count):
        if len(in_flight) == AT_ONCE:
            await_one(in_flight.pop(0), is_done)
        in_flight.append(post(number))
    for posted in in_flight:
        await_one(posted, is_done)


def await_one(posted, is_done):
    while not is_done(posted):
        pass


now_ns = time.monotonic_ns
