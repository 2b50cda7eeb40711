"""Threads, each with a chain of its own that its name tells. The options are those of program.py."""

import threading

import chains
from program import Program

CHAINS = [chains.recursion, chains.sorts, chains.generators, chains.coroutines]


class Worker(threading.Thread):
    """A thread that goes through one chain."""

    def __init__(self, program, chain):
        super().__init__(name=chain.__name__)
        self.program = program
        self.chain = chain

    def run(self):
        """As long as there is time, and once at least."""
        while True:
            self.chain()
            if not self.program.has_time():
                break


def start_and_join(program):
    """All of them."""
    workers = [Worker(program, chain) for chain in program.wanted(CHAINS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return [worker.native_id for worker in workers]


def main():
    """One round, which takes all of the time."""
    # What the main thread does is in no chain, so this file isn't judged by.
    program = Program([chains.__file__])
    tids = []
    while program.goes_on():
        tids = start_and_join(program)
    program.end(tids)


if __name__ == "__main__":
    main()
