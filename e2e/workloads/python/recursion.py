"""Recursion through a function in C, and nothing else: activations of the interpreter's loop begin and end all the time.

Options: those of program.py, without chains.
"""

from program import Program


def fibonacci(n):
    """The slow way, on purpose: each level is an activation of its own."""
    return n if n < 2 else sum(map(fibonacci, (n - 1, n - 2)))


def main():
    """Compute until the time is over."""
    program = Program([])
    while program.goes_on():
        fibonacci(14)
    program.end()


if __name__ == "__main__":
    main()
