"""Makes functions from text. Those that call each other are known by the number of their maker's caller."""

from leaf import burn

DEPTH = 24

MADE = """def made_{number}_{depth}():
    return {callee}()
"""


def make(number):
    """Functions in a namespace, which has to be cleared to free them. The first is called `made_NUMBER_0`."""
    callees = ["made_%d_%d" % (number, depth) for depth in range(1, DEPTH)] + ["burn"]
    made = [MADE.format(number=number, depth=depth, callee=callee) for depth, callee in enumerate(callees)]
    functions = {"burn": burn}
    exec(compile("\n" * number + "".join(made), "<made>", "exec"), functions)
    return functions
