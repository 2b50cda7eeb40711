"""40 frames of Python in 12 activations of the interpreter's loop, where one activation runs what Python calls from Python.

Options: those of program.py, and --calls-from-c N: of the calls, those that C makes (11). It writes down its stack, and with
that how many of each there are: up to 3.10, each frame has an activation of its own.
"""

import os

from leaf import burn
from program import Program, value_of

# Frames besides these: <module>, main, burn.
FRAMES_OF_CALLS = 37


def call(left, of_those_from_c):
    """Calls itself: through a function in C every third or fourth time, as long as there is need of that."""
    if left == 0:
        return burn()
    if left <= 3 * of_those_from_c:
        return sum(map(call, (left - 1,), (of_those_from_c - 1,)))
    return call(left - 1, of_those_from_c)


def main():
    """Rounds of one chain."""
    calls_from_c = int(value_of("--calls-from-c") or 11)
    program = Program([os.path.abspath(__file__)])
    program.about_to_run("activations")
    while program.goes_on():
        call(FRAMES_OF_CALLS - 1, calls_from_c)
    program.end()


if __name__ == "__main__":
    main()
