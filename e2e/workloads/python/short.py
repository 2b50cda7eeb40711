"""Processes that live for 50 ms behind the start of their interpreter, one after the other.

Usage: short.py PROCESSES, or short.py --expected FILE

Each is started anew, as a script is; what it computes is CPU time.
"""

import os
import subprocess
import sys

import leaf
from leaf import burn
from program import Program

SECONDS = "0.05"
ONE = "--one"


def work():
    """Leads to the end through C."""
    return sorted((1,), key=key)


def key(_):
    """The last one."""
    return burn()


def run_one(program):
    """The life of a process."""
    leaf.seconds = float(SECONDS)
    while program.goes_on():
        work()
        break


def main():
    """Start them, or be one of them."""
    if ONE not in sys.argv and "--expected" not in sys.argv:
        for _ in range(int(sys.argv[1])):
            subprocess.run([sys.executable, os.path.abspath(__file__), SECONDS, ONE], check=True)
        return
    program = Program([os.path.abspath(__file__)])
    program.about_to_run("short")
    run_one(program)
    program.end()


if __name__ == "__main__":
    main()
