"""Computes in a subinterpreter, which the main interpreter's functions enter through C (3.12 and later).

Options: those of program.py but for --expected: what a subinterpreter runs is known to the test.
"""

import sys

from program import Program

# The lines count from the first one.
SOURCE = """
import time
def outer():
    return inner()
def inner():
    value = 1
    for number in range(200_000):
        value = (value * 31 + number) & 0xFFFF
    return value
until = time.process_time() + SECONDS
while time.process_time() < until:
    outer()
"""


def new_runner():
    """A function that runs source text in a subinterpreter of its own."""
    try:
        import _interpreters as interpreters

        number = interpreters.create()
        return lambda source: interpreters.exec(number, source)
    except ImportError:
        import _xxsubinterpreters as interpreters

        number = interpreters.create()
        return lambda source: interpreters.run_string(number, source)


def main():
    """One round, which takes all of the time."""
    program = Program([__file__])
    run = new_runner()
    while program.goes_on():
        run(SOURCE.replace("SECONDS", sys.argv[1]))
        break
    program.end()


if __name__ == "__main__":
    main()
