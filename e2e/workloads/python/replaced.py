"""Functions that are made, called once and freed, one after the other: the next ones are at their addresses. Options: those of
program.py.

Each caller makes its own functions, and has never called another's. No two callers' differ in anything but their texts: half
of them in their names, half in their paths.
"""

import os
import time

import leaf
from maker import make, path_of
from program import Program

# As many as there are chains.
CALLERS = 16
# The CPU time of one visit. The names are read within it, most of the time.
SECONDS = 0.06
# Of younger processes, functions are sent with their stacks (bpf/c/intf.h).
OLD_AFTER_SECONDS = 10.1

# Its own functions are those whose names or path have its number.
CALLER = """
def caller_{number:02}():
    functions = make({number})
    functions["made_0"]()
    functions.clear()
"""


def make_callers():
    """Those that are never freed."""
    callers = {"make": make}
    source = "".join(CALLER.format(number=number) for number in range(CALLERS))
    exec(compile(source, "<callers>", "exec"), callers)
    return [callers["caller_%02d" % number] for number in range(CALLERS)]


def main():
    """Go through what was asked for."""
    paths = {path_of(number) for number in range(CALLERS)}
    program = Program([os.path.abspath(__file__), "<callers>", *sorted(paths)])
    leaf.seconds = SECONDS
    if program.is_measured:
        time.sleep(OLD_AFTER_SECONDS)
    program.go_through(make_callers())
    program.end()


if __name__ == "__main__":
    main()
