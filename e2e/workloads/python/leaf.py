"""Where every chain ends: it computes, in Python and in C."""

import hashlib
import sys
import time

# What takes the stack down instead, while a program finds out what its chains are (expected.py).
recorder = None
# CPU time of a thread in one visit. The way to here takes less than a thousandth of it.
seconds = 0.03

BUFFER = bytes(1 << 16)


def burn():
    """Compute; return 1, so that callers can sum."""
    if recorder is not None:
        recorder.add(sys._getframe())
        return 1
    value = 1
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        for number in range(1000):
            value = (value * 31 + number) & 0xFFFF
        value ^= sum(range(4000)) & 0xFF
        value ^= hashlib.sha256(BUFFER).digest()[0]  # Gives the GIL up meanwhile.
    return 1
