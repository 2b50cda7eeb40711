"""A chain through an extension module: numpy calls a function of Python's for an element of an array. Options: those of program.py."""

import os

import numpy
from leaf import burn
from program import Program

ONE = numpy.ones(1)


def element(_value):
    """Called by numpy."""
    return burn()


each = numpy.frompyfunc(element, 1, 1)


def maps():
    """Through a ufunc."""
    return each(ONE)


def reduces():
    """Through a method of an array, and the ufunc again."""
    return numpy.apply_along_axis(row, 0, ONE)


def row(_values):
    """Called by a function of numpy's in Python."""
    return maps()[0]


CHAINS = [maps, reduces]


def main():
    """Go through what was asked for."""
    program = Program([os.path.abspath(__file__)])
    program.go_through(CHAINS)
    program.end()


if __name__ == "__main__":
    main()
