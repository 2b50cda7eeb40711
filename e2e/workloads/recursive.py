"""Recursion in Python, with a call in C at each level.

Usage: recursive.py SECONDS [TURN TURNS PERIOD]

With a turn, it computes for PERIOD seconds in its turn of TURNS and sleeps while it is the others'.
"""

import json
import os
import sys
import time


def fibonacci(n):
    """The slow way, on purpose; through map, so that each level is a call in C as well."""
    return n if n < 2 else sum(map(fibonacci, (n - 1, n - 2)))


def wait_for_turn(turn, turns, period, deadline):
    """Sleep to the start of the turn, unless it is now, but not beyond the deadline."""
    now = time.monotonic()
    periods_to_wait = (turn - int(now / period)) % turns
    if periods_to_wait:
        time.sleep(max(min((int(now / period) + periods_to_wait) * period, deadline) - now, 0))


def main():
    """Compute until the time is over, then report."""
    pid = os.getpid()
    print(json.dumps({"ready": pid}), flush=True)
    if os.environ.get("WORKLOAD_GATE"):
        sys.stdin.readline()
    cpu_at_gate_ns = time.process_time_ns()
    deadline = time.monotonic() + float(sys.argv[1])
    while True:
        if len(sys.argv) > 2:
            wait_for_turn(int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), deadline)
        if time.monotonic() >= deadline:
            break
        fibonacci(14)
    report = {
        "pid": pid,
        "cpu_ns": time.process_time_ns() - cpu_at_gate_ns,
        "tids": [pid],
        "chain": ["Py_BytesMain", "Py_RunMain", "PyEval_EvalCode"],
    }
    print(json.dumps(report), flush=True)


main()
