"""Scattered pages over NIXL with its UCX backend: `with_nixl.py write --provider tcp|shm [OPTION]...`.

Chosen for NIXL, each by measurement: descriptors are prepared once; a transfer has all pages of a round, and a few transfers are
in flight; no thread for progress, because both sides poll anyway (on two cores, the threads take most of the rate); segments of
64 KiB over tcp instead of 8 KiB; no error handling within a host.
"""

import os

import pages

NOTE, WARM_UP = b"round", b"warm-up"


def agent(options, name):
    # Within a host, UCX may use its own shared memory and process_vm_writev; over tcp, the loopback.
    os.environ.setdefault("UCX_TLS", "tcp" if options.provider == "tcp" else "shm")
    if options.provider == "tcp":
        os.environ.setdefault("UCX_NET_DEVICES", "lo")
        os.environ.setdefault("UCX_TCP_TX_SEG_SIZE", "64k")
        os.environ.setdefault("UCX_TCP_RX_SEG_SIZE", "64k")
    from nixl_cu12._api import nixl_agent, nixl_agent_config

    ours = nixl_agent(name, nixl_agent_config(enable_prog_thread=False, backends=[]))
    # With error handling, UCX does not use its transports within a host.
    handling = {} if options.provider == "tcp" else {"ucx_error_handling_mode": "none"}
    ours.create_backend("UCX", handling)
    return ours


def register(ours, array):
    ours.register_memory([(array.ctypes.data, array.nbytes, 0, "")], "DRAM")


def descriptors(options, base, offsets):
    return [(base + offset, options.page, 0) for offset in offsets]


def target(options, other):
    ours, array = agent(options, "target"), pages.memory(options)
    register(ours, array)
    other.tell([ours.get_agent_metadata().hex(), array.ctypes.data])
    peer = ours.add_remote_agent(bytes.fromhex(other.hear()))
    ours.make_connection(peer)
    other.tell("connected")
    arrived = 0
    while arrived < options.rounds:
        arrived += sum(note == NOTE for notes in ours.get_new_notifs().values() for note in notes)
    other.tell("there")
    pages.verify(options, array)
    other.hear()


def initiate(options, other):
    ours, array = agent(options, "initiator"), pages.memory(options)
    register(ours, array)
    metadata, base = other.hear()
    other.tell(ours.get_agent_metadata().hex())
    peer = ours.add_remote_agent(bytes.fromhex(metadata))
    other.hear()
    ours.make_connection(peer)
    here, there = pages.places(options)
    local = ours.prep_xfer_dlist("NIXL_INIT_AGENT", descriptors(options, array.ctypes.data, here), "DRAM")
    remote = ours.prep_xfer_dlist(peer, descriptors(options, base, there), "DRAM")
    every = list(range(len(here)))
    handles = [ours.make_prepped_xfer("WRITE", local, every, remote, every, NOTE) for _ in range(pages.AT_ONCE)]

    def post(number):
        handle = handles[number % len(handles)]
        if ours.transfer(handle) == "ERR":
            raise pages.Failure("the transfer failed")
        return handle

    def is_done(handle):
        state = ours.check_xfer_state(handle)
        if state == "ERR":
            raise pages.Failure("the transfer failed")
        return state == "DONE"

    # The first transfer connects. The memory is still empty, so that it leaves nothing of the content there.
    first = ours.make_prepped_xfer("WRITE", local, [0], remote, [0], WARM_UP)
    ours.transfer(first)
    pages.await_one(first, is_done)
    pages.fill(options, array)
    start = pages.now_ns()
    pages.measured(options.rounds, post, is_done)
    other.hear()
    ns = pages.now_ns() - start
    other.tell("end")
    return ns


if __name__ == "__main__":
    pages.run(initiate, target)
