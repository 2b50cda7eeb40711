# Says what its functions are, and which frames it waits in. One line each, fields separated by tabs:
#   version minor version, whether it is built without the interpreter's lock
#   code   id, name, path, first line, bytes of bytecode, "start:end:line" for each range that has a line
#   frames number of activations of the loop or -, thread, "id:line" for each frame from the innermost
#   holder thread: the one that goes on and so holds the interpreter's lock
#   ready
import argparse, ast, dis, functools, inspect, os, sys, threading, types


def hexadecimal(text):
    characters = ("\ufffd" if 0xD800 <= ord(one) < 0xE000 else one for one in text)
    return "".join(characters).encode().hex()


said = set()


def say_code(code):
    if id(code) in said:
        return
    said.add(id(code))
    size = len(code.co_code)
    if hasattr(code, "co_lines"):
        ranges = list(code.co_lines())
    else:
        starts = [(0, code.co_firstlineno)] + list(dis.findlinestarts(code)) + [(size, None)]
        ranges = [(at, end, line) for (at, line), (end, _) in zip(starts, starts[1:]) if at < end]
    # co_lines() of a comprehension may start before the bytecode.
    lines = ",".join("%d:%d:%d" % (max(at, 0), end, line) for at, end, line in ranges if line is not None)
    name = getattr(code, "co_qualname", code.co_name)
    print("code", id(code), hexadecimal(name), hexadecimal(code.co_filename), code.co_firstlineno, size, lines, sep="\t")
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            say_code(constant)


def say_module(module):
    for value in list(vars(module).values()):
        for member in [value] + list(vars(value).values() if isinstance(value, type) else []):
            code = getattr(getattr(member, "__func__", member), "__code__", None)
            if isinstance(code, types.CodeType):
                say_code(code)


def größe(a):
    return a


def 变量(a):
    return [b
            for b in (lambda c: c)(a)]


def 𠀀𠀁():
    async def inner(self, *, keyword=None):
        async with self:
            yield keyword
    return inner


class Outer:
    class Inner:
        @property
        @functools.lru_cache(maxsize=None)
        def decorated(self):
            with open(
                "nothing",
                mode="r",
            ) as file:
                for line in file:
                    try:
                        yield from line
                    except (
                        ValueError,
                        TypeError,
                    ) as error:
                        return error
                    finally:
                        del file

    def method(self): return {key: value for key, value in vars(self).items() if key != "a"}


# Lines that are far apart, that go back, and that are too many.
long = ["def f(a):", "  a = (a", "+1" * 40] + [""] * 700 + ["    + 2)", "  for b in range(a):", ""] + ["    a += b"] * 3000
compiled = [
    compile("\n".join(long) + "\n" * 70000 + "  return a\n", "/a/long/file.py", "exec"),
    compile("def g():\n  x = 1\n\n  return [y for y in x]\n", "/größe/" + "d" * 240 + "/变量.py", "exec"),
    compile("lambda: 0", os.fsdecode(b"/not/\xff/utf-8.py"), "exec"),
    compile("0", "/" + "e" * 210, "exec"),
    compile("class " + "N" * 600 + ":\n  def f(self): return lambda: self\n", "x", "exec"),
]


def say_frames(groups):
    frame, frames = sys._getframe(1), []
    while frame:
        frames.append("%d:%d" % (id(frame.f_code), frame.f_lineno))
        say_code(frame.f_code)
        frame = frame.f_back
    print("frames", groups, threading.get_ident(), ",".join(frames), sep="\t")


def h(groups):
    said_all.acquire(); say_frames(groups); said_all.release(); held.append(0); os.read(0, 1)


def generator(groups):
    yield 1
    yield h(groups)


def k(groups):
    return sum(generator(groups))


def g(groups):
    return list(map(
        k, [groups]))


def f(groups):
    if groups:
        return g(groups)


said_all, held = threading.Lock(), []
print("version", sys.version_info[1], "t" in getattr(sys, "abiflags", ""), sep="\t")
for code in compiled:
    say_code(code)
for module in sys.modules["__main__"], argparse, ast, dis, inspect, threading, functools:
    say_module(module)
thread = threading.Thread(target=f, args=("-",), daemon=True)
thread.start()
while not held:
    pass


def spin():
    said_all.acquire(); print("holder", threading.get_ident(), sep="\t"); said_all.release(); held.append(0)
    while True:
        pass


threading.Thread(target=spin, daemon=True).start()
while len(held) < 2:
    pass


class Ready(list):
    def append(self, value):
        print("ready", flush=True)


held = Ready()
f("6" if sys.version_info < (3, 11) else "3")
