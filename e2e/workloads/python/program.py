"""What the programs of this folder share: their options, their gate and their report.

Options: SECONDS [--only NAME] [--hold], or --expected FILE [--only NAME]

SECONDS is CPU time of the process. With --only, one chain is gone through; with --hold, it stays at its end all the time.
With --expected, the program goes the same ways once and only writes down which these are (expected.py).
"""

import json
import os
import resource
import sys
import time

import leaf


def value_of(option):
    """Take it from the command line."""
    if option not in sys.argv:
        return None
    at = sys.argv.index(option)
    value = sys.argv[at + 1]
    del sys.argv[at : at + 2]
    return value


class Program:
    """One run: `while program.goes_on():` and a round of chains; or `go_through(chains)`, which does that."""

    def __init__(self, chain_files):
        self.only = value_of("--only")
        self._expected = value_of("--expected")
        self._rounds = 0
        self._cpu_at_gate_ns = 0
        if self._expected:
            from expected import Recorder

            leaf.recorder = Recorder(chain_files + [leaf.__file__])
            return
        self._seconds = float(sys.argv[1])
        if "--hold" in sys.argv:
            leaf.seconds = self._seconds

    @property
    def is_measured(self):
        """Whether it computes, and doesn't write down its chains."""
        return self._expected is None

    def about_to_run(self, chain):
        """Name the chain whose stack is taken down next."""
        if not self.is_measured:
            leaf.recorder.name = chain

    def wanted(self, chains):
        """Those chains that were asked for, by the names of their functions."""
        return [chain for chain in chains if self.only in (None, chain.__name__)]

    def go_through(self, chains):
        """Rounds of the chains that were asked for, each called on one line."""
        wanted = self.wanted(chains)
        while self.goes_on():
            for chain in wanted:
                self.about_to_run(chain.__name__)
                chain()

    def has_time(self):
        """Whether there is any left."""
        return self.is_measured and self._cpu_ns() < self._seconds * 1e9

    def goes_on(self):
        """Whether there is one more round; there is always a first one, behind the gate."""
        if self._rounds == 0 and self.is_measured:
            print(json.dumps({"ready": os.getpid()}), flush=True)
            if os.environ.get("WORKLOAD_GATE"):
                sys.stdin.readline()
            self._cpu_at_gate_ns = time.process_time_ns()
        self._rounds += 1
        return self._rounds == 1 or self.has_time()

    def workers_to_start(self, count, running):
        """Their numbers: so many at first, later one whenever one of those that run, by process, has ended."""
        yield from range(count)
        while self.is_measured and running:
            pid, _ = os.wait()
            number = running.pop(pid)
            if self._cpu_of_children_ns() < self._seconds * 1e9:
                yield number

    def end(self, tids=()):
        """Report, and end at once: what the interpreter does at its end is nobody's chain."""
        if not self.is_measured:
            leaf.recorder.write(self._expected)
            sys.exit()
        report = {
            "pid": os.getpid(),
            # Of the children, where there are any.
            "cpu_ns": self._cpu_of_children_ns() or self._cpu_ns(),
            "rounds": self._rounds,
            "tids": list(tids) or [os.getpid()],
            "chain": [],
        }
        print(json.dumps(report), flush=True)
        os._exit(0)

    def _cpu_ns(self):
        return time.process_time_ns() - self._cpu_at_gate_ns

    @staticmethod
    def _cpu_of_children_ns():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return int((usage.ru_utime + usage.ru_stime) * 1e9)
