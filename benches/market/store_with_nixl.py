"""The block store over NIXL with its UCX backend, `rail=tcp` or `rail=shm`: see `blocks.py`.

Settings are those of `with_nixl.py`, where they were chosen by measurement.
"""

import os
import time

import blocks

# There is nothing to sleep on, so both sides poll. Without a pause, the processes take the cores from each other.
POLL_S = 0.0001


def agent(options, name):
    os.environ.setdefault("UCX_TLS", options.rail)
    if options.rail == "tcp":
        os.environ.setdefault("UCX_NET_DEVICES", "lo")
        os.environ.setdefault("UCX_TCP_TX_SEG_SIZE", "64k")
        os.environ.setdefault("UCX_TCP_RX_SEG_SIZE", "64k")
    from nixl_cu12._api import nixl_agent, nixl_agent_config

    ours = nixl_agent(name, nixl_agent_config(enable_prog_thread=False, backends=[]))
    # With error handling, UCX does not use its transports within a host.
    ours.create_backend("UCX", {} if options.rail == "tcp" else {"ucx_error_handling_mode": "none"})
    return ours


def register(ours, array):
    ours.register_memory([(array.ctypes.data, array.nbytes, 0, "")], "DRAM")


def places(base, count, size):
    return [(base + number * size, size, 0) for number in range(count)]


class Store:
    # Over tcp, the store takes part in each transfer, and so never sleeps for long.
    PAUSE_S = 0

    def __init__(self, options, array):
        self.ours, self.array, self.notes = agent(options, "store"), array, 0
        register(self.ours, array)
        self.metadata = self.ours.get_agent_metadata().hex()

    def welcome(self):
        return {"metadata": self.metadata, "base": self.array.ctypes.data}

    def progress(self):
        new = sum(len(notes) for notes in self.ours.get_new_notifs().values())
        self.notes += new
        if new == 0:
            time.sleep(POLL_S)

    def written(self, _reported):
        self.progress()
        return self.notes


class Worker:
    def __init__(self, options, told, array):
        # Agents have names, which must differ.
        self.ours = agent(options, f"worker {told['worker']}")
        register(self.ours, array)
        store = self.ours.add_remote_agent(bytes.fromhex(told["metadata"]))
        self.ours.make_connection(store)
        here, there = places(array.ctypes.data, 2, told["len"]), places(told["base"], told["blocks"], told["len"])
        self.local = self.ours.prep_xfer_dlist("NIXL_INIT_AGENT", here, "DRAM")
        self.remote = self.ours.prep_xfer_dlist(store, there, "DRAM")

    def start(self, operation, buffer, number, note=b""):
        handle = self.ours.make_prepped_xfer(operation, self.local, [buffer], self.remote, [number], note)
        self.state(self.ours.transfer, handle)
        return handle

    def start_write(self, number):
        # The store counts the notes.
        return self.start("WRITE", 0, number, b"written")

    def read(self, number):
        self.wait(self.start("READ", 1, number))

    def wait(self, handle):
        deadline = time.monotonic() + blocks.LIMIT_S
        while self.state(self.ours.check_xfer_state, handle) != "DONE":
            if time.monotonic() > deadline:
                raise blocks.Lost(f"a transfer was not done within {blocks.LIMIT_S} s")
            time.sleep(POLL_S)
        self.ours.release_xfer_handle(handle)

    def state(self, ask, handle):
        from nixl_cu12._bindings import nixlRemoteDisconnectError

        try:
            state = ask(handle)
        except nixlRemoteDisconnectError as error:
            raise blocks.Lost(f"the transfer failed: {error}") from error
        if state == "ERR":
            raise blocks.Lost("the transfer failed")
        return state


if __name__ == "__main__":
    blocks.run(Store, Worker)
