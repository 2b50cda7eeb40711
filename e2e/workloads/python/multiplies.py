"""Multiplies matrices with numpy from its start on, in one thread, until it has used as many seconds of CPU time as it is told."""

import os
import sys
import time

# OpenBLAS reads them when it is loaded. Its functions for newer processors are compiled, and have unwind information.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["OPENBLAS_CORETYPE"] = "Haswell"
import numpy  # noqa: E402


def multiply(matrix):
    """In code of OpenBLAS's, between functions in assembly without unwind information."""
    return matrix @ matrix


def main():
    """All of the time."""
    matrix = numpy.ones((200, 200))
    while time.process_time() < float(sys.argv[1]):
        multiply(matrix)


if __name__ == "__main__":
    main()
