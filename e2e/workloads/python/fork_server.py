"""A server that forks its workers, and forks them again when they have served for a while.

Options: those of program.py; SECONDS is CPU time of all workers that have ended. Each worker compiles a handler after the fork:
those of different workers are different functions at the same addresses.
"""

import os

from leaf import burn
from program import Program

WORKERS = 4
# A worker ends after so many, and another takes its place.
REQUESTS = 10

# Each on a line of its own.
HANDLER = """
{blank_lines}
def handler_{number}():
    return respond()
"""


def respond():
    """What all handlers call."""
    return burn()


def dispatch(handler):
    """One request."""
    return handler()


def serve(number):
    """The life of a worker."""
    source = HANDLER.format(number=number, blank_lines="\n" * number)
    names = {"respond": respond}
    exec(compile(source, "<handlers>", "exec"), names)
    handler = names["handler_%d" % number]
    for _ in range(REQUESTS):
        dispatch(handler)


def start_worker(program, number):
    """In a process of its own, whose number is returned."""
    program.about_to_run("worker %d" % number)
    pid = os.fork() if program.is_measured else 0
    if pid == 0:
        serve(number)
        if program.is_measured:
            os._exit(0)
    return pid


def run(program):
    """Keep as many workers as there are to be."""
    running = {}
    for number in program.workers_to_start(WORKERS, running):
        running[start_worker(program, number)] = number


def main():
    """One round, which takes all of the time."""
    program = Program([os.path.abspath(__file__)])
    while program.goes_on():
        run(program)
        break
    program.end()


if __name__ == "__main__":
    main()
