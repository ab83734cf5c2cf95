"""Runs a block store and its workers, kills some of them, and prints what happened as a line of JSON.

`stores.py rate|kill WORKERS BLOCKS ROUNDS OPTION... -- PROGRAM WORD...`, for `cargo xtask bench stores`. Every process here is a child
of this one, and is ended by its number.
"""

import ctypes
import json
import queue
import re
import signal
import subprocess
import sys
import threading
import time

# What takes longer hangs.
HANG_S = 120
# How long a program may take to notice that the other side was killed.
PATIENCE_S = 30
# Of workers that all work.
WINDOW_MIN_S = 1
# How long the others must still work after a worker was killed.
AFTER_S = 2
ENDLESS = "rounds=1000000000000"
ROUNDS = re.compile(r"worker \d+: (\d+) rounds, (\d+) torn")
# From <linux/prctl.h>.
PR_SET_PDEATHSIG = 1


class Program:
    """A child with the times and lines of its output."""

    def __init__(self, *words):
        def bound():
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

        self.child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=bound
        )
        self.lines, self.said = queue.SimpleQueue(), []
        self.ended_at = None
        threading.Thread(target=self.hear, daemon=True).start()

    def hear(self):
        for line in self.child.stdout:
            self.lines.put((time.monotonic(), line.rstrip()))
        self.ended_at = time.monotonic()
        self.lines.put((self.ended_at, None))

    def line(self, pattern, within=HANG_S):
        """Waits for the next line that matches. Returns its time and the match, or None."""
        deadline = time.monotonic() + within
        while True:
            try:
                at, line = self.lines.get(timeout=max(0, deadline - time.monotonic()))
            except queue.Empty:
                return None
            if line is None:
                return None
            self.said.append((at, line))
            if match := re.search(pattern, line):
                return at, match

    def all_lines(self, within=HANG_S):
        """Waits for its end. Returns whether it has ended."""
        self.line(r"(?!)", within)
        return self.ended_at is not None

    def last(self):
        """Returns its error, or its last line: libraries add lines of their own."""
        said = [line for _, line in self.said if line]
        return next((line for line in said if line.startswith("error: ")), said[-1] if said else "")

    def kill(self):
        self.child.kill()
        return time.monotonic()

    def rounds(self):
        """Returns the time and the number of rounds of each report."""
        return [(at, int(match[1])) for at, line in self.said if (match := ROUNDS.match(line))]


def start(program, workers, blocks, options, rounds):
    store = Program(*program, "serve", "127.0.0.1:0", f"workers={workers}", f"blocks={blocks}", *options)
    heard = store.line(r"listening at .*?(127\.0\.0\.1:\d+)$")
    if heard is None:
        sys.exit(f"the store did not start: {store.last()}")
    address = heard[1][1]
    return store, address, [Program(*program, "work", address, rounds, *options) for _ in range(workers)]


def rate(program, workers, blocks, options, rounds):
    """Returns the rate while all workers work: each one's own, between its reports in that time."""
    store, _, started = start(program, workers, blocks, options, f"rounds={rounds}")
    for one in [*started, store]:
        if not one.all_lines() or one.child.wait() != 0:
            sys.exit(f"a program failed: {one.last()}")
    reports = [worker.rounds() for worker in started]
    begin, end = max(report[0][0] for report in reports), min(report[-1][0] for report in reports)
    if end - begin < WINDOW_MIN_S:
        return {"needs_more_rounds": True}
    total, torn = 0, 0
    for worker, report in zip(started, reports):
        inside = [(at, count) for at, count in report if begin <= at <= end]
        if len(inside) < 2:
            return {"needs_more_rounds": True}
        total += (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0])
        torn += int(ROUNDS.match(worker.last())[2])
    return {"rounds_per_s": total, "torn": torn, "store": store.last()}


def kill(program, workers, blocks, options, _rounds):
    store, address, started = start(program, workers, blocks, options, ENDLESS)
    for worker in started:
        if worker.line(ROUNDS.pattern) is None:
            sys.exit(f"a worker failed: {worker.last()}")
    killed = started.pop(0)
    at = killed.kill()
    heard = store.line(r"is free", PATIENCE_S)
    told = {"store_told_s": heard and heard[0] - at, "store_said": heard and heard[1].string}
    time.sleep(AFTER_S)
    told["others_continue"] = sum(others_continue(worker) for worker in started)
    following = Program(*program, "work", address, ENDLESS, *options)
    told["next_works"] = following.line(ROUNDS.pattern, PATIENCE_S) is not None
    if told["next_works"]:
        started.append(following)
    at = store.kill()
    told["workers"] = []
    for worker in started:
        ended = worker.all_lines(max(0, at + PATIENCE_S - time.monotonic()))
        if not ended:
            worker.kill()
        code = worker.child.wait() if ended else None
        told["workers"].append({"code": code, "s": worker.ended_at - at if ended else None, "said": worker.last()})
    return told


def others_continue(worker):
    """Returns whether a worker reports rounds that it has done after now."""
    while not worker.lines.empty():
        worker.line("")
    return worker.line(ROUNDS.pattern, PATIENCE_S) is not None


def main():
    what, workers, blocks, rounds, *rest = sys.argv[1:]
    options, program = rest[: rest.index("--")], rest[rest.index("--") + 1 :]
    result = {"rate": rate, "kill": kill}[what](program, int(workers), int(blocks), options, int(rounds))
    print(json.dumps(result), flush=True)


main()
