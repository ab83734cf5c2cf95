"""Scattered pages over Mooncake's transfer engine: `with_mooncake.py write --provider tcp [OPTION]...`.

Chosen for Mooncake, each by measurement: a few batches are in flight; no line of log for each of them. More lanes, its pool of
connections and other sizes of slices make no difference.
"""

import os

os.environ.setdefault("MC_LOG_LEVEL", "ERROR")

import pages
from mooncake.engine import TransferEngine

# Pages of a batch. Its queue refuses transfers if some thousand pages are in flight.
BATCH = 256


def engine():
    ours = TransferEngine()
    if ours.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") != 0:
        raise pages.Failure("the engine did not start")
    return ours


def register(ours, array):
    if ours.register_memory(array.ctypes.data, array.nbytes) != 0:
        raise pages.Failure("the memory was not registered")


def target(options, other):
    ours, array = engine(), pages.memory(options)
    register(ours, array)
    other.tell([f"127.0.0.1:{ours.get_rpc_port()}", array.ctypes.data])
    # Its threads write; the initiator knows when the last byte is there.
    other.hear()
    other.tell("there")
    pages.verify(options, array)
    other.hear()


def initiate(options, other):
    ours, array = engine(), pages.memory(options)
    register(ours, array)
    peer, base = other.hear()
    here, there = pages.places(options)
    here = [array.ctypes.data + offset for offset in here]
    there = [base + offset for offset in there]
    lengths = [options.page] * len(here)
    parts = [slice(first, first + BATCH) for first in range(0, len(here), BATCH)]
    batches = [(here[part], there[part], lengths[part]) for part in parts]

    def post(number):
        batch = ours.batch_transfer_async_write(peer, *batches[number % len(batches)])
        if batch == 0:
            raise pages.Failure("the transfer was not accepted")
        return batch

    def is_done(batch):
        if ours.get_batch_transfer_status([batch]) != 0:
            raise pages.Failure("the transfer failed")
        return True

    # The first transfer connects. The memory is still empty, so that it leaves nothing of the content there.
    if ours.transfer_sync_write(peer, here[0], there[0], options.page) != 0:
        raise pages.Failure("the first transfer failed")
    pages.fill(options, array)
    start = pages.now_ns()
    pages.measured(options.rounds * len(batches), post, is_done)
    other.tell("sent")
    other.hear()
    ns = pages.now_ns() - start
    other.tell("end")
    return ns


if __name__ == "__main__":
    pages.run(initiate, target)
