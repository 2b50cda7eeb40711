"""Makes functions from text, whose sizes don't depend on the maker's caller: only their names do, or their path."""

from leaf import burn

# With few, most come to the addresses of others whose objects all are at the addresses of theirs.
DEPTH = 2

MADE = """def {name}():
    return {callee}()
"""


def name_of(number, depth):
    """Of a caller's function. Callers with odd numbers have the same names."""
    return "made_%02d_%02d" % (0 if number % 2 else number, depth)


def path_of(number):
    """Of a caller's functions. Callers with even numbers have the same path."""
    return "<made %02d>" % (number if number % 2 else 0)


def make(number):
    """Functions in a namespace, which has to be cleared to free them. The first is also called `made_0`."""
    names = [name_of(number, depth) for depth in range(DEPTH)]
    made = [MADE.format(name=name, callee=callee) for name, callee in zip(names, names[1:] + ["burn"])]
    functions = {"burn": burn}
    exec(compile("".join(made), path_of(number), "exec"), functions)
    functions["made_0"] = functions[names[0]]
    return functions
