"""Functions that are made, called once and freed, one after the other: the next ones are at their addresses. Options: those of
program.py.

Each caller makes its own functions, whose names have its number: it has never called one with another number. In their source
they are as many lines further down, so that no two differ in nothing but their names.
"""

import os
import time

import leaf
from maker import make
from program import Program

# As many as there are chains.
CALLERS = 16
# The CPU time of one visit. The names are read within it, most of the time.
SECONDS = 0.06
# Of younger processes, functions are sent with their stacks (bpf/c/intf.h).
OLD_AFTER_SECONDS = 2.1

CALLER = """
{blank_lines}
def caller_{number}():
    functions = make({number})
    functions["made_{number}_0"]()
    functions.clear()
"""


def make_callers():
    """Those that are never freed."""
    callers = {"make": make}
    source = "".join(CALLER.format(number=number, blank_lines="\n" * number) for number in range(CALLERS))
    exec(compile(source, "<callers>", "exec"), callers)
    return [callers["caller_%d" % number] for number in range(CALLERS)]


def main():
    """Go through what was asked for."""
    program = Program([os.path.abspath(__file__), "<callers>", "<made>"])
    leaf.seconds = SECONDS
    if program.is_measured:
        time.sleep(OLD_AFTER_SECONDS)
    program.go_through(make_callers())
    program.end()


if __name__ == "__main__":
    main()
