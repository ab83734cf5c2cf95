"""The block store over Mooncake's transfer engine: see `blocks.py`. Its wheel has tcp only."""

import os

os.environ.setdefault("MC_LOG_LEVEL", "ERROR")

import blocks
from mooncake.engine import TransferEngine


def engine(array):
    ours = TransferEngine()
    if ours.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") != 0:
        raise RuntimeError("the engine did not start")
    if ours.register_memory(array.ctypes.data, array.nbytes) != 0:
        raise RuntimeError("the memory was not registered")
    return ours


class Store:
    # Mooncake's threads move the bytes, so the store sleeps until a worker comes, is done or is lost.
    PAUSE_S = None

    def __init__(self, _options, array):
        self.ours, self.array = engine(array), array

    def welcome(self):
        return {"engine": f"127.0.0.1:{self.ours.get_rpc_port()}", "base": self.array.ctypes.data}

    def progress(self):
        pass

    def written(self, reported):
        # A write does not count anything at the store: this is what the workers have told.
        return reported


class Worker:
    def __init__(self, _options, told, array):
        self.ours, self.store = engine(array), told["engine"]
        self.here, self.base, self.len = array.ctypes.data, told["base"], told["len"]

    def start_write(self, number):
        batch = self.ours.batch_transfer_async_write(self.store, [self.here], [self.base + number * self.len], [self.len])
        if batch == 0:
            raise blocks.Lost("the write was not accepted")
        return batch

    def read(self, number):
        there = self.base + number * self.len
        if self.ours.transfer_sync_read(self.store, self.here + self.len, there, self.len) != 0:
            raise blocks.Lost("the read failed")

    def wait(self, batch):
        if self.ours.get_batch_transfer_status([batch]) != 0:
            raise blocks.Lost("the write failed")


if __name__ == "__main__":
    blocks.run(Store, Worker)
