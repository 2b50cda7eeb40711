"""A call chain that is known in full, in one file that needs no module of the library: for machines that have little of Python.

Usage: ladder.py SECONDS [released]. Prints itself as the workloads in C do: its process, and the names of its functions, outermost
first. `released`: it computes in a function in C, which releases the interpreter's lock.
"""

import os
import sys
import time

STEPS = 24
ONE = (1,)
LARGE = bytes(1 << 20) if sys.argv[2:] == ["released"] else b""
if LARGE:
    from zlib import crc32


def burn(until):
    """Compute until then, in CPU time."""
    value = 1
    while time.process_time() < until:
        if LARGE:
            value = crc32(LARGE, value)
            continue
        for number in range(1000):
            value = (value * 31 + number) & 0xFFFF
    return value


def step(left, until):
    """The next step: each third one through a function in C."""
    if left == 0:
        return burn(until)
    if left % 3 == 0:
        return sorted(ONE, key=lambda _: step(left - 1, until))
    return step(left - 1, until)


def chain():
    """The names of what calls what."""
    names = ["<module>"]
    for left in range(STEPS, -1, -1):
        names += ["step", "step.<locals>.<lambda>"] if left and left % 3 == 0 else ["step"]
    return names + ["burn"]


print('{"ready":1}')
names = ",".join('"' + name + '"' for name in chain())
print('{"pid":%d,"cpu_ns":0,"tids":[],"chain":[%s]}' % (os.getpid(), names), flush=True)
end = time.process_time() + float(sys.argv[1])
while time.process_time() < end:
    step(STEPS, min(end, time.process_time() + 0.5))
