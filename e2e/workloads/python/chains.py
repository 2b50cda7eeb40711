"""Call chains of every kind that CPython has, each known to the last line. The options are those of program.py.

Each function of a chain calls the next on one line, and does nothing else; leaf.burn() computes.
"""

import asyncio
import functools
import os
import re

from leaf import burn
from program import Program

ONE = (1,)
TWO = (1, 2)


def recursion(depth=8):
    """A function that calls itself."""
    return recursion(depth - 1) if depth else burn()


def deep():
    """More frames than fit into one piece of the interpreter's stack."""
    return recursion(300)


class Outer:
    """Names with dots in them."""

    class Inner:
        """Within another class."""

        def method(self):
            """Called by an object."""
            return self.class_method()

        @classmethod
        def class_method(cls):
            """Called by a class."""
            return cls.static_method()

        @staticmethod
        def static_method():
            """Calls a function within a function."""

            def local():
                return burn()

            return local()


def methods():
    """Every sort of them."""
    return Outer.Inner().method()


inner_lambda = lambda: burn()  # noqa: E731
outer_lambda = lambda: inner_lambda()  # noqa: E731


def lambdas():
    """Functions that all have the same name."""
    return outer_lambda()


def comprehensions():
    """Frames of their own up to 3.11, and none since 3.12."""
    return [of_dictionary() for _ in ONE][0]


def of_dictionary():
    """The same of a dictionary."""
    return {0: of_generator() for _ in ONE}[0]


def of_generator():
    """A generator expression, which has a frame in every version."""
    return sum(burn() for _ in ONE)


def outer_generator():
    """The first of three."""
    yield from middle_generator()


def middle_generator():
    """The second."""
    yield from inner_generator()


def inner_generator():
    """The third."""
    yield burn()


def generators():
    """Driven by a loop."""
    for value in outer_generator():
        pass
    return value


def generators_from_c():
    """Driven by a function in C."""
    return sum(outer_generator())


async def awaits():
    """Waits for another."""
    return await awaited()


async def awaited():
    """Is left and resumed before it goes on."""
    await asyncio.sleep(0)
    return await iterates()


async def iterates():
    """Over a generator that is a coroutine as well."""
    async for value in asynchronous_generator():
        pass
    return value


async def asynchronous_generator():
    """Yields once."""
    yield burn()


event_loop = asyncio.new_event_loop()


def coroutines():
    """In a loop that is there already."""
    return event_loop.run_until_complete(awaits())


def sorts():
    """Through list_sort."""
    return sorted(ONE, key=sort_key)[0]


def sort_key(_):
    """Called from C."""
    return substitutes()


def substitutes():
    """Through the engine of regular expressions."""
    return re.sub("a", replacement, "a")


def replacement(_):
    """Called from C."""
    return str(reduces())


def reduces():
    """Through functools.reduce."""
    return functools.reduce(combine, TWO)


def combine(_first, _second):
    """Called from C."""
    return maps()


def maps():
    """Through an iterator in C."""
    return sum(map(mapped, ONE))


def mapped(_):
    """Called from C."""
    return burn()


class Descriptor:
    """Computes an attribute."""

    def __get__(self, instance, owner):
        """Called by the lookup."""
        return instance[0]


class Attributes:
    """Calls that nobody sees in the source."""

    described = Descriptor()

    @property
    def computed(self):
        """A property."""
        return self.absent

    def __getattr__(self, name):
        """Called where there is no such attribute."""
        return self.described

    def __getitem__(self, key):
        """Called by brackets."""
        return self + key

    def __add__(self, other):
        """Called by an operator."""
        return burn()


def attributes():
    """Each leads to the next."""
    return Attributes().computed


class Meta(type):
    """Makes classes whose calls are its own."""

    def __call__(cls):
        """Called instead of the class."""
        return super().__call__()


class Built(metaclass=Meta):
    """Computes while it is being made."""

    def __new__(cls):
        """Called first."""
        return burn()


class Initialized:
    """Computes in its initialiser: 3.12 and later enter that without a call in C, through a frame that is nobody's."""

    def __init__(self):
        """Called by the class."""
        self.value = Built()


def constructors():
    """Objects."""
    return Initialized().value


class Managed:
    """A context."""

    def __enter__(self):
        """Called by `with`."""
        return burn()

    def __exit__(self, *exception):
        """Does nothing."""


def contexts():
    """Enter one."""
    with Managed() as value:
        return value


def decorate(function):
    """A function around another."""

    @functools.wraps(function)
    def wrapper(*arguments, **named):
        return function(*arguments, **named)

    return wrapper


@functools.lru_cache(maxsize=0)
def cached():
    """Around it is a function in C."""
    return burn()


@decorate
@decorate
def decorated(_number, word):
    """Twice."""
    return cached()


def decorators():
    """Of two kinds."""
    return functools.partial(decorated, 1)(word="a")


def exceptions():
    """The chain goes on where one is handled."""
    try:
        raise ValueError
    except ValueError:
        return finally_clause()


def finally_clause():
    """And where a block is left."""
    try:
        return 1
    finally:
        passes()


def passes():
    """One comes back through this."""
    try:
        throws()
    except KeyError:
        return 1


def throws():
    """Throws at last."""
    burn()
    raise KeyError


made = compile("\n\nburn()", "<made>", "eval")


def evaluates():
    """Code that is in no file."""
    return eval(made)


class Größe:
    """Names that are not ASCII."""

    def länge(self):
        """In a method."""
        return π_的_函数()


def π_的_函数():
    """In a function."""
    return burn()


def identifiers():
    """Names that are not ASCII."""
    return Größe().länge()


CHAINS = [
    recursion,
    deep,
    methods,
    lambdas,
    comprehensions,
    generators,
    generators_from_c,
    coroutines,
    sorts,
    attributes,
    constructors,
    contexts,
    decorators,
    exceptions,
    evaluates,
    identifiers,
]


def main():
    """Go through what was asked for."""
    program = Program([os.path.abspath(__file__)])
    program.go_through(CHAINS)
    program.end()


if __name__ == "__main__":
    main()
